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

// ErrTimeout means that an expression was not decided in time.
var ErrTimeout = errors.New("regular expression takes too long")

// errTooLong means that a pattern exceeds 4096 bytes.
var errTooLong = errors.New("pattern is too long")

// Match is Python's re.match: the expression must match at the beginning of s, but need not reach
// its end. An invalid expression matches nothing.
func Match(expr, s string) bool {
	ok, err := MatchErr(expr, s)
	return err == nil && ok
}

// MatchErr is Match that returns an error for an invalid expression.
func MatchErr(expr, s string) (bool, error) {
	m, err := prefixes.get(expr, prefix)
	if err != nil {
		return false, err
	}
	return m.matches(s)
}

// Expr is Salt's expr_match (salt/utils/stringutils.py): line matches expr as a glob, or as a
// regular expression over its whole length.
func Expr(line, expr string) bool { return Glob(expr, line) || Whole(expr, line) }

// Whole is Python's re.fullmatch: the expression must match all of s. An invalid expression matches
// nothing.
func Whole(expr, s string) bool {
	m, err := wholes.get(expr, anchored)
	if err != nil {
		return false
	}
	ok, err := m.matches(s)
	return err == nil && ok
}

// CompileWhole compiles an expression that must match the whole of a text. The returned function
// fails only with ErrTimeout and may be used concurrently.
func CompileWhole(expr string) (func(s string) (bool, error), error) {
	m, err := anchored(expr)
	if err != nil {
		return nil, err
	}
	return m.matches, nil
}

// ExprErr returns what is wrong with an expression for [Expr]: it is not a regular expression and,
// by its characters, was not meant as a glob.
func ExprErr(expr string) error {
	_, err := wholes.get(expr, anchored)
	if err != nil && !strings.ContainsAny(expr, `(){}|^$+\`) {
		return nil
	}
	return err
}

type matcher interface{ matches(s string) (bool, error) }

type linear struct{ re *regexp.Regexp }

func (l linear) matches(s string) (bool, error) { return l.re.MatchString(s), nil }

type backtracking struct{ re *regexp2.Regexp }

func (b backtracking) matches(s string) (bool, error) {
	ok, err := b.re.MatchString(s)
	if err != nil { // the only possible error is a timeout
		return false, ErrTimeout
	}
	return ok, nil
}

// pythonGroups converts Python's named groups for the backtracking engine; (?P=name) refers to a
// group.
func pythonGroups(expr string) string {
	expr = strings.ReplaceAll(expr, "(?P<", "(?<")
	return groupReference.ReplaceAllString(expr, `\k<$1>`)
}

var groupReference = regexp.MustCompile(`\(\?P=(\w+)\)`)

func prefix(expr string) (matcher, error) { return compile(`\A(?:`, expr, `)`) }

func anchored(expr string) (matcher, error) { return compile(`\A(?:`, expr, `)\z`) }

// compile compiles a Python expression between head and tail.
func compile(head, given, tail string) (matcher, error) {
	if len(given) > maxLen {
		return nil, errTooLong
	}

	expr, err := fromPython(given)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", given, err)
	}

	// Check it alone first: an unmatched closing parenthesis would change the expression around it.
	if _, err := regexp.Compile(expr); err == nil {
		if re, err := regexp.Compile(head + expr + tail); err == nil {
			return linear{re}, nil
		}
	}

	expr = pythonGroups(expr)
	if _, err := regexp2.Compile(expr, regexp2.None); err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", given, err)
	}

	re, err := regexp2.Compile(head+expr+tail, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", given, err)
	}

	re.MatchTimeout = 200 * time.Millisecond
	return backtracking{re}, nil
}

// cacheSize bounds each cache of compiled patterns. A full cache is emptied, which costs only some
// compiling.
const cacheSize = 512

type cache struct {
	mu        sync.RWMutex
	byPattern map[string]compiled
}

type compiled struct {
	m   matcher
	err error
}

// The caches hold only what compile computes from a pattern.
var prefixes, wholes cache

func (c *cache) get(pattern string, make_ func(string) (matcher, error)) (matcher, error) {
	if len(pattern) > maxLen {
		return nil, errTooLong
	}

	c.mu.RLock()
	e, ok := c.byPattern[pattern]
	c.mu.RUnlock()

	if ok {
		return e.m, e.err
	}

	e.m, e.err = make_(pattern)
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.byPattern) >= cacheSize || c.byPattern == nil {
		c.byPattern = make(map[string]compiled)
	}

	c.byPattern[pattern] = e
	return e.m, e.err
}
