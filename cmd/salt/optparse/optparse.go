// Package optparse parses command lines by the rules of Python's optparse, which Salt's tools use:
// options may stand anywhere between the arguments, long options may be abbreviated if that is
// unambiguous, short options may be joined, and "--" ends the options. The messages are those of
// optparse, too.
//
// Parse does not change the Parser, which may be used again.
package optparse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"saltern/master/value"
)

// Kind is the type of an option's argument.
type Kind uint8

const (
	// Flag takes nothing and sets true.
	Flag Kind = iota
	// Unset takes nothing and sets false.
	Unset
	// Text accepts any argument.
	Text
	// Int takes a whole number.
	Int
	// Float takes a number.
	Float
	// Choice accepts one of Option.Choices.
	Choice
)

// Option is one option. Names holds its spellings, "-x" and "--xyz".
type Option struct {
	Names   []string
	Dest    string // name of the value; by default the first long name
	Kind    Kind
	Default any // nil: the option has no default
	Choices []string
	Metavar string
	Help    string
}

// Dst returns the name of the option's value.
func (o *Option) Dst() string {
	if o.Dest != "" {
		return o.Dest
	}
	for _, n := range o.Names {
		if l, ok := strings.CutPrefix(n, "--"); ok {
			return strings.ReplaceAll(l, "-", "_")
		}
	}
	return strings.TrimPrefix(o.Names[0], "-")
}

// Group is a part of the options with a heading in the help.
type Group struct {
	Title, Text string
	Options     []Option
}

// Parser describes the command line of one program.
type Parser struct {
	Prog    string
	Usage   string // text behind "Usage: <prog> "
	Text    string
	Epilog  string
	Options []Option
	Groups  []Group
}

// Error is a fault in the command line.
type Error string

func (e Error) Error() string { return string(e) }

// Values are the values of the options of one command line.
type Values struct {
	values   map[string]any
	explicit map[string]bool
}

// Get returns the value of an option, or nil if the option was not given and has no default. A
// number is an int or a float64.
func (v *Values) Get(dest string) any { return v.values[dest] }

// Set changes a value as if it were a default.
func (v *Values) Set(dest string, val any) { v.values[dest] = val }

// Pin sets a value as if it stood on the command line.
func (v *Values) Pin(dest string, val any) {
	v.values[dest] = val
	v.explicit[dest] = true
}

// Explicit reports whether the option was given on the command line or pinned.
func (v *Values) Explicit(dest string) bool { return v.explicit[dest] }

// Str returns the text of an option, or "" if it has no value.
func (v *Values) Str(dest string) string {
	switch x := v.values[dest].(type) {
	case nil:
		return ""
	case string:
		return x
	default:
		return fmt.Sprint(x)
	}
}

// Bool returns the value of a flag.
func (v *Values) Bool(dest string) bool { b, _ := v.values[dest].(bool); return b }

// Int returns an integer option, or 0 if it has no value.
func (v *Values) Int(dest string) int {
	switch n := v.values[dest].(type) {
	case int:
		return n
	case int64:
		return int(n)
	}
	return 0
}

// Float returns a number option, or 0 if it has no value.
func (v *Values) Float(dest string) float64 {
	switch n := v.values[dest].(type) {
	case float64:
		return n
	case int:
		return float64(n)
	case int64:
		return float64(n)
	}
	return 0
}

// All yields all options, including those of the groups.
func (p *Parser) All(yield func(*Option) bool) {
	for i := range p.Options {
		if !yield(&p.Options[i]) {
			return
		}
	}
	for g := range p.Groups {
		for i := range p.Groups[g].Options {
			if !yield(&p.Groups[g].Options[i]) {
				return
			}
		}
	}
}

// Parse parses the words after the program's name and returns the options and the arguments. The
// error is an [Error].
func (p *Parser) Parse(words []string) (*Values, []string, error) {
	v := &Values{values: map[string]any{}, explicit: map[string]bool{}}
	for o := range p.All {
		if o.Default != nil {
			v.values[o.Dst()] = o.Default
		}
	}

	var args []string
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		var err error
		switch {
		case w == "--":
			return v, append(args, words...), nil
		case strings.HasPrefix(w, "--"):
			words, err = p.parseLong(v, w, words)
		case strings.HasPrefix(w, "-") && len(w) > 1:
			words, err = p.parseShort(v, w, words)
		default:
			args = append(args, w)
		}

		if err != nil {
			return nil, nil, err
		}
	}

	return v, args, nil
}

