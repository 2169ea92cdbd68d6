package main

import (
	"maps"
	"slices"
	"strings"

	op "saltern/cmd/salt/optparse"
	"saltern/master/keys"
)

// The options --only-…, which Salt does not have, restrict which keys are changed. Salt's salt-key
// takes only names, and one name may have several keys: an accepted one and denied ones.

// statesOf returns the key states for kind, an argument of the command line such as "acc", or none
// for "".
func statesOf(kind string) []keys.State {
	if len(kind) < 2 {
		return nil
	}
	return map[string][]keys.State{"ac": {keys.Accepted}, "pr": {keys.Pending}, "un": {keys.Pending},
		"re": {keys.Rejected}, "de": {keys.Denied}, "al": keyDirs}[kind[:2]]
}

// checkOnly returns an error if the options of --only-… are used where they have no effect.
func (k *keyCall) checkOnly() error {
	asked := func(names ...string) bool {
		return slices.ContainsFunc(names,
			func(n string) bool { return k.values.Str(n) != "" || k.values.Bool(n+"_all") })
	}

	state := k.values.Str("only_state")
	switch {
	case state != "" && !asked("delete"):
		return op.Error("--only-state goes with --delete or --delete-all")
	case state != "" && len(statesOf(state)) != 1:
		return op.Error("'" + state + "' is not a valid argument to '--only-state'")
	case k.values.Str("only_fingerprint") != "" && !asked("accept", "reject", "delete"):
		return op.Error("--only-fingerprint goes with --accept, --reject or --delete")
	}

	return nil
}

// onlyFingerprint removes from sel the keys whose fingerprint is not that of the option
// --only-fingerprint.
func (k *keyCall) onlyFingerprint(sel selection) {
	want := k.values.Str("only_fingerprint")
	if want == "" {
		return
	}
	for st, ids := range sel {
		sel[st] = slices.DeleteFunc(ids, func(id string) bool { return !strings.EqualFold(k.fingerOf(st, id), want) })
	}
	maps.DeleteFunc(sel, func(_ keys.State, ids []string) bool { return len(ids) == 0 })
}
