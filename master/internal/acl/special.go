package acl

import (
	"slices"
	"strconv"
	"strings"

	"saltern/master/pattern"
	"saltern/master/value"
)

// pythonText returns an argument as Python's str() prints it, as far as permissions depend on it.
func pythonText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		if v {
			return "True"
		}
		return "False"
	case nil:
		return "None"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}

	return ""
}

// IsWellFormed reports whether the name of a runner or wheel function has the form MODULE.FUNCTION.
func IsWellFormed(fun string) bool {
	mod, f, ok := strings.Cut(fun, ".")
	return ok && mod != "" && f != "" && !strings.Contains(f, ".")
}

// Special reports whether the permissions allow a call of a runner or wheel function (spec_check).
// form is "runner" or "wheel". A permission is "@runner" for all runners, "@jobs" for all functions
// of the module jobs, or a map {"@jobs": functions} or {"@runner": [...]}. Functions are
// expressions that must match the whole name (in Salt: its beginning). Conditions are checked
// against args and kwargs, which must be the arguments of the call.
func Special(perms []any, form, fun string, args []any, kwargs *value.Map) bool {
	if !IsWellFormed(fun) {
		return false
	}

	mod, name, _ := strings.Cut(fun, ".")
	// __kwarg__ is always set, so that a map in args cannot pose as the map of named arguments.
	kw := value.NewMap("__kwarg__", true)
	kw.Update(kwargs)
	kw.Set("__kwarg__", true)
	all := append(slices.Clone(args), kw)
	for _, p := range perms {
		switch p := p.(type) {
		case string:
			if strings.HasPrefix(p, "@") && (p == "@"+mod || p == "@"+form || p == "@"+form+"s") {
				return true
			}
		case *value.Map:
			if p.Len() != 1 {
				continue
			}

			for k, v := range p.All() {
				key, _ := k.(string)
				if key == "@"+mod && funAllowed(v, name, all, pattern.Whole) {
					return true
				}
				if (key == "@"+form || key == "@"+form+"s") && funAllowed(v, fun, all, pattern.Whole) {
					return true
				}
			}
		}
	}

	return false
}

// Peer returns the expressions for functions that the option peer (or peer_run) grants a minion.
// The option maps expressions for minion ids to lists of expressions for functions.
func Peer(option *value.Map, id string) (out []any) {
	for k, v := range option.All() {
		expr, _ := k.(string)
		if l, ok := v.([]any); ok && expr != "" && pattern.Match(expr, id) {
			out = append(out, l...)
		}
	}
	return out
}

// Run reports whether a minion may call a runner: one of the granted expressions must match the
// runner's whole name. In Salt it needs to match only the beginning (minion_runner), so that a
// grant of manage.up also grants manage.upgrade.
func Run(perms []any, fun string) bool {
	for _, p := range perms {
		if expr, ok := p.(string); ok && expr != "" && pattern.Whole(expr, fun) {
			return true
		}
	}
	return false
}
