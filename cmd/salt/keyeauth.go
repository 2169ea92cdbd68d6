package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	op "saltern/cmd/salt/optparse"
	"saltern/internal/printable"
	"saltern/master/client"
	"saltern/master/keys"
	"saltern/master/value"
)

// With external authentication, salt-key reads and changes no key itself. It asks the master to do
// so, by the wheel functions key.* for which external_auth must give the user rights (salt/key.py
// KeyCLI._run_cmd). So it needs neither root nor the master's account.

// remoteKeys are the actions of a call of salt-key with external authentication.
type remoteKeys struct {
	*keyCall
	login *value.Map // credentials or a token
}

// checkRemote returns an error if an option is given that the wheel functions do not have.
func (k *keyCall) checkRemote() error {
	for _, o := range []struct{ name, flag string }{
		{"only_fingerprint", "--only-fingerprint"},
		{"rotate_aes_key", "--rotate-aes-key"},
		{"preserve_minions", "--preserve-minions"},
		{"gen_keys", "--gen-keys"},
		{"gen_signature", "--gen-signature"},
	} {
		if k.values.Explicit(o.name) {
			return op.Error(o.flag + " does not go with --eauth")
		}
	}
	return nil
}

// becomeRemote logs in at the master and returns the actions that the master performs.
func (k *keyCall) becomeRemote(ctx context.Context) (*remoteKeys, error) {
	token, err := k.savedToken()
	if err != nil {
		return nil, err
	}
	if token != "" {
		return &remoteKeys{k, value.NewMap("token", token)}, nil
	}

	login, err := k.credentials(ctx, k.c)
	if err != nil {
		return nil, err
	}

	return &remoteKeys{k, login}, nil
}

// call calls a wheel function and returns the function's result. If the master refuses the call, call
// prints why.
func (r *remoteKeys) call(ctx context.Context, fun string, named *value.Map) (*value.Map, error) {
	ret, err := r.c.Wheel(ctx, fun, named, r.login)
	refusal, known := errors.AsType[*client.Error](err)
	if known && (refusal.Kind == client.Authentication || refusal.Kind == client.Authorization) {
		if err := r.showRefusal(refusal.Message); err != nil {
			return nil, err
		}
		return nil, exit(exitGeneric)
	}
	if err != nil {
		return nil, err
	}

	m, ok := ret.(*value.Map)
	if !ok {
		return nil, fmt.Errorf("the master answers %s with %s", fun, printable.Line(value.StrMax(ret, 200)))
	}

	return m, nil
}

// showRefusal prints why the master refused a call, as a result: on standard output and in the form
// of --out, as Salt does (salt/key.py KeyCLI.run).
func (r *remoteKeys) showRefusal(why string) error {
	if r.values.Bool("quiet") {
		return nil
	}
	return r.display(printable.Text(why), "nested", 0, r.outputOptions())
}

func (r *remoteKeys) list(ctx context.Context, kind string) error {
	m, err := r.call(ctx, "key.list", value.NewMap("match", kind))
	if err != nil {
		return err
	}
	return r.displayKeys(selectionIn(m).toMap())
}

func (r *remoteKeys) show(ctx context.Context, pattern string) error {
	return r.describe(ctx, "key.key_str", pattern)
}

func (r *remoteKeys) fingerprints(ctx context.Context, pattern string) error {
	return r.describe(ctx, "key.finger", pattern)
}

// describe prints the answer of a wheel function for each matching key.
func (r *remoteKeys) describe(ctx context.Context, fun, pattern string) error {
	m, err := r.call(ctx, fun, value.NewMap("match", pattern))
	if err != nil {
		return err
	}
	return r.displayKeys(m)
}

// change accepts, rejects or deletes the matching keys in the states from, after asking the user.
// If from is empty, it considers all states.
func (r *remoteKeys) change(ctx context.Context, verb, pattern string, from []keys.State) error {
	m, err := r.call(ctx, "key.name_match", value.NewMap("match", pattern))
	if err != nil {
		return err
	}

	sel := selectionIn(m)
	maps.DeleteFunc(sel, func(st keys.State, ids []string) bool {
		return len(ids) == 0 || from != nil && !slices.Contains(from, st)
	})
	if len(sel) == 0 {
		r.noMatch(pattern, from)
		return nil
	}

	if yes, err := r.approve(verb, sel); err != nil || !yes {
		return err
	}

	// The selection has only keys in states that the user named.
	named := value.NewMap("match", sel.toMap())
	switch verb {
	case "accept":
		named.Set("include_rejected", true)
		named.Set("include_denied", true)
	case "reject":
		named.Set("include_accepted", true)
		named.Set("include_denied", true)
	}

	if _, err := r.call(ctx, "key."+verb+"_dict", named); err != nil {
		return err
	}

	for _, st := range keyDirs {
		for _, id := range sel[st] {
			r.println("Key for minion " + printable.Line(id) + " " + pastTense(verb) + ".")
		}
	}

	return nil
}

// selectionIn returns the ids in an answer of the master, by state.
func selectionIn(m *value.Map) selection {
	sel := selection{}
	for _, st := range keyDirs {
		list, ok := m.Value(st.Dir()).([]any)
		if !ok {
			continue
		}

		sel[st] = []string{}
		for _, id := range list {
			sel[st] = append(sel[st], value.Str(id))
		}
	}

	return sel
}
