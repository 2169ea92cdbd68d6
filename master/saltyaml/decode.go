package saltyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits bound the documents that DecodeWithin accepts.
type Limits struct {
	Bytes int // bytes of the text
	Depth int // depth of containers inside of containers
	Nodes int // values in all, with aliases expanded and including keys
}

// DefaultLimits returns the limits for configuration, SLS files and command lines: 8 MiB of text,
// 64 levels, one million values.
func DefaultLimits() Limits { return Limits{Bytes: 8 << 20, Depth: 64, Nodes: 1 << 20} }

// ErrLimit means that a document has too many bytes, levels or, with its aliases expanded, values.
var ErrLimit = errors.New("document exceeds the limits")

// Error is a fault in a document, with its position.
type Error struct {
	Name string // name given to Decode, usually a path
	Line int    // counted from 1; 0 when not known
	Err  error
}

// Error returns the fault in the form name:line: text.
func (e *Error) Error() string {
	if e.Line <= 0 {
		return e.Name + ": " + e.Err.Error()
	}
	return e.Name + ":" + strconv.Itoa(e.Line) + ": " + e.Err.Error()
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }

// Decode parses the single document in b within DefaultLimits. If there is no document, or an empty
// one, it returns nil. Every error is an *Error that contains name.
func Decode(b []byte, name string) (any, error) { return DecodeWithin(b, name, DefaultLimits()) }

// DecodeWithin works like Decode, with other limits.
func DecodeWithin(b []byte, name string, l Limits) (any, error) {
	if len(b) > l.Bytes {
		return nil, &Error{name, 0, fmt.Errorf("%w: %d bytes, at most %d", ErrLimit, len(b), l.Bytes)}
	}

	if n := Estimate(b); n > l.Nodes {
		return nil, &Error{name, 0, fmt.Errorf("%w: about %d values, at most %d", ErrLimit, n, l.Nodes)}
	}

	root, err := parseDocument(b)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Name = name
			return nil, e
		}
		return nil, &Error{name, 0, err}
	}

	if root == nil {
		return nil, nil
	}

	c := constructor{limits: l, nodes: l.Nodes, merged: make(map[*yaml.Node][]pair), open: make(map[*yaml.Node]bool)}
	v, err := c.document(root)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Name = name
			return nil, e
		}
		return nil, &Error{name, 0, err}
	}

	return v, nil
}

// Estimate returns an upper bound of the number of nodes that parsing b would create. It does not
// parse b. A node takes about 200 bytes, besides its text.
func Estimate(b []byte) int {
	n := 1
	for i, c := range b {
		switch c {
		case ',', '[', '{':
			n++
		case '-', ':', '?':
			if i+1 == len(b) || b[i+1] <= ' ' || b[i+1] == ',' || b[i+1] == ']' || b[i+1] == '}' {
				n++
			}
		}
	}
	return n
}

// parseDocument returns the root node of the single document, or nil when there is none.
func parseDocument(b []byte) (root *yaml.Node, err error) {
	defer func() {
		// The library reports some malformed input by a panic with a text.
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("cannot parse: %v", r)
		}
	}()

	if err := readable(b); err != nil {
		return nil, err
	}

	d := yaml.NewDecoder(bytes.NewReader(version11(b)))
	var doc, next yaml.Node
	if err := d.Decode(&doc); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, syntax(err, b)
	}

	switch err := d.Decode(&next); {
	case err == io.EOF:
	case err != nil:
		return nil, syntax(err, b)
	default:
		return nil, &Error{Line: next.Line, Err: errors.New("expected a single document, but another one begins here")}
	}

	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}

	return doc.Content[0], nil
}

// version11 changes a document that declares YAML 1.2 so that the parser accepts it. libyaml, which
// Salt uses, reads such a document by the rules of 1.1.
func version11(b []byte) []byte {
	const v12 = "%YAML 1.2"
	for off := 0; off < len(b); {
		line := b[off:]
		if n := bytes.IndexByte(line, '\n'); n >= 0 {
			line = line[:n+1]
		}

		switch {
		case bytes.HasPrefix(line, []byte(v12)):
			c := bytes.Clone(b)
			c[off+len(v12)-1] = '1'
			return c
		case line[0] != '%' && line[0] != '#' && len(bytes.TrimSpace(line)) > 0:
			return b
		}

		off += len(line)
	}

	return b
}

