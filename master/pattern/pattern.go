// Package pattern matches the two kinds of patterns that Salt's users write in targets, permissions
// and autosign lists, by the rules of Python's fnmatch and re modules.
//
// The package compiles regular expressions with Go's regexp, which matches in linear time. For
// those that Go does not support (look-around, back references) it uses a backtracking engine with
// a time limit. A bounded cache keeps compiled patterns, so matching one pattern against many ids
// compiles it once.
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

// maxLen bounds a pattern in bytes. Longer patterns are refused.
const maxLen = 4096

// ErrTimeout means that matching an expression took too long.
var ErrTimeout = errors.New("regular expression takes too long")

// errTooLong means that a pattern exceeds 4096 bytes.
var errTooLong = errors.New("pattern is too long")

// Match reports whether Python's re.match succeeds: the expression must match at the beginning of
// s, but need not reach its end. An invalid expression matches nothing.
func Match(expr, s string) bool {
	ok, err := MatchErr(expr, s)
	return err == nil && ok
}

// MatchErr works like Match, but returns an error for an invalid expression, and ErrTimeout if
// matching takes too long.
func MatchErr(expr, s string) (bool, error) {
	m, err := prefixes.get(expr, prefix)
	if err != nil {
		return false, err
	}
	return m.matches(s)
}

// Expr reports whether Salt's expr_match (salt/utils/stringutils.py) succeeds: line matches expr as
// a glob, or as a regular expression over its whole length.
func Expr(line, expr string) bool { return Glob(expr, line) || Whole(expr, line) }

// Whole reports whether Python's re.fullmatch succeeds: the expression must match all of s. An
// invalid expression matches nothing.
func Whole(expr, s string) bool {
	m, err := wholes.get(expr, anchored)
	if err != nil {
		return false
	}
	ok, err := m.matches(s)
	return err == nil && ok
}

// CompileWhole returns a function that reports whether an expression matches the whole of a text.
// The returned function may be called concurrently; it fails only with ErrTimeout.
func CompileWhole(expr string) (func(s string) (bool, error), error) {
	m, err := anchored(expr)
	if err != nil {
		return nil, err
	}
	return m.matches, nil
}

// ExprErr returns an error if an expression is not valid for [Expr]: if the text is no regular
// expression and its characters show that it was not meant as a glob.
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

// pythonGroups converts named groups, and references to them by (?P=name), from Python's syntax to
// that of the backtracking engine.
func pythonGroups(expr string) string {
	expr = strings.ReplaceAll(expr, "(?P<", "(?<")
	return groupReference.ReplaceAllString(expr, `\k<$1>`)
}

var groupReference = regexp.MustCompile(`\(\?P=(\w+)\)`)

func prefix(expr string) (matcher, error) { return compile(`\A(?:`, expr, `)`) }

func anchored(expr string) (matcher, error) { return compile(`\A(?:`, expr, `)\z`) }

// compile compiles head, the Python expression pyExpr and tail as one expression.
func compile(head, pyExpr, tail string) (matcher, error) {
	if len(pyExpr) > maxLen {
		return nil, errTooLong
	}

	expr, err := fromPython(pyExpr)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", pyExpr, err)
	}

	// Check the expression alone first: an unmatched closing parenthesis would change the meaning of
	// head and tail.
	if _, err := regexp.Compile(expr); err == nil {
		if re, err := regexp.Compile(head + expr + tail); err == nil {
			return linear{re}, nil
		}
	}

	expr = pythonGroups(expr)
	if _, err := regexp2.Compile(expr, regexp2.None); err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", pyExpr, err)
	}

	re, err := regexp2.Compile(head+expr+tail, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %.100q: %w", pyExpr, err)
	}

	re.MatchTimeout = 200 * time.Millisecond
	return backtracking{re}, nil
}

// cacheSize bounds the patterns in each cache. Overflow policy: the cache is emptied, and the next
// use of a pattern compiles the pattern again.
const cacheSize = 512

type cache struct {
	mu        sync.RWMutex
	byPattern map[string]compiled
}

type compiled struct {
	m   matcher
	err error
}

// The caches hold only results of compile, which depend on the pattern alone.
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
