package acl

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// Keywords in external_auth for rights that do not concern functions. Salt has no such keywords; in
// Salt every logged-in user may read all events and use the web hook.
const (
	ReadEvents = "@events" // permits reading all events of the master
	FireHooks  = "@hook"   // permits firing events by the web hook of salt-api
)

// Grants reports whether permissions permit at least one action. A user whose permissions permit
// nothing cannot log in.
func Grants(perms []any) bool { return slices.ContainsFunc(perms, grantsSomething) }

func grantsSomething(perm any) bool {
	switch p := perm.(type) {
	case string:
		return true
	case *value.Map: // Publish ignores maps with more than one key
		if p.Len() != 1 {
			return false
		}
		for _, functions := range p.All() {
			list, isList := functions.([]any)
			return functions != nil && functions != "" && (!isList || len(list) > 0)
		}
	}
	return false
}

// MayReadEvents reports whether permissions include the right to read all events of the master.
func MayReadEvents(perms []any) bool {
	return slices.Contains(perms, any(ReadEvents)) || everything(perms)
}

// MayFireHooks reports whether permissions include the right to fire events by the web hook.
func MayFireHooks(perms []any) bool {
	return slices.Contains(perms, any(FireHooks)) || everything(perms)
}

// MayEverything reports whether permissions grant all functions on all minions, all runners and all
// wheel functions. Whoever may do all that may also run each saved job.
func MayEverything(perms []any) bool { return everything(perms) }

// everything reports whether permissions grant all functions on all minions, all runners and all
// wheel functions, in the usual spelling. An expression that merely matches all names does not
// count.
func everything(perms []any) bool {
	var functions, runners, wheel bool
	for _, perm := range perms {
		switch p := perm.(type) {
		case string:
			functions = functions || isEverything(p)
			runners = runners || p == "@runner" || p == "@runners"
			wheel = wheel || p == "@wheel" || p == "@wheels"
		case *value.Map:
			if p.Len() != 1 {
				continue
			}
			functions = functions || holdsEverything(p.Value("*"))
			runners = runners || holdsEverything(p.Value("@runner")) || holdsEverything(p.Value("@runners"))
			wheel = wheel || holdsEverything(p.Value("@wheel")) || holdsEverything(p.Value("@wheels"))
		}
	}

	return functions && runners && wheel
}

// holdsEverything reports whether functions is, or contains, the expression in the spelling that
// means all functions.
func holdsEverything(functions any) bool {
	list, ok := functions.([]any)
	if !ok {
		list = []any{functions}
	}
	return slices.ContainsFunc(list, func(f any) bool {
		expr, isText := f.(string)
		return isText && isEverything(expr)
	})
}

func isEverything(expr string) bool {
	expr = strings.TrimSuffix(strings.TrimPrefix(expr, "^"), "$")
	return expr == ".*" || expr == ".+"
}
