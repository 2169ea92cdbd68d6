// Package target determines the minions that a target selects.
//
// It follows the rules of Salt's matchers (salt/matchers/*_match.py), which every minion applies to
// a job it receives, so that the master expects returns from exactly the minions that will answer.
// Like salt/utils/minions.py, it uses cached grains and pillars; a target on these does not match a
// minion without cached data.
//
// It is stricter than Salt, because permissions depend on the same targets: an unknown nodegroup,
// one that contains itself, an unclosed parenthesis and an expression that does not compile are
// errors, never part of a match. A comma in a glob is a plain character, as it is for minions.
//
// Grains come from minions, which may send false ones.
package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"saltern/master/pattern"
	"saltern/master/value"
)

var (
	// errInvalid means that a target is malformed; such a target selects no minion.
	errInvalid = errors.New("invalid target")
	// errUnsupported means that this master does not support a type of target.
	errUnsupported = errors.New("target type is not supported")
	// ErrTooLarge means that a target has too many names, words or bytes.
	ErrTooLarge = fmt.Errorf("%w: it is too large", errInvalid)
)

const (
	maxTarget = 1 << 20 // bytes of a target, which may be a list of minions
	maxWords  = 10000   // words of a compound target with its nodegroups expanded
	maxNested = 100     // depth of nested parentheses
	maxNames  = 100000  // names of a list target
)

// Source returns the data that minions have reported about themselves. It must be safe for
// concurrent use if a Matcher is used concurrently. The returned maps must not be changed.
type Source interface {
	Grains(id string) (*value.Map, bool)
	Pillar(id string) (*value.Map, bool)
}

// Env holds the configuration and the data with which targets are compiled and matched.
type Env struct {
	// Delimiter separates the keys of grain and pillar targets. If it is "", the delimiter is ":".
	Delimiter string
	// Nodegroups is the option nodegroups. It may be nil.
	Nodegroups *value.Map
	// Source may be nil: no data of minions is known.
	Source Source
	// Resources may be nil: targets select minions only.
	Resources Resources
	// GlobsNameResources means that globs in a compound target also select resources by their ids.
	// Minions do not run a job on such resources, but permissions may name resources by a glob.
	GlobsNameResources bool
	// Effort bounds the work. It may be nil: Resolve and Select create an Effort with a default bound.
	Effort *Effort
}

func (e Env) delimiter() string {
	if e.Delimiter == "" {
		return ":"
	}
	return e.Delimiter
}

// Matcher is a compiled target. It is safe for concurrent use.
type Matcher struct {
	root node
	// If exactly is set, only the ids in exact can match. That is so for a glob without wildcards
	// and for a list.
	exact   []string
	exactly bool
	// missing lists the names that must be reported as missing if they have no key.
	missing []string
	reach   reach
}

// node is one part of a target.
type node interface{ matches(id string) bool }

// Match reports whether the target selects the minion.
func (m Matcher) Match(id string) bool { return m.root != nil && m.root.matches(id) }

// Compile prepares a target for matching. typ is glob, pcre, list, grain, grain_pcre, pillar,
// pillar_exact, pillar_pcre, ipcidr, nodegroup, compound, or compound_pillar_exact, in which all
// pillar terms match exactly; "" means glob. tgt is text, or for list and compound a list of texts.
// Compile's errors wrap errInvalid or errUnsupported.
func Compile(tgt any, typ string, env Env) (Matcher, error) {
	m, err := compileTarget(tgt, typ, env)
	text, _ := targetText(tgt)
	m.reach = reachOf(typ, text)
	if _, plain := m.root.(glob); plain && typ != "glob" && typ != "" && !env.GlobsNameResources {
		m.reach = reachNone
	}
	return m, err
}

func compileTarget(tgt any, typ string, env Env) (Matcher, error) {
	switch typ {
	case "list":
		l, err := listNames(tgt)
		if err != nil {
			return Matcher{}, err
		}
		return Matcher{root: newSet(l), exact: l, exactly: true, missing: l}, nil
	case "compound", "compound_pillar_exact":
		words, err := compoundWords(tgt)
		if err != nil {
			return Matcher{}, err
		}
		return compileCompound(words, env, typ != "compound")
	}

	s, ok := targetText(tgt)
	if !ok {
		return Matcher{}, fmt.Errorf("%w: a %s target is text, not %T", errInvalid, quoteShort(typ), tgt)
	}
	if len(s) > maxTarget {
		return Matcher{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(s))
	}

	switch typ {
	case "glob", "":
		m := Matcher{root: glob(s)}
		if !strings.ContainsAny(s, "*?[") {
			m.exact, m.exactly = []string{s}, true
		}
		return m, nil
	case "nodegroup":
		words, err := nodegroup(s, env.Nodegroups)
		if err != nil {
			return Matcher{}, err
		}
		return compileCompound(words, env, false)
	case "range":
		return Matcher{}, fmt.Errorf("%w: range needs a range server", errUnsupported)
	}

	n, err := compileSimple(s, typ, env.delimiter(), env)
	return Matcher{root: n}, err
}

// compileSimple prepares a target of a type that may also be a word of a compound target.
func compileSimple(s, typ, delimiter string, env Env) (node, error) {
	src := env.Source
	switch typ {
	case "pcre":
		if _, err := pattern.MatchErr(s, ""); err != nil {
			return nil, fmt.Errorf("%w: %w", errInvalid, err)
		}
		return pcre{s, env.Effort}, nil
	case "grain":
		return newGrainLookup(s, delimiter, wild, src, env.Effort)
	case "grain_pcre":
		return newGrainLookup(s, delimiter, regex, src, env.Effort)
	case "pillar":
		return newLookup(s, delimiter, wild, pillar(src), env.Effort)
	case "pillar_exact":
		return newLookup(s, delimiter, exact, pillar(src), env.Effort)
	case "pillar_pcre":
		return newLookup(s, delimiter, regex, pillar(src), env.Effort)
	case "ipcidr":
		return newCIDR(s, grains(src))
	}

	return nil, fmt.Errorf("%w: %s", errUnsupported, quoteShort(typ))
}