// syntax converts an error of the form "yaml: line 3: text" to an *Error.
func syntax(err error, b []byte) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	rest, ok := strings.CutPrefix(msg, "line ")
	if !ok {
		if name, unknown := strings.CutPrefix(msg, "unknown anchor '"); unknown {
			name, _, _ = strings.Cut(name, "'")
			return &Error{Line: lineOf(b, "*"+name), Err: errors.New(msg)}
		}
		// The library omits the line number if the fault is in the first line of a document.
		return &Error{Line: 1, Err: errors.New(msg)}
	}

	num, text, ok := strings.Cut(rest, ": ")
	n, aerr := strconv.Atoi(num)
	if !ok || aerr != nil {
		return &Error{Err: errors.New(msg)}
	}

	if fromZero(text) {
		n++
	}

	return &Error{Line: n, Err: errors.New(text)}
}

// lineOf returns the line in which text first occurs, or 0.
func lineOf(b []byte, text string) int {
	i := bytes.Index(b, []byte(text))
	if i < 0 {
		return 0
	}
	return 1 + bytes.Count(b[:i], []byte("\n"))
}

// Lines returns the line of each key of the map in b, by the key's text. It returns nil when b is
// not a map. For a duplicate key it returns the line of the first.
func Lines(b []byte) map[string]int {
	root, err := parseDocument(b)
	if err != nil || root == nil || root.Kind != yaml.MappingNode {
		return nil
	}
	lines := make(map[string]int, len(root.Content)/2)
	addLines(lines, root, "", 1)
	return lines
}

// LinesBelow returns the lines of keys inside the map in b, down to a depth of levels. It begins
// below the key to which the path in keys leads, or at the top if keys is empty. [Below] creates
// the names of these keys. A key inside a list has the name that it would have without the list; if
// several keys have the same name, LinesBelow returns the line of the first.
func LinesBelow(b []byte, levels int, keys ...string) map[string]int {
	root, err := parseDocument(b)
	if err != nil || root == nil || root.Kind != yaml.MappingNode {
		return nil
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key := root.Content[i].Value; slices.Contains(keys, key) {
			addLines(lines, root.Content[i+1], key, levels)
		}
	}
	return lines
}

// Below returns the name that LinesBelow uses for a path of keys.
func Below(keys ...string) string { return strings.Join(keys, "\x00") }

func addLines(lines map[string]int, node *yaml.Node, above string, levels int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if levels == 0 {
		return
	}
	if node.Kind == yaml.SequenceNode {
		for _, item := range node.Content {
			addLines(lines, item, above, levels-1)
		}
		return
	}

	if node.Kind != yaml.MappingNode {
		return
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		k := node.Content[i]
		if k.Kind != yaml.ScalarNode {
			continue
		}

		name := k.Value
		if above != "" {
			name = Below(above, k.Value)
		}

		if _, seen := lines[name]; !seen {
			lines[name] = k.Line
		}

		addLines(lines, node.Content[i+1], name, levels-1)
	}
}

// fromZero reports whether the library counts lines from zero, and omits the line number 0, in an
// error with this text. Errors of the library's parser count from zero, errors of its scanner do
// not.
func fromZero(text string) bool {
	rest, ok := strings.CutPrefix(text, "did not find expected ")
	switch rest {
	case "node content", "key", "',' or ']'", "',' or '}'", "'-' indicator", "<document start>":
		return ok
	}
	return false
}

// readable returns an error if b contains a character that YAML 1.1 forbids. The parser accepts
// some of these characters. readable does not check UTF-16.
func readable(b []byte) error {
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return nil
	}

	line := 1
	for i := 0; i < len(b); {
		c := b[i]
		if c >= 0x20 && c < 0x7f {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			if c == '\n' {
				line++
			} else if c != '\t' && c != '\r' {
				return &Error{Line: line, Err: fmt.Errorf("unacceptable character #x%04x", c)}
			}
			i++
			continue
		}

		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return &Error{Line: line, Err: errors.New("text is not valid UTF-8")}
		}
		if r != 0x85 && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return &Error{Line: line, Err: fmt.Errorf("unacceptable character #x%04x", r)}
		}

		i += n
	}

	return nil
}
