package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	op "saltern/cmd/salt/optparse"
	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/client"
	"saltern/master/keys"
	glob "saltern/master/pattern"
	"saltern/master/value"
)

func (e *env) keyParser() *op.Parser {
	flag := func(help string, names ...string) op.Option {
		return op.Option{Names: names, Default: false, Help: help}
	}
	text := func(def any, help string, names ...string) op.Option {
		return op.Option{Names: names, Kind: op.Text, Default: def, Help: help}
	}
	p := e.parser("salt-key", "[options]", "Show, accept, reject and delete the keys of minions.")
	p.Options = append(p.Options,
		text(nil, "Run as this user.", "-u", "--user"),
		flag("Print nothing that is not asked for.", "-q", "--quiet"),
		flag("Answer all questions with yes.", "-y", "--yes"),
		text(true,
			"Whether the master's session key changes when a key is deleted or rejected; without that the minion stays connected. Default: %default.",
			"--rotate-aes-key"),
		text(false, "Whether cached data of minions whose key is deleted is kept. Default: %default.",
			"--preserve-minions"),
	)

	auth := eauthOptions()
	auth.Options[0].Names = auth.Options[0].Names[1:] // drop -a of --auth: for salt-key -a is --accept
	list := text("", "Show the keys of one kind: acc, pre (or un), rej, den or all.", "-l", "--list")
	list.Metavar = "ARG"
	p.Groups = []op.Group{
		logOptions("", "key_logfile"), outputOptions("salt-key"),
		{Title: "Actions", Options: []op.Option{
			list,
			flag("Show all keys.", "-L", "--list-all"),
			text("", "Accept the pending keys that match a name or a shell pattern.", "-a", "--accept"),
			flag("Accept all pending keys.", "-A", "--accept-all"),
			text("", "Reject the pending keys that match a name or a shell pattern.", "-r", "--reject"),
			flag("Reject all pending keys.", "-R", "--reject-all"),
			flag("Take accepted keys when rejecting and rejected ones when accepting.", "--include-all"),
			flag("Take accepted keys as well when rejecting.", "--include-accepted"),
			flag("Take rejected keys as well when accepting.", "--include-rejected"),
			flag("Take denied keys as well when accepting or rejecting.", "--include-denied"),
			text("", "Show a public key.", "-p", "--print"),
			flag("Show all public keys.", "-P", "--print-all"),
			text("", "Delete the keys that match a name or a shell pattern.", "-d", "--delete"),
			flag("Delete all keys.", "-D", "--delete-all"),
			text("", "When deleting, only keys of one kind: acc, pre (or un), rej or den.", "--only-state"),
			text("", "When accepting, rejecting or deleting, only keys with this fingerprint.", "--only-fingerprint"),
			text("", "Show the fingerprint of a key.", "-f", "--finger"),
			flag("Show all fingerprints.", "-F", "--finger-all"),
		}},
		{Title: "Key Generation Options", Options: []op.Option{
			text("", "Make a pair of keys of this name.", "--gen-keys"),
			text(".", "Where to put it. Default: '%default'.", "--gen-keys-dir"),
			{
				Names:   []string{"--keysize"},
				Kind:    op.Int,
				Default: 2048,
				Help:    "Bits of the key, 2048 or more. Default: %default.",
			},
			flag("Sign the master's public key, for minions that verify it.", "--gen-signature"),
			text("", "The private key to sign with.", "--priv"),
			text("", "The directory for the signature.", "--signature-path"),
			text("", "The public key to sign.", "--pub"),
			flag("Make the signing keys if there are none.", "--auto-create"),
		}},
		auth,
	}

	return p
}

func (e *env) saltKey(ctx context.Context, words []string) int {
	p := e.keyParser()
	t, code := e.startTool(p, words, false)
	if t == nil {
		return code
	}
	k := &keyCall{tool: t}
	return t.exitCode(k.execute(ctx))
}

// keyCall is one call of salt-key (salt/key.py KeyCLI).
type keyCall struct {
	*tool
	store *keys.Store
	dir   string
	c     *client.Client
	actor audit.Actor // the calling user, recorded before the switch to the master's account
}

// keyDirs lists the states of keys in the order in which salt-key prints them.
var keyDirs = []keys.State{keys.Pending, keys.Rejected, keys.Accepted, keys.Denied}

// selection is a set of keys by state.
type selection map[keys.State][]string

func (s selection) toMap() *value.Map {
	m := value.NewMap()
	for _, st := range keyDirs {
		ids, ok := s[st]
		if !ok {
			continue
		}
		m.Set(st.Dir(), value.List(ids))
	}
	return m
}