// Selection holds the ids that a target selects.
type Selection struct {
	Minions   []string // sorted
	Resources []string // sorted
	// Implied means that the target does not name the resources: it selects their minions.
	Implied bool
	Missing []string // names in a list target that are neither minions nor resources
}

// Select returns the minions and resources that a target selects. ids are the known minions, sorted.
// If the target is a list of plain names, Select checks only these names.
func Select(ids []string, tgt any, typ string, env Env) (Selection, error) {
	env.Effort = cmp.Or(env.Effort, NewEffort(context.Background()))
	m, err := Compile(tgt, typ, env)
	if err != nil {
		return Selection{}, err
	}

	minions, missing, err := m.resolveMinions(ids, typ, env)
	if err != nil {
		return Selection{}, err
	}

	out := Selection{Minions: minions, Implied: m.reach == reachManaged, Missing: missing}
	out.Resources = m.resolveResources(minions, env)
	if err := env.Effort.errGivenUp(); err != nil {
		return Selection{}, fmt.Errorf("resolve the resources of a %s target: %w", quoteShort(typ), err)
	}

	if env.Resources != nil {
		out.Missing = slices.DeleteFunc(out.Missing, func(id string) bool {
			_, known := env.Resources.Find(id)
			return known
		})
	}

	return out, nil
}

// Resolve works like Select, but returns minions only. missing holds the names in a list target that
// are not in ids.
func Resolve(ids []string, tgt any, typ string, env Env) (matched, missing []string, err error) {
	env.Effort = cmp.Or(env.Effort, NewEffort(context.Background()))
	m, err := Compile(tgt, typ, env)
	if err != nil {
		return nil, nil, err
	}
	return m.resolveMinions(ids, typ, env)
}

// resolveMinions returns those of ids that the target selects, and the names that are missing.
func (m Matcher) resolveMinions(ids []string, typ string, env Env) (matched, missing []string, err error) {
	if !env.Effort.spendSteps(len(m.missing) + len(m.exact)) {
		return nil, nil, env.Effort.errGivenUp()
	}

	has := func(id string) bool { _, ok := slices.BinarySearch(ids, id); return ok }
	known := make(set)
	for _, name := range m.missing {
		if !has(name) && !known.matches(name) {
			known[name] = struct{}{}
			missing = append(missing, name)
		}
	}

	if m.exactly {
		for _, id := range m.exact {
			if has(id) {
				matched = append(matched, id)
			}
		}
		slices.Sort(matched)
		return slices.Compact(matched), missing, nil
	}

	for i, id := range ids {
		if i%lookEvery == 0 && !env.Effort.spendSteps(min(lookEvery, len(ids)-i)) {
			break
		}
		if m.Match(id) {
			matched = append(matched, id)
		}
	}

	if err := env.Effort.errGivenUp(); err != nil {
		return nil, nil, fmt.Errorf("resolve a %s target: %w", quoteShort(typ), err)
	}

	return matched, missing, nil
}

// pcre is a regular expression for ids.
type pcre struct {
	expr   string
	effort *Effort
}

func (p pcre) matches(id string) bool { return p.effort.matchRegex(p.expr, id) }

// set is a list of ids.
type set map[string]struct{}

func newSet(l []string) set {
	s := make(set, len(l))
	for _, id := range l {
		s[id] = struct{}{}
	}
	return s
}

func (s set) matches(id string) bool { _, ok := s[id]; return ok }

// listNames parses a list target: text separated by commas, or a list of text.
func listNames(tgt any) ([]string, error) {
	if s, ok := targetText(tgt); ok {
		if len(s) > maxTarget {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(s))
		}
		if strings.Count(s, ",") >= maxNames {
			return nil, fmt.Errorf("%w: a list of more than %d names", ErrTooLarge, maxNames)
		}
		return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" }), nil
	}
	return textList(tgt, "list")
}

// fields returns the words of a text by the rules of Python's str.split: it splits at Go's white
// space and at the separators U+001C to U+001F.
func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

func compoundWords(tgt any) ([]string, error) {
	if s, ok := targetText(tgt); ok {
		if len(s) > maxTarget {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(s))
		}
		return fields(s), nil
	}
	return textList(tgt, "compound")
}

func textList(tgt any, typ string) ([]string, error) {
	switch l := tgt.(type) {
	case []string:
		if len(l) > maxNames {
			return nil, fmt.Errorf("%w: a list of %d names, at most %d", ErrTooLarge, len(l), maxNames)
		}
		return slices.Clone(l), nil
	case []any:
		if len(l) > maxNames {
			return nil, fmt.Errorf("%w: a list of %d names, at most %d", ErrTooLarge, len(l), maxNames)
		}

		out := make([]string, 0, len(l))
		for _, v := range l {
			s, ok := targetText(v)
			if !ok {
				return nil, fmt.Errorf("%w: a %s target holds %T", errInvalid, typ, v)
			}
			out = append(out, s)
		}

		return out, nil
	}

	return nil, fmt.Errorf("%w: a %s target is text or a list, not %T", errInvalid, typ, tgt)
}

func targetText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return "", true // Salt reads a missing target as empty text
	}
	return "", false
}

// quoteShort returns the beginning of a caller's text, quoted, for an error.
func quoteShort(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return fmt.Sprintf("%q", s)
}
