package acl

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// Words in external_auth for rights other than functions. Salt has no such words: there every
// logged-in user reads all events and fires hooks.
const (
	ReadEvents = "@events" // allows reading all events of the master
	FireHooks  = "@hook"   // allows firing events by the web hook of salt-api
)

// Grants reports whether permissions permit anything at all. A user without any gets no log-in.
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

// MayReadEvents reports whether permissions allow reading all events of the master.
func MayReadEvents(perms []any) bool {
	return slices.Contains(perms, any(ReadEvents)) || everything(perms)
}

// MayFireHooks reports whether permissions allow firing events by the web hook.
func MayFireHooks(perms []any) bool {
	return slices.Contains(perms, any(FireHooks)) || everything(perms)
}

// everything reports whether permissions grant all functions on all minions, all runners and all
// wheel functions, in the usual spelling. It does not count an expression that only happens to match
// all names.
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

// holdsEverything reports whether an expression, or one in a list, has the spelling that means all
// functions.
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