func (k *keyCall) checkOptions() error {
	if n := k.values.Int("keysize"); k.values.Explicit("keysize") && (n < 2048 || n > 32768) {
		if n < 2048 {
			return op.Error("The minimum value for keysize is 2048")
		}
		return op.Error("The maximum value for keysize is 32768")
	}

	if l := k.values.Str("list"); l != "" {
		known := false
		for _, s := range []string{"acc", "pre", "un", "rej", "den", "all"} {
			known = known || strings.HasPrefix(l, s)
		}
		if !known {
			return op.Error("'" + l + "' is not a valid argument to '--list'")
		}
	}

	if err := k.checkOnly(); err != nil {
		return err
	}
	if k.values.Bool("delete_all") && len(k.args) > 0 {
		fmt.Fprintln(k.stderr, "Error: Delete all takes no arguments. Use -d to delete specified keys")
		return exit(exitUsage)
	}

	if system := k.values.Str("eauth"); system != "" {
		if err := k.knownSystem(system); err != nil {
			return err
		}
		if err := k.checkRemote(); err != nil {
			return err
		}
	}

	return k.emptyOutputFile()
}

func (k *keyCall) execute(ctx context.Context) error {
	if err := k.checkOptions(); err != nil {
		return err
	}

	if k.values.Str("eauth") != "" {
		k.openKeyLogFile(false)
		k.c = k.client(k.cfg.Timeout)
		defer k.c.Close()
		remote, err := k.becomeRemote(ctx)
		if err != nil {
			return err
		}
		return k.perform(ctx, remote)
	}

	k.actor = audit.Self(k.getenv)
	if err := k.becomeUser(k.values.Str("user")); err != nil {
		return err
	}
	k.openKeyLogFile(true)

	k.dir = k.cfg.PKIDir
	if k.cfg.ClusterID != "" && k.cfg.ClusterPKIDir != "" {
		k.dir = k.cfg.ClusterPKIDir
	}

	if name := k.values.Str("gen_keys"); name != "" {
		return k.genKeys(name)
	}
	if k.values.Bool("gen_signature") {
		return k.genSignature()
	}

	var err error
	answered := k.warnWhenSlow()
	k.store, err = keys.Open(k.dir,
		keys.Config{
			Create:     k.cfg.ClusterID == "",
			Permissive: k.cfg.PermissivePKIAccess,
			NoNotify:   true,
			Logger:     k.log,
		})

	answered()
	if err != nil {
		return keys.Advise(err)
	}

	k.c = k.client(k.cfg.Timeout)
	defer k.c.Close()
	return k.perform(ctx, k)
}

// keyActions are the actions of salt-key on keys. One implementation works in the folder of the
// keys, the other asks the master.
type keyActions interface {
	list(ctx context.Context, kind string) error
	show(ctx context.Context, pattern string) error
	fingerprints(ctx context.Context, pattern string) error
	change(ctx context.Context, verb, pattern string, from []keys.State) error
}

// perform performs the action that the command line names.
func (k *keyCall) perform(ctx context.Context, a keyActions) error {
	v := k.values
	pick := func(name string) (string, bool) {
		if v.Bool(name + "_all") {
			return "*", true
		}
		s := v.Str(name)
		return s, s != ""
	}

	if l := v.Str("list"); l != "" {
		return a.list(ctx, l)
	}
	if v.Bool("list_all") {
		return a.list(ctx, "all")
	}

	if m, ok := pick("print"); ok {
		return a.show(ctx, m)
	}

	if m, ok := pick("accept"); ok {
		return a.change(ctx, "accept", m,
			selectionOf(keys.Rejected, v.Bool("include_all") || v.Bool("include_rejected"), v.Bool("include_denied")))
	}

	if m, ok := pick("reject"); ok {
		return a.change(ctx, "reject", m,
			selectionOf(keys.Accepted, v.Bool("include_all") || v.Bool("include_accepted"), v.Bool("include_denied")))
	}

	if m, ok := pick("delete"); ok {
		return a.change(ctx, "delete", m, statesOf(v.Str("only_state")))
	}

	if m, ok := pick("finger"); ok {
		return a.fingerprints(ctx, m)
	}

	return a.list(ctx, "all")
}

// selectionOf returns the states of the keys to which accept or reject applies.
func selectionOf(extra keys.State, withExtra, withDenied bool) []keys.State {
	from := []keys.State{keys.Pending}
	if withExtra {
		from = append(from, extra)
	}
	if withDenied {
		from = append(from, keys.Denied)
	}
	return from
}

func (k *keyCall) displayKeys(v any) error { return k.display(v, "key", 0, k.outputOptions()) }

func (k *keyCall) list(_ context.Context, kind string) error {
	sel := selection{}
	for _, st := range statesOf(kind) {
		sel[st] = k.sortedIDs(st)
	}
	return k.displayKeys(sel.toMap())
}