func (p *Parser) parseLong(v *Values, word string, rest []string) ([]string, error) {
	name, value, joined := strings.Cut(word, "=")
	o, full, err := p.findLong(name)
	if err != nil {
		return nil, err
	}
	if o.Kind <= Unset {
		if joined {
			return nil, Error(full + " option does not take a value")
		}
		return rest, v.setGiven(o, full, "")
	}

	if !joined {
		if len(rest) == 0 {
			return nil, Error(full + " option requires 1 argument")
		}
		value, rest = rest[0], rest[1:]
	}

	return rest, v.setGiven(o, full, value)
}

// findLong returns the long option with that name, or with a name of which it is an unambiguous
// prefix, and the option's full name.
func (p *Parser) findLong(name string) (*Option, string, error) {
	var hits []string
	var hit *Option
	for o := range p.All {
		for _, n := range o.Names {
			if n == name {
				return o, n, nil
			}
			if strings.HasPrefix(n, "--") && strings.HasPrefix(n, name) {
				hits = append(hits, n)
				hit = o
			}
		}
	}

	switch len(hits) {
	case 0:
		return nil, "", Error("no such option: " + name)
	case 1:
		return hit, hits[0], nil
	}

	slices.Sort(hits)
	return nil, "", Error(fmt.Sprintf("ambiguous option: %s (%s?)", name, strings.Join(hits, ", ")))
}

func (p *Parser) parseShort(v *Values, word string, rest []string) ([]string, error) {
	letters := []rune(word[1:])
	for i, l := range letters {
		name := "-" + string(l)
		o := p.optionNamed(name)
		if o == nil {
			return nil, Error("no such option: " + name)
		}
		if o.Kind <= Unset {
			if err := v.setGiven(o, name, ""); err != nil {
				return nil, err
			}
			continue
		}

		value := string(letters[i+1:])
		if value == "" {
			if len(rest) == 0 {
				return nil, Error(name + " option requires 1 argument")
			}
			value, rest = rest[0], rest[1:]
		}

		return rest, v.setGiven(o, name, value)
	}

	return rest, nil
}

func (p *Parser) optionNamed(name string) *Option {
	for o := range p.All {
		if slices.Contains(o.Names, name) {
			return o
		}
	}
	return nil
}

func (v *Values) setGiven(o *Option, name, given string) error {
	var x any = given
	switch o.Kind {
	case Flag:
		x = true
	case Unset:
		x = false
	case Int:
		n, err := number(given)
		if err != nil {
			return Error(fmt.Sprintf("option %s: invalid integer value: %s", name, value.Repr(given)))
		}
		x = n
	case Float:
		f, err := strconv.ParseFloat(strings.TrimSpace(given), 64)
		if err != nil {
			return Error(fmt.Sprintf("option %s: invalid floating-point value: %s", name, value.Repr(given)))
		}
		x = f
	case Choice:
		if !slices.Contains(o.Choices, given) {
			quoted := make([]string, len(o.Choices))
			for i, c := range o.Choices {
				quoted[i] = value.Repr(c)
			}
			return Error(fmt.Sprintf("option %s: invalid choice: %s (choose from %s)", name,
				value.Repr(given), strings.Join(quoted, ", ")))
		}
	}

	v.values[o.Dst()] = x
	v.explicit[o.Dst()] = true
	return nil
}

// number returns the integer in a text, in the forms of optparse: decimal, 0x, 0b, or octal with a
// leading zero.
func number(s string) (int, error) {
	s = strings.TrimSpace(s)
	base, digits := 10, s
	switch low := strings.ToLower(s); {
	case strings.HasPrefix(low, "0x"):
		base, digits = 16, s[2:]
	case strings.HasPrefix(low, "0b"):
		base, digits = 2, s[2:]
	case strings.HasPrefix(s, "0"):
		base = 8
	}
	n, err := strconv.ParseInt(digits, base, 32)
	return int(n), err
}
