package target

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"saltern/master/value"
)

var savedName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// MaySave reports whether a saved target may have this name, so that it can be a nodegroup.
func MaySave(name string) bool { return savedName.MatchString(name) }

// noGroupError means that a target names a nodegroup that does not exist.
type noGroupError struct{ name string }

func (e *noGroupError) Error() string {
	return fmt.Sprintf("%v: there is no nodegroup %s", errInvalid, quoteShort(e.name))
}

func (*noGroupError) Unwrap() error { return errInvalid }

// MissingGroup returns the name of the nodegroup that does not exist, if err says that a target names
// one, and a saved target may have that name.
func MissingGroup(err error) (name string, ok bool) {
	missing, ok := errors.AsType[*noGroupError](err)
	if !ok || !MaySave(missing.name) {
		return "", false
	}
	return missing.name, true
}

// SpellOut returns a target as a compound target in which each nodegroup is replaced by its words. ok
// is false if the target names none for which chosen returns true, or cannot be parsed: then
// whoever gets the target must know its nodegroups.
func SpellOut(tgt any, typ string, groups *value.Map, chosen func(name string) bool) (compound string, ok bool) {
	var words []string
	switch typ {
	case "nodegroup":
		name, _ := targetText(tgt)
		words = []string{"N@" + name}
	case "compound":
		var err error
		if words, err = compoundWords(tgt); err != nil {
			return "", false
		}
	}

	s := chooser{groups: groups, chosen: chosen, seen: map[string]bool{}}
	if !slices.ContainsFunc(words, s.names) {
		return "", false
	}
	out, err := expand(words, Env{Nodegroups: groups})
	if err != nil {
		return "", false
	}
	return strings.Join(out, " "), true
}

// chooser looks for chosen nodegroups. It looks at each group once.
type chooser struct {
	groups *value.Map
	chosen func(name string) bool
	seen   map[string]bool
}

// names reports whether a word of a compound target is a chosen nodegroup, or one that contains a
// chosen one.
func (c *chooser) names(word string) bool {
	name, ok := strings.CutPrefix(word, "N@")
	if !ok || c.seen[name] {
		return false
	}
	c.seen[name] = true
	v, known := c.groups.Get(name)
	if !known {
		return false
	}
	if c.chosen(name) {
		return true
	}
	words, err := definition(name, v)
	return err == nil && slices.ContainsFunc(words, c.names)
}

// nodegroup returns the words of a compound target that is equivalent to a group (nodegroup_comp of
// salt/utils/minions.py). A group without operators is a list of names or, if it contains
// characters of regular expressions, one regular expression.
func nodegroup(name string, groups *value.Map) ([]string, error) {
	g := grouper{groups: groups}
	words, _, err := g.expand(name)
	return words, err
}

type grouper struct {
	groups *value.Map
	open   []string // names of the groups that expand is expanding, the outermost first
	words  int
}

// expand returns the words of a group, and reports as nested whether the group contains other
// groups.
func (g *grouper) expand(name string) (words []string, nested bool, err error) {
	if slices.Contains(g.open, name) {
		return nil, false, fmt.Errorf("%w: nodegroup %s contains itself", errInvalid, quoteShort(name))
	}

	v, ok := g.groups.Get(name)
	if !ok {
		return nil, false, &noGroupError{name}
	}

	def, err := definition(name, v)
	if err != nil {
		return nil, false, err
	}

	if g.words += len(def); g.words > maxWords {
		return nil, false, fmt.Errorf("%w: nodegroups of more than %d words", ErrTooLarge, maxWords)
	}

	g.open = append(g.open, name)
	defer func() { g.open = g.open[:len(g.open)-1] }()
	for _, w := range def {
		inner, ok := strings.CutPrefix(w, "N@")
		if !ok || inner == "" {
			words = append(words, w)
			continue
		}

		nested = true
		more, _, err := g.expand(inner)
		if err != nil {
			return nil, false, err
		}

		words = append(words, more...)
	}

	inside := len(g.open) > 1
	if !nested || inside {
		if joined := joinNames(def); joined != "" {
			return []string{joined}, nested, nil
		}
		if !inside {
			return def, false, nil
		}
	}

	if len(words) > 0 {
		words = append(append([]string{"("}, words...), ")")
	}

	return words, nested, nil
}

func definition(name string, v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		return fields(v), nil
	case []any:
		out := make([]string, 0, len(v))
		for _, w := range v {
			out = append(out, pythonStr(w))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: nodegroup %s is neither text nor a list", errInvalid, quoteShort(name))
}

// joinNames returns one word for a group that is only a list of names or expressions. It returns ""
// for a group with operators, wildcards or kinds of targets.
func joinNames(words []string) string {
	expression := false
	for _, w := range words {
		if operator(w) || strings.Contains(w, "*") || len(w) > 1 && w[0] >= 'A' && w[0] <= 'Z' && w[1] == '@' {
			return ""
		}
		expression = expression || strings.ContainsAny(w, `([{\?}])`)
	}
	if expression {
		return "E@" + strings.Join(words, ",")
	}
	return "L@" + strings.Join(words, ",")
}
