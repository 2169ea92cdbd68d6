package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

func keysCommand(f *flags) *cobra.Command {
	cmd := keysList(f)
	cmd.Use = "keys"
	cmd.Short = "List the minions' keys with their fingerprints and from where they came"
	cmd.Long = `keys shows the keys of all states: pending keys wait for you, denied ones are
second keys for a name that has one. The address is from where somebody signed in
last under that name, as the nodes that are up have seen it; it proves nothing.
Compare the fingerprint with that of the minion (salt-call --local key.finger)
before you accept a key. It does the same as salt-key -L and -F.`

	cmd.Example = `  applianced keys
  applianced keys accept web1 web2
  applianced keys delete --state denied --dry-run
  applianced keys --json | jq -r '.minions[] | select(.key == "pending") | .id'`

	list := keysList(f)
	list.Use, list.Short = "list", "List the minions' keys, those of one state or all"
	list.Long = "list does what applianced keys does without a verb."
	list.Example = "  applianced keys list --state pending"
	cmd.AddCommand(list)

	cmd.AddCommand(keysAccept(f), keysReject(f), keysDelete(f))
	return cmd
}

// keyStates returns the names of the states of keys.
func keyStates() []string { return []string{"accepted", "pending", "rejected", "denied"} }

// stateFlag adds --state.
func stateFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "state", "", "only keys of this state: "+strings.Join(keyStates(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(keyStates(), cobra.ShellCompDirectiveNoFileComp))
}

// knownState returns an error if state is not a state of keys.
func knownState(state string) error {
	if state != "" && !slices.Contains(keyStates(), state) {
		return misused("--state: %.20q is none of %s", state, strings.Join(keyStates(), ", "))
	}
	return nil
}

func keysList(f *flags) *cobra.Command {
	var state string
	cmd := &cobra.Command{Args: cobra.NoArgs}
	stateFlag(cmd, &state)
	return answering[status.MinionList]{
		json: "print the list for machines",
		ask: func(cmd *cobra.Command, _ []string) (list status.MinionList, err error) {
			if err := knownState(state); err != nil {
				return list, err
			}

			list, err = f.client().Minions(cmd.Context(), true)
			list.Minions = slices.DeleteFunc(list.Minions,
				func(m status.Minion) bool { return state != "" && m.Key != state })
			return list, err
		},
		print: func(cmd *cobra.Command, list status.MinionList) error {
			warnUnasked(cmd.ErrOrStderr(), list)
			return writeKeys(cmd.OutOrStdout(), list, time.Now())
		},
	}.verb(cmd)
}

func writeKeys(w io.Writer, list status.MinionList, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "KEY\tMINION\tADDRESS\tLAST HEARD\tFINGERPRINT")
	for _, m := range list.Minions {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", printable.Clean(m.Key), printable.Clean(m.ID),
			cmp.Or(printable.Clean(m.Address), "-"), wordSince(m.Seen, now),
			cmp.Or(printable.Clean(m.Finger), "-"))
	}
	return tw.Flush()
}

// keyChoice selects the keys for a verb.
type keyChoice struct {
	verb, state, finger string
	names               []string
	dry                 bool
	yes                 *bool // the flag --yes; nil for a verb that does not ask
	unseenFor
}

// statesFor returns the states from which a verb takes keys.
func statesFor(verb string) []string {
	return map[string][]string{
		"accept": {"pending", "rejected"},
		"reject": {"pending", "accepted"},
		"delete": keyStates(),
	}[verb]
}

// chosen returns the selected keys of the list. If keys are selected by name, each name must have a
// key.
func (k keyChoice) chosen(list status.MinionList) (status.MinionList, error) {
	list.Minions = slices.DeleteFunc(list.Minions, func(m status.Minion) bool {
		return !slices.Contains(statesFor(k.verb), m.Key) || k.state != "" && m.Key != k.state ||
			k.finger != "" && !strings.EqualFold(m.Finger, k.finger) ||
			len(k.names) > 0 && !slices.Contains(k.names, m.ID)
	})

	for _, name := range k.names {
		if !slices.ContainsFunc(list.Minions, func(m status.Minion) bool { return m.ID == name }) {
			return list, fmt.Errorf("nothing was changed: no such key of %.70q; next: applianced keys", name)
		}
	}

	if len(list.Minions) == 0 {
		return list, fmt.Errorf("nothing was changed: there is no such key; next: applianced keys")
	}

	return list, nil
}

func keysAccept(f *flags) *cobra.Command {
	return keysMove(f, "accept", "Accept keys: their minions are served from now on", "pending and rejected")
}

func keysReject(f *flags) *cobra.Command {
	return keysMove(f, "reject", "Reject keys: their minions are refused", "pending and accepted")
}

// keysMove returns a verb of applianced that changes the state of keys. states is the part of the
// help text that names the states of the keys before the change.
func keysMove(f *flags, verb, short, states string) *cobra.Command {
	return keyVerb(f, &keyChoice{verb: verb}, &cobra.Command{
		Use:   verb + " [MINION...]",
		Short: short,
		Long: verb + " takes " + states + ` keys, by their full names or by a fingerprint. A name without a key
changes nothing at all; for patterns there is salt-key. --dry-run shows the keys
that are meant and changes nothing.`,
		Example: "  applianced keys " + verb + " web1\n" +
			"  applianced keys " + verb + " --fingerprint 3f:81:...",
	})
}

