// Package acl decides what an authenticated caller may do: users of this host by publisher_acl,
// callers of external systems by external_auth, minions by peer and peer_run. It does no I/O: its
// callers pass functions that resolve targets.
//
// Sources: salt/acl/__init__.py, salt/utils/minions.py (auth_check, spec_check, fill_auth_list),
// salt/master.py and salt/daemons/masterapi.py (peer, peer_run).
package acl

import (
	"regexp"
	"slices"
	"strings"

	"saltern/master/pattern"
	"saltern/master/value"
)

// FillAuthList returns the permissions that one section of external_auth grants to the user name
// and to his groups. A key that ends in % is the name of a group. The key "*" applies to everybody,
// but only if no other key applies, or if permissive is set. Every other key is a plain name, not a
// pattern, because the pattern "john.doe" would also match "johnXdoe". (Salt uses the name as a
// pattern for the keys, so that a user who signs in as "*" matches every key. For plain names the
// result is the same.)
func FillAuthList(section *value.Map, name string, groups []string, permissive bool) (out []any) {
	matched := false
	for k, v := range section.All() {
		key, _ := k.(string)
		grants, _ := v.([]any)
		switch group, isGroup := strings.CutSuffix(key, "%"); {
		case key == "*":
			if permissive {
				out = append(out, grants...)
			}
		case isGroup:
			for _, g := range groups {
				if g == strings.TrimRight(group, "%") {
					out = append(out, grants...)
					break
				}
			}
		case key == name:
			matched = true
			out = append(out, grants...)
		}
	}

	if !permissive && !matched {
		out = append(out, section.List("*")...)
	}

	return out
}

// Named returns the permissions that a section of external_auth grants a user by the key with his
// own name. It never returns permissions of groups, of everybody or of options, even if the user's
// name looks like one of their keys.
func Named(section *value.Map, name string) []any {
	if name == "*" || strings.HasSuffix(name, "%") || strings.HasPrefix(name, "^") {
		return nil
	}
	return section.List(name)
}

// Blacklist is the option publisher_acl_blacklist.
type Blacklist struct{ Users, Modules []string }

// Refuses reports whether the user, or one of the functions, is blacklisted.
func (b Blacklist) Refuses(user string, funs []string) bool {
	return listed(b.Users, user) || anyListed(b.Modules, funs)
}

func listed(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return pattern.Expr(s, e) })
}

func anyListed(list, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return listed(list, v) })
}

// Request is a job that a caller wants to publish.
type Request struct {
	// Funs lists the job's functions, and Args lists their argument lists in the same order. A job
	// of one function has one element in each. The last element of an argument list may be the map
	// of named arguments.
	Funs []string
	Args []any
	// Minions lists the ids that the target selects.
	Minions []string
}

// Resolver returns the ids that a compound target selects.
type Resolver func(compound string) ([]string, error)

// Publish reports whether the permissions allow a job (auth_check). A permission that is a text
// permits functions on all minions. A permission that is a map {target: functions} permits the
// functions if the target includes every minion that the job selects. Functions in always need no
// permission. Every function of a compound job must be permitted; in Salt one permitted function is
// enough. Expressions match from the beginning of a name, as in Salt: "test" permits all functions
// of the module test.
func Publish(perms []any, r Request, resolve Resolver, always ...string) bool {
	if len(r.Funs) == 0 {
		return false
	}
	for i, fun := range r.Funs {
		var args []any
		if i < len(r.Args) {
			args, _ = r.Args[i].([]any)
		}
		if !slices.Contains(always, fun) && !permitted(perms, fun, args, r.Minions, resolve) {
			return false
		}
	}
	return true
}

func permitted(perms []any, fun string, args []any, minions []string, resolve Resolver) bool {
	for _, p := range perms {
		switch p := p.(type) {
		case string:
			if pattern.Match(p, fun) {
				return true
			}
		case *value.Map:
			if p.Len() != 1 {
				continue
			}

			for k, v := range p.All() {
				target, _ := k.(string)
				if allInTarget(minions, target, resolve) && funAllowed(v, fun, args, pattern.Match) {
					return true
				}
			}
		}
	}

	return false
}

