package acl

import (
	"errors"
	"fmt"
	"strings"

	"saltern/master/pattern"
	"saltern/master/value"
)

// Fault is an invalid expression in an option.
type Fault struct {
	Option     string
	Expression string
	Err        error
}

// Error implements error.
func (f Fault) Error() string { return fmt.Sprintf("expression %.100q: %v", f.Expression, f.Err) }

// errWord means that a keyword, which grants everything or a right, has a list of functions below
// it.
var errWord = errors.New("it stands alone, as a text: it takes no list of functions")

// Faults collects the invalid expressions in options with permissions. An invalid expression would
// match nothing: a blacklist would refuse nothing, or a permission would silently be missing.
type Faults struct {
	// Target returns an error for an invalid compound target.
	Target func(string) error
	List   []Fault
}

func (f *Faults) addFault(option, expr string, err error) {
	if err != nil {
		f.List = append(f.List, Fault{option, expr, err})
	}
}

func (f *Faults) checkRegex(option string, v any) {
	if s, ok := v.(string); ok {
		_, err := pattern.MatchErr(s, "")
		f.addFault(option, s, err)
	}
}

// External checks external_auth: a map of external systems to maps of users to permissions.
func (f *Faults) External(option string, m *value.Map) {
	for _, v := range m.All() {
		users, _ := v.(*value.Map)
		for _, grants := range users.All() {
			f.grants(option, grants)
		}
	}
}

// Publisher checks publisher_acl: a map of user expressions to permissions.
func (f *Faults) Publisher(option string, m *value.Map) {
	for k, v := range m.All() {
		f.Names(option, []any{k})
		f.grants(option, v)
	}
}

// Minions checks peer, peer_run and mine_get: maps of regular expressions for minion ids to
// permissions.
func (f *Faults) Minions(option string, m *value.Map) {
	for k, v := range m.All() {
		f.checkRegex(option, k)
		f.grants(option, v)
	}
}

// Names checks a list of globs and regular expressions for names.
func (f *Faults) Names(option string, list []any) {
	for _, v := range list {
		if s, ok := v.(string); ok {
			f.addFault(option, s, pattern.ExprErr(s))
		}
	}
}

// grants checks permissions in the form that Publish and Special expect.
func (f *Faults) grants(option string, v any) {
	list, _ := v.([]any)
	for _, g := range list {
		switch g := g.(type) {
		case string:
			if !strings.HasPrefix(g, "@") {
				f.checkRegex(option, g)
			}
		case *value.Map:
			for k, funs := range g.All() {
				target, isText := k.(string)
				switch {
				case target == ReadEvents, target == FireHooks:
					f.addFault(option, target, errWord)
				case isText && target != "*" && !strings.HasPrefix(target, "@"):
					f.addFault(option, target, f.Target(target))
				}

				f.functions(option, funs)
			}
		}
	}
}

func (f *Faults) functions(option string, v any) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}

	for _, e := range list {
		f.checkRegex(option, e)
		m, _ := e.(*value.Map)
		for name, conds := range m.All() {
			f.checkRegex(option, name)
			list, ok := conds.([]any)
			if !ok {
				list = []any{conds}
			}

			for _, c := range list {
				cond, _ := c.(*value.Map)
				for _, p := range cond.List("args") {
					f.checkRegex(option, p)
				}
				for _, p := range cond.Map("kwargs").All() {
					f.checkRegex(option, p)
				}
			}
		}
	}
}
