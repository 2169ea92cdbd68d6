// Package pattern matches the two kinds of patterns that Salt's users write,
// with the rules of Python's fnmatch and re modules: targets, permissions,
// autosign lists.
//
// Regular expressions are compiled by Go's regexp, which runs in linear time;
// only those it does not know (look-around, back references) fall to a
// backtracking engine with a time limit. Compiled patterns are kept in a
// bounded cache, so matching one pattern against many ids compiles it once.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2"
)

// maxLen bounds a pattern; longer ones are refused.
const maxLen = 4096

// matchTimeout bounds one match of the backtracking engine.
const matchTimeout = 200 * time.Millisecond

// ErrTooLong means that a pattern exceeds 4096 bytes.
var ErrTooLong = errors.New("pattern is too long")

// Match is Python's re.match: the expression must fit from the beginning of
// s, not to its end. An expression that is none matches nothing.
func Match(expr, s string) bool {
	ok, err := MatchErr(expr, s)
	return err == nil && ok
}

// MatchErr is Match that tells of an expression that is none.
func MatchErr(expr, s string) (bool, error) {
	m, err := prefixes.get(expr, func(p string) (matcher, error) { return compile(`\A(?:` + p + `)`) })
	if err != nil {
		return false, err
	}
	return m.match(s), nil
}

// Expr is Salt's expr_match (salt/utils/stringutils.py): line fits expr as a
// glob, or as a regular expression over its whole length.
func Expr(line, expr string) bool {
	return Glob(expr, line) || Whole(expr, line)
}

// Whole is Python's re.fullmatch: the expression must fit all of s. An
// expression that is none matches nothing.
func Whole(expr, s string) bool {
	m, err := wholes.get(expr, func(p string) (matcher, error) { return compile(`\A(?:` + p + `)\z`) })
	return err == nil && m.match(s)
}

type matcher interface{ match(s string) bool }

type linear struct{ re *regexp.Regexp }

func (l linear) match(s string) bool { return l.re.MatchString(s) }

type backtracking struct{ re *regexp2.Regexp }

func (b backtracking) match(s string) bool { ok, err := b.re.MatchString(s); return err == nil && ok }

// pythonGroups writes Python's names of groups as the backtracking engine
// reads them; (?P=name) is a reference to a group.
func pythonGroups(expr string) string {
	expr = strings.ReplaceAll(expr, "(?P<", "(?<")
	return groupReference.ReplaceAllString(expr, `\k<$1>`)
}

var groupReference = regexp.MustCompile(`\(\?P=(\w+)\)`)

// endOfText writes Python's \Z as Go does; a backslash that is itself escaped
// stays.
func endOfText(expr string) string {
	b := []byte(expr)
	for i := 0; i+1 < len(b); i++ {
		if b[i] == '\\' {
			if b[i+1] == 'Z' {
				b[i+1] = 'z'
			}
			i++
		}
	}
	return string(b)
}

func compile(expr string) (matcher, error) {
	if len(expr) > maxLen {
		return nil, ErrTooLong
	}
	expr = endOfText(expr)
	if re, err := regexp.Compile(expr); err == nil {
		return linear{re}, nil
	}
	re, err := regexp2.Compile(pythonGroups(expr), regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", expr, err)
	}
	re.MatchTimeout = matchTimeout
	return backtracking{re}, nil
}

// cacheSize bounds each cache of compiled patterns; when it is full it starts
// anew, which costs some compiling and nothing else.
const cacheSize = 512

type cache struct {
	mu sync.RWMutex
	m  map[string]compiled
}

type compiled struct {
	m   matcher
	err error
}

// The caches hold nothing but what compile computes from the pattern.
var prefixes, wholes cache

func (c *cache) get(pattern string, make_ func(string) (matcher, error)) (matcher, error) {
	if len(pattern) > maxLen {
		return nil, ErrTooLong
	}
	c.mu.RLock()
	e, ok := c.m[pattern]
	c.mu.RUnlock()
	if ok {
		return e.m, e.err
	}
	e.m, e.err = make_(pattern)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= cacheSize || c.m == nil {
		c.m = make(map[string]compiled)
	}
	c.m[pattern] = e
	return e.m, e.err
}