// allInTarget reports whether a target includes all minions. The target "*" always does. For any
// other target it returns false if minions is empty (CVE-2022-22941).
func allInTarget(minions []string, target string, resolve Resolver) bool {
	if target == "*" {
		return true
	}
	if len(minions) == 0 || target == "" || strings.HasPrefix(target, "@") {
		return false
	}

	allowed, err := resolve(target)
	if err != nil {
		return false
	}

	set := make(map[string]bool, len(allowed))
	for _, id := range allowed {
		set[id] = true
	}

	return !slices.ContainsFunc(minions, func(id string) bool { return !set[id] })
}

// funAllowed reports whether valid, the value of a map entry, permits fun. valid is a text, or a
// list whose elements are texts or maps {function: conditions on its arguments}. matches reports
// whether an expression matches fun.
func funAllowed(valid any, fun string, args []any, matches func(expr, s string) bool) bool {
	list, ok := valid.([]any)
	if !ok {
		list = []any{valid}
	}

	args, kwargs := splitArgs(args)
	for _, e := range list {
		switch e := e.(type) {
		case string:
			if matches(e, fun) {
				return true
			}
		case *value.Map:
			if e.Len() != 1 {
				continue
			}

			for k, cond := range e.All() {
				name, _ := k.(string)
				if matches(name, fun) && argsAllowed(cond, args, kwargs) {
					return true
				}
			}
		}
	}

	return false
}

func splitArgs(args []any) ([]any, *value.Map) {
	if len(args) == 0 {
		return nil, nil
	}
	if m, ok := args[len(args)-1].(*value.Map); ok && m.Bool("__kwarg__") {
		return args[:len(args)-1], m
	}
	return args, nil
}

// argsAllowed reports whether arguments fulfil a condition {args: [patterns], kwargs: {name:
// pattern}}. cond may also be a list of such conditions, of which one must be fulfilled. A nil
// pattern accepts any value.
func argsAllowed(cond any, args []any, kwargs *value.Map) bool {
	list, ok := cond.([]any)
	if !ok {
		list = []any{cond}
	}

	if HidesNamed(args) {
		return false
	}

	for _, c := range list {
		m, ok := c.(*value.Map)
		if !ok {
			continue
		}
		if positional(m.List("args"), args) && namedFit(m.Map("kwargs"), kwargs) {
			return true
		}
	}

	return false
}

// keyword matches a named argument in the form of text (KWARG_REGEX of salt/utils/args.py). Which
// characters are letters and digits depends on the minion's Python. Therefore keyword treats all
// characters outside ASCII as letters.
var keyword = regexp.MustCompile(`^[A-Za-z_\x{80}-\x{10FFFF}][\w.\x{80}-\x{10FFFF}-]*=([^=]|$)`)

// HidesNamed reports whether positional arguments contain named arguments in the form of text. A
// minion extracts named arguments from any position (salt/minion.py load_args_and_kwargs). So a
// condition on a positional argument would be checked against another argument than the function
// gets. Salt's clients send named arguments in a map at the end instead.
func HidesNamed(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		switch a := a.(type) {
		case string:
			return keyword.MatchString(a)
		case []byte:
			return keyword.Match(a)
		case *value.Map:
			_, ok := a.Get("__kwarg__")
			return ok
		}
		return false
	})
}

func positional(want, have []any) bool {
	if len(want) > len(have) {
		return false
	}
	for i, w := range want {
		if !fitsValue(w, have[i]) {
			return false
		}
	}
	return true
}

func namedFit(want, have *value.Map) bool {
	for k, w := range want.All() {
		v, ok := have.GetAny(k)
		if !ok || !fitsValue(w, v) {
			return false
		}
	}
	return true
}

func fitsValue(want, have any) bool {
	if want == nil {
		return true
	}
	p, ok := want.(string)
	return ok && pattern.Match(p, pythonText(have))
}
