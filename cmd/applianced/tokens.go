package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// tokensCommand returns the verbs about log-ins through the API, the console and salt -T.
func tokensCommand(f *flags) *cobra.Command {
	cmd := tokensList(f)
	cmd.Use = "tokens"
	cmd.Short = "List who is logged in to the API and the console, and end log-ins"
	cmd.Long = `tokens lists the tokens that the masters have given out: by the API, the console and
salt -T. They hold on all nodes. The name in the first column is made from the token and
is none: it lets nobody in. ADDRESS is from where the log-in came, and NODE where it
was; "-" is what is not known. Times are UTC. At most 500 are shown, the newest.`

	cmd.Example = `  applianced tokens
  applianced tokens revoke 4f1c2a99d0b37e58
  applianced tokens revoke --user anna
  applianced tokens --json | jq -r '.tokens[] | select(.user == "anna") | .name'`

	list := tokensList(f)
	list.Use, list.Short = "list", "List who is logged in"
	list.Long = "list does what applianced tokens does without a verb."
	list.Example = "  applianced tokens list --user anna"
	cmd.AddCommand(list, tokensRevoke(f))

	return cmd
}

func tokensList(f *flags) *cobra.Command {
	var user string
	cmd := &cobra.Command{Args: cobra.NoArgs}
	cmd.Flags().StringVar(&user, "user", "", "only those of this user")
	return answering[control.Tokens]{
		json: "print the list for machines",
		ask: func(cmd *cobra.Command, _ []string) (control.Tokens, error) {
			t, err := f.client().Tokens(cmd.Context())
			t.Tokens = slices.DeleteFunc(t.Tokens, func(k control.Token) bool { return user != "" && k.User != user })
			return t, err
		},
		document: func(t control.Tokens) any {
			return struct {
				Schema int `json:"schema"`
				control.Tokens
			}{status.Schema, t}
		},
		print: func(cmd *cobra.Command, t control.Tokens) error {
			if t.More > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d older log-ins are not listed\n", t.More)
			}

			return writeTokens(cmd.OutOrStdout(), t)
		},
	}.verb(cmd)
}

func writeTokens(w io.Writer, t control.Tokens) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tUSER\tSYSTEM\tSINCE\tUNTIL\tADDRESS\tNODE")
	for _, k := range t.Tokens {
		row := []any{k.Name, k.User, k.Eauth, k.Start.UTC().Format(tokenTime),
			k.Until.UTC().Format(tokenTime), cmp.Or(k.From, "-"), cmp.Or(k.Node, "-")}
		for i, v := range row {
			row[i] = printable.Clean(v.(string))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row...)
	}
	return tw.Flush()
}

// tokenTime is the format in which times of log-ins are printed.
const tokenTime = "2006-01-02 15:04:05"

func tokensRevoke(f *flags) *cobra.Command {
	var r control.Revocation
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "revoke [NAME]",
		Short:             "End a log-in, or all of a user",
		ValidArgsFunction: f.tokenNames,
		Long: `revoke takes tokens back, on all nodes: a log-in by the name that applianced tokens
shows, or all of a user. Commands with such a token are refused at once on this node and a
second later on the others; the console and /events end within seconds. Jobs that were
started go on. Whoever knows a password logs in again: take his rights from external_auth
as well.

Exit codes: 0 ended, 1 there was none or it failed, 64 wrong usage.`,
		Example: "  applianced tokens revoke 4f1c2a99d0b37e58\n  applianced tokens revoke --user anna " +
			"--eauth ldap --yes",
	}

	cmd.Flags().StringVar(&r.User, "user", "", "all log-ins of this user")
	cmd.Flags().StringVar(&r.Eauth, "eauth", "", "with --user: only those by this system of external_auth")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print how many ended, for machines")
	yes := yesFlag(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 || (len(args) == 1) == (r.User != ""):
			return fmt.Errorf("it takes the name of one log-in, or --user")
		case r.Eauth != "" && r.User == "":
			return fmt.Errorf("--eauth goes with --user")
		}
		return nil
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		whose := "all log-ins of " + printable.Clean(r.User)
		if len(args) == 1 {
			r.Name = args[0]
			whose = "the log-in " + printable.Clean(r.Name)
		}

		if err := r.Check(); err != nil {
			return misused("revoke: %w", err)
		}

		if err := confirm(cmd, *yes, "Ended is "+whose+", on all nodes.", "yes"); err != nil {
			return err
		}

		revoked, err := f.client().RevokeTokens(cmd.Context(), r)
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(revoked)
		}

		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ended: %d\n", revoked.Count)
		return err
	}

	return cmd
}

// tokenNames completes the names of log-ins.
func (f *flags) tokenNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTakes)
	defer cancel()
	var names []cobra.Completion
	if t, err := f.client().Tokens(ctx); err == nil && len(args) == 0 {
		for _, k := range t.Tokens {
			names = append(names,
				cobra.CompletionWithDesc(printable.Clean(k.Name), printable.Clean(k.User+" by "+k.Eauth)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