func keysDelete(f *flags) *cobra.Command {
	k := &keyChoice{verb: "delete"}
	cmd := keyVerb(f, k, &cobra.Command{
		Use:   "delete [MINION...]",
		Short: "Delete keys: who signs in under the name is new",
		Long: `delete takes keys of any state, by their full names, or all of a state. With
--state it leaves keys of other states alone that have the same name. A name without a key
changes nothing at all; for patterns there is salt-key. --dry-run shows the keys
that are meant and changes nothing. With --not-seen only keys whose minions
no node has heard for as long: accepted ones by any request, the others by a
sign-in with the key. Who is connected stays, and so does a key of whose minion
nothing is known, unless --never-seen is given. All nodes must answer.`,
		Example: `  applianced keys delete web1
  applianced keys delete --fingerprint 3f:81:...
  applianced keys delete --state denied --dry-run
  applianced keys delete --state denied --not-seen 30d --dry-run`,
	})

	stateFlag(cmd, &k.state)
	cmd.Flags().Var(ageValue{&k.since}, "not-seen",
		`only keys whose minions were not heard for so long: "30d", "12h"`)
	cmd.Flags().BoolVar(&k.never, "never-seen", false,
		"with --not-seen: those as well that were not heard since the records began")
	k.yes = yesFlag(cmd)

	return cmd
}

// keyVerb makes cmd a verb that changes the keys of the choice k, and returns cmd.
func keyVerb(f *flags, k *keyChoice, cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = f.keysIn(statesFor(k.verb)...)
	cmd.Flags().StringVar(&k.finger, "fingerprint", "", "only keys with this fingerprint")
	cmd.Flags().BoolVar(&k.dry, "dry-run", false, "show which keys are meant, no more")

	cmd.Args = func(_ *cobra.Command, args []string) error {
		if k.never && k.since == 0 {
			return fmt.Errorf("--never-seen goes with --not-seen")
		}
		if len(args) == 0 && k.state == "" && k.finger == "" {
			return fmt.Errorf("it takes names of minions, --fingerprint, or to delete keys --state")
		}
		return knownState(k.state)
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k.names = args
		return k.changeKeys(cmd, f.client())
	}

	return cmd
}

// findKeys asks all nodes for the keys and returns the selected ones.
func (k keyChoice) findKeys(cmd *cobra.Command, c *api.Client) (status.MinionList, error) {
	list, err := c.Minions(cmd.Context(), true)
	if err == nil {
		list, err = k.chosen(list)
	}

	if err != nil || k.since == 0 {
		return list, err
	}

	if err := k.checkKnown(list); err != nil {
		return list, err
	}

	meant, unknown := k.selectUnseen(list.Minions, time.Now())
	fmt.Fprint(cmd.ErrOrStderr(), k.noteUnknown(unknown, *list.Since))
	list.Minions = meant
	if len(meant) == 0 {
		return list, fmt.Errorf("nothing was changed: of these keys there is none whose minion was not seen " +
			"for that long")
	}

	return list, nil
}

func (k keyChoice) changeKeys(cmd *cobra.Command, c *api.Client) error {
	changes, effect := map[string][]string{k.state: k.names}, ""
	ids := k.names
	if k.dry || k.state != "" || k.finger != "" || k.since > 0 {
		list, err := k.findKeys(cmd, c)
		if err != nil {
			return err
		}
		if k.dry {
			if err := writeKeys(cmd.OutOrStdout(), list, time.Now()); err != nil || k.since == 0 {
				return err
			}
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%d keys are meant; nothing was changed\n", len(list.Minions))
			return err
		}

		changes, ids = map[string][]string{}, nil
		for _, m := range list.Minions {
			state := k.state
			if k.since > 0 { // another key of the same name, in another state, may be in use
				state = m.Key
			}
			changes[state], ids = append(changes[state], m.ID), append(ids, m.ID)
		}

		slices.Sort(ids)
		ids = slices.Compact(ids) // several keys may have the same name
		effect = fmt.Sprintf("%d ", len(list.Minions))
	}

	shown := printable.Clean(audit.Names(ids))
	effect = "Deleted are the " + effect + "keys of: " + shown +
		". Minions whose accepted key goes are strangers afterwards."
	if err := confirm(cmd, k.yes == nil || *k.yes, effect, "yes"); err != nil {
		return err
	}

	for _, state := range slices.Sorted(maps.Keys(changes)) {
		slices.Sort(changes[state])
		for some := range slices.Chunk(slices.Compact(changes[state]), api.MaxKeys) {
			if err := c.ChangeKeys(cmd.Context(),
				api.KeyChange{Verb: k.verb, IDs: some, State: state, Finger: k.finger}); err != nil {
				return err
			}
		}
	}

	participle := map[string]string{"accept": "accepted", "reject": "rejected", "delete": "deleted"}[k.verb]
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", participle, shown)
	return err
}