// sortedIDs returns the ids of the keys in a state, sorted without regard to case.
func (k *keyCall) sortedIDs(st keys.State) []string {
	ids := slices.Clone(k.store.List(st))
	slices.SortStableFunc(ids, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return ids
}

// matchGlobs returns the keys whose ids match one of the comma-separated shell patterns
// (salt/key.py glob_match).
func (k *keyCall) matchGlobs(pattern string) selection {
	var globs []string
	for _, p := range strings.Split(pattern, ",") {
		if p != "" {
			globs = append(globs, p)
		}
	}

	sel := selection{}
	for _, st := range keyDirs {
		for _, id := range k.sortedIDs(st) {
			for _, g := range globs {
				if glob.Glob(g, id) {
					sel[st] = append(sel[st], id)
					break
				}
			}
		}
	}

	return sel
}

// show prints the matching keys.
func (k *keyCall) show(_ context.Context, pattern string) error {
	m, err := describeKeys(k.matchGlobs(pattern), func(st keys.State, id string) (any, error) {
		return k.keyPEM(st, id)
	})
	if err != nil {
		return err
	}
	return k.displayKeys(m)
}

func describeKeys(sel selection, describe func(keys.State, string) (any, error)) (*value.Map, error) {
	m := value.NewMap()
	for _, st := range keyDirs {
		if len(sel[st]) == 0 {
			continue
		}

		inner := value.NewMap()
		for _, id := range sel[st] {
			x, err := describe(st, id)
			if err != nil {
				return nil, fmt.Errorf("key of %s: %w", id, err)
			}
			inner.Set(id, x)
		}

		m.Set(st.Dir(), inner)
	}

	return m, nil
}

func (k *keyCall) keyPEM(st keys.State, id string) (string, error) {
	e, ok := k.store.Lookup(id)
	if st == keys.Denied {
		e, ok = k.store.Denied(id)
	}
	if !ok {
		return "", os.ErrNotExist
	}
	return e.PEM, nil
}

func (k *keyCall) fingerprints(_ context.Context, pattern string) error {
	hash := k.cfg.HashType
	sel := k.matchGlobs(pattern)
	m, err := describeKeys(sel, func(st keys.State, id string) (any, error) {
		pem, err := k.keyPEM(st, id)
		if err != nil {
			return nil, err
		}
		return keys.Fingerprint(pem, hash)
	})
	if err != nil {
		return err
	}

	local, err := k.localFingers(pattern, hash)
	if err != nil {
		return err
	}

	if local.Len() > 0 {
		m.Set("local", local)
	}

	return k.displayKeys(m)
}

// localFingers returns the fingerprints of the master's own key files.
func (k *keyCall) localFingers(pattern, hash string) (*value.Map, error) {
	m := value.NewMap()
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return nil, err
	}

	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		if ext != ".pem" && ext != ".pub" || !e.Type().IsRegular() {
			continue
		}

		for _, g := range strings.Split(pattern, ",") {
			if !glob.Glob(g, name) {
				continue
			}

			b, err := os.ReadFile(filepath.Join(k.dir, name))
			if err != nil {
				return nil, err
			}

			f, err := keys.Fingerprint(string(b), hash)
			if err != nil {
				return nil, fmt.Errorf("fingerprint of %s: %w", name, err)
			}

			m.Set(name, f)
			break
		}
	}

	return m, nil
}

// approve prints the keys that are going to be changed, and asks the user whether to change them.
func (k *keyCall) approve(verb string, sel selection) (bool, error) {
	k.println("The following keys are going to be " + pastTense(verb) + ":")
	if err := k.displayKeys(sel.toMap()); err != nil {
		return false, err
	}
	return k.confirm(verb)
}

// confirm asks the user whether to continue, and returns the answer.
func (k *keyCall) confirm(verb string) (bool, error) {
	if k.values.Bool("yes") {
		return true, nil
	}

	question, def := "Proceed? [n/Y] ", "y"
	if verb == "delete" {
		question, def = "Proceed? [N/y] ", "n"
	}

	answer, err := k.askUser(question)
	switch {
	case errors.Is(err, io.EOF):
		fmt.Fprintln(k.stdout)
		k.log.Error("EOF when reading a line")
		return false, exit(exitGeneric)
	case err != nil:
		return false, err
	case answer == "":
		answer = def
	}

	return strings.HasPrefix(strings.ToLower(answer), "y"), nil
}

// pastTense returns the participle of a verb: accept → accepted, delete → deleted.
func pastTense(verb string) string { return strings.TrimSuffix(verb, "e") + "ed" }

func (k *keyCall) noMatch(pattern string, from []keys.State) {
	words := []string{"unaccepted"}
	for _, st := range []keys.State{keys.Accepted, keys.Rejected, keys.Denied} {
		if slices.Contains(from, st) {
			words = append(words, st.String())
		}
	}
	text := words[0]
	if n := len(words) - 1; n > 0 {
		text = strings.Join(words[:n], ", ") + " or " + words[n]
	}
	k.println("The key glob '" + printable.Line(pattern) + "' does not match any " + text + " keys.")
}
