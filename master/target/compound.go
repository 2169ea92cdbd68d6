package target

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

type (
	notNode struct{ a node }
	andNode struct{ a, b node }
	orNode  struct{ a, b node }
)

func (n notNode) matches(id string) bool { return !n.a.matches(id) }
func (n andNode) matches(id string) bool { return n.a.matches(id) && n.b.matches(id) }
func (n orNode) matches(id string) bool  { return n.a.matches(id) || n.b.matches(id) }

func operator(word string) bool {
	switch word {
	case "and", "or", "not", "(", ")":
		return true
	}
	return false
}

// engines maps the letters before an @ to kinds of targets (TARGET_REX of salt/utils/minions.py).
var engines = map[byte]string{
	'G': "grain", 'P': "grain_pcre", 'I': "pillar", 'J': "pillar_pcre",
	'L': "list", 'N': "nodegroup", 'S': "ipcidr", 'E': "pcre",
	'R': "range", 'T': "resource", 'M': "managing_minion",
}

// parseWord splits a word of a compound target: typ is the kind of target ("" for a glob),
// delimiter its delimiter ("" for none), and expr its pattern.
func parseWord(word string) (typ, delimiter, expr string) {
	plain := func() (string, string, string) { return "", "", word }
	if word == "" || strings.ContainsRune(word, '\n') {
		return plain()
	}

	typ, ok := engines[word[0]]
	if !ok {
		return plain()
	}

	rest := word[1:]
	if strings.IndexByte("GPIJ", word[0]) >= 0 {
		if _, n := utf8.DecodeRuneInString(rest); n > 0 && len(rest) > n+1 && rest[n] == '@' {
			return typ, rest[:n], rest[n+1:]
		}
	}

	if len(rest) > 1 && rest[0] == '@' {
		return typ, "", rest[1:]
	}

	return plain()
}

// parser builds the tree of a compound target. "or" binds weakest, "not" strongest, and "a not b"
// means "a and not b".
type parser struct {
	words   []string
	env     Env
	exact   bool // all pillar terms match exactly
	depth   int
	missing []string
}

func compileCompound(words []string, env Env, exact bool) (Matcher, error) {
	words, err := expand(words, env)
	if err != nil {
		return Matcher{}, err
	}

	p := &parser{words: words, env: env, exact: exact}
	n, err := p.parseOr()
	if err != nil {
		return Matcher{}, err
	}
	if len(p.words) > 0 {
		return Matcher{}, fmt.Errorf("%w: unexpected %s", errInvalid, quoteShort(p.words[0]))
	}

	m := Matcher{root: n, missing: p.missing}
	switch n := n.(type) {
	case set: // the target is a single list, such as a nodegroup of names
		for id := range n {
			m.exact = append(m.exact, id)
		}
		slices.Sort(m.exact)
		m.exactly = true
	case glob:
		if !strings.ContainsAny(string(n), "*?[") {
			m.exact, m.exactly = []string{string(n)}, true
		}
	}

	return m, nil
}

// expand replaces nodegroups by their words. If a group contains other groups, expand puts its
// words in parentheses, as Salt does.
func expand(words []string, env Env) (out []string, err error) {
	for _, w := range words {
		if typ, _, name := parseWord(w); !operator(w) && typ == "nodegroup" {
			inner, err := nodegroup(name, env.Nodegroups)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		} else {
			out = append(out, w)
		}

		if len(out) > maxWords {
			return nil, fmt.Errorf("%w: more than %d words", ErrTooLarge, maxWords)
		}
	}

	return out, nil
}

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *parser) parseOr() (node, error) {
	a, err := p.parseAnd()
	for err == nil && p.peek() == "or" && len(p.words) > 0 {
		p.words = p.words[1:]
		var b node
		if b, err = p.parseAnd(); err == nil {
			a = orNode{a, b}
		}
	}
	return a, err
}

func (p *parser) parseAnd() (node, error) {
	a, err := p.parseNot()
	for err == nil && (p.peek() == "and" || p.peek() == "not") {
		if p.peek() == "and" {
			p.words = p.words[1:]
		}
		var b node
		if b, err = p.parseNot(); err == nil {
			a = andNode{a, b}
		}
	}
	return a, err
}

func (p *parser) parseNot() (node, error) {
	if p.peek() != "not" {
		return p.operand(false)
	}
	p.words = p.words[1:]
	n, err := p.operand(true)
	if err != nil {
		return nil, err
	}
	return notNode{n}, nil
}

// operand parses an expression in parentheses or a word. negated means that a "not" precedes it, so
// that names of a list without a key are not reported as missing.
func (p *parser) operand(negated bool) (node, error) {
	if len(p.words) == 0 {
		return nil, fmt.Errorf("%w: a minion is expected at the end", errInvalid)
	}

	word := p.words[0]
	p.words = p.words[1:]
	switch {
	case word == "(":
		p.depth++
		if p.depth > maxNested {
			return nil, fmt.Errorf("%w: parentheses nested more than %d deep", errInvalid, maxNested)
		}

		n, err := p.parseOr()
		if err != nil {
			return nil, err
		}
		if p.peek() != ")" {
			return nil, fmt.Errorf("%w: a parenthesis is not closed", errInvalid)
		}

		p.words = p.words[1:]
		p.depth--
		return n, nil
	case operator(word):
		return nil, fmt.Errorf("%w: a minion is expected before %s", errInvalid, quoteShort(word))
	}

	typ, delimiter, expr := parseWord(word)
	switch typ {
	case "":
		return glob(word), nil
	case "list":
		if strings.Count(expr, ",") >= maxNames {
			return nil, fmt.Errorf("%w: a list of more than %d names", ErrTooLarge, maxNames)
		}

		l := slices.DeleteFunc(strings.Split(expr, ","), func(s string) bool { return s == "" })
		if !negated {
			p.missing = append(p.missing, l...)
		}

		return newSet(l), nil
	case "resource":
		return newResourceTerm(expr), nil
	case "managing_minion":
		return managing(expr), nil
	case "range":
		return nil, fmt.Errorf("%w: %s in a compound target", errUnsupported, quoteShort(word))
	case "pillar", "pillar_pcre":
		if p.exact {
			typ = "pillar_exact"
		}
	}

	if delimiter == "" {
		delimiter = ":" // in a compound target the delimiter of the request does not apply
	}

	return compileSimple(expr, typ, delimiter, p.env)
}
