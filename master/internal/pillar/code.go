package pillar

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// standsInCode reports whether a name stands literally in the code of a template of Jinja with the
// usual marks, at a line; 0: at any. It may stand there as the name of a variable or an attribute, as a
// module and its function (salt.cmd.run), or as a text that is looked up (salt['cmd.run']). Other texts,
// comments and what is between the marks do not count: there may be values.
func standsInCode(text, name string, line int) bool {
	if strings.Contains(text, "#jinja2:") || !strings.Contains(text, name) || name == "" {
		return false
	}

	s := codeScanner{rest: text, line: 1, name: name, wanted: line}
	for !s.isFound && s.nextMark() {
		s.scanMark()
	}
	return s.isFound
}

// codeScanner looks for a name in a template (jinja2/lexer.py). When it is in doubt, it misses the name.
type codeScanner struct {
	rest    string
	line    int // of the beginning of rest
	name    string
	wanted  int // line; 0: any
	isFound bool

	before token // the token before rest
	dotted bool  // a dot is between that token and rest
}

// token is a part of an expression.
type token struct {
	text     string // of names, and of literals that are looked up
	module   string // name before the dot before the name
	looks    bool   // something can be looked up in it by what follows in brackets
	adjacent bool   // nothing stands between it and what follows
}

var (
	rawBegin = regexp.MustCompile(`^\{%[-+]?\s*raw\s*[-+]?%\}`)
	rawEnd   = regexp.MustCompile(`\{%[-+]?\s*endraw\s*[-+]?%\}`)
	lookedUp = regexp.MustCompile(`^\[\s*(?:'([^'\\\n]*)'|"([^"\\\n]*)")\s*\]`)
)

// wordsBeforeLists are the words of Jinja after which a bracket begins a list.
var wordsBeforeLists = strings.Fields("and do elif else extends if import in include is not or return")

// skip passes over so many bytes.
func (s *codeScanner) skip(n int) {
	s.line += strings.Count(s.rest[:n], "\n")
	s.rest = s.rest[n:]
}

// nextMark passes over the text before the next mark. It returns false if there is none.
func (s *codeScanner) nextMark() bool {
	at := firstMark(s.rest)
	if at < 0 {
		return false
	}
	s.skip(at)
	return true
}

// scanMark passes over a mark and what belongs to it.
func (s *codeScanner) scanMark() {
	if strings.HasPrefix(s.rest, "{#") {
		s.skipPast(strings.Index(s.rest[2:], "#}"), 4)
		return
	}
	if begin := rawBegin.FindString(s.rest); begin != "" {
		s.skip(len(begin))
		end := rawEnd.FindStringIndex(s.rest)
		if end == nil {
			end = []int{0, len(s.rest)}
		}
		s.skip(end[1])
		return
	}

	end := "}}"
	if strings.HasPrefix(s.rest, "{%") {
		end = "%}"
	}
	s.skip(2)
	s.before = token{}
	s.dotted = false
	for depth := 0; s.rest != "" && !s.isFound; {
		if depth == 0 && strings.HasPrefix(s.rest, end) {
			s.skip(2)
			return
		}
		depth = max(0, depth+s.scanToken())
	}
}

// skipPast passes over what is found at a position, and over so many bytes more. It passes over all
// if the position is negative.
func (s *codeScanner) skipPast(at, more int) {
	if at < 0 {
		s.skip(len(s.rest))
		return
	}
	s.skip(at + more)
}

// scanToken passes over a token. It returns by how much the depth of brackets changes.
func (s *codeScanner) scanToken() (depth int) {
	first, size := utf8.DecodeRuneInString(s.rest)
	switch {
	case unicode.IsSpace(first):
		s.before.adjacent = false
		s.skip(size)
	case first == '\'' || first == '"':
		s.scanText(s.rest[:1])
		s.before = token{looks: true, adjacent: true}
		s.dotted = false
	case first == '_' || unicode.IsLetter(first):
		s.scanName()
	case first == '.':
		s.dotted = true
		s.skip(1)
	case first == '[' && s.scanLookUp():
	default:
		s.before = token{looks: first == ']' || first == ')', adjacent: true}
		s.dotted = false
		s.skip(size)
		switch first {
		case '(', '[', '{':
			return 1
		case ')', ']', '}':
			return -1
		}
	}
	return 0
}

// scanText passes over a literal in quotes.
func (s *codeScanner) scanText(quote string) {
	for at := 1; at < len(s.rest); at++ {
		switch s.rest[at] {
		case '\\':
			at++
		case quote[0]:
			s.skip(at + 1)
			return
		}
	}
	s.skip(len(s.rest))
}

// scanName passes over a name, or a number that begins with a letter.
func (s *codeScanner) scanName() {
	isEnd := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	end := strings.IndexFunc(s.rest, isEnd)
	if end < 0 {
		end = len(s.rest)
	}
	now := token{text: s.rest[:end], adjacent: true}
	if s.dotted {
		now.module = s.before.text
	}
	now.looks = s.dotted || !slices.Contains(wordsBeforeLists, now.text)
	s.dotted = false

	s.note(now.text)
	if now.module != "" {
		s.note(now.module + "." + now.text)
	}
	s.skip(end)
	s.before = now
}

// scanLookUp passes over a literal in brackets with which something is looked up, as in users['ann'].
// It returns false if what follows is something else, such as a list.
func (s *codeScanner) scanLookUp() bool {
	if !s.before.looks || !s.before.adjacent {
		return false
	}
	found := lookedUp.FindStringSubmatch(s.rest)
	if found == nil {
		return false
	}

	s.note(found[1] + found[2])
	s.skip(len(found[0]))
	s.before = token{text: found[1] + found[2], looks: true, adjacent: true}
	return true
}

// note compares a name at the line of the beginning of rest with the wanted one.
func (s *codeScanner) note(name string) {
	s.isFound = s.isFound || name == s.name && (s.wanted == 0 || s.wanted == s.line)
}
