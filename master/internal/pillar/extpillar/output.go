package extpillar

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// maxRead bounds the outputs that Go reads, in bytes. A larger one is read in a worker, whose memory
// is bounded.
const maxRead = 1 << 20

// read returns the values in the output of a command. It returns ErrInexact for an output with an
// error, without a map, or that Salt may read in another way.
func (e *Entry) read(output []byte) (*value.Map, error) {
	if len(output) > maxRead || !utf8.Valid(output) {
		return nil, ErrInexact
	}

	text := strings.TrimRight(string(output), " \t\n\v\f\r\x1c\x1d\x1e\x1f") // as str.rstrip
	if last, _ := utf8.DecodeLastRuneInString(text); last >= utf8.RuneSelf && unicode.IsSpace(last) {
		return nil, ErrInexact
	}

	read := renderer.ExactYAML
	if e.Name == "cmd_json" {
		read = exactJSON
	}
	m, ok := read(text)
	if !ok || hasAmbiguousKey(m) {
		return nil, ErrInexact
	}
	return m, nil
}

// hasAmbiguousKey reports whether a value has a map with a key that equals one of another type in
// Python, where 1 and True are one key of a dictionary.
func hasAmbiguousKey(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, hasAmbiguousKey)
	case *value.Map:
		for k, x := range v.All() {
			_, isBool := k.(bool)
			if isBool || k == int64(0) || k == int64(1) || hasAmbiguousKey(x) {
				return true
			}
		}
	}
	return false
}

// unsureJSON matches what Go and Python may read in another way: halves of surrogate pairs, and whole
// numbers that do not fit.
var unsureJSON = regexp.MustCompile(`\\u[dD][89a-fA-F]|[0-9]{19}`)

// exactJSON reads a map as Python's json.loads does. It returns false for anything else.
func exactJSON(text string) (*value.Map, bool) {
	if !json.Valid([]byte(text)) || unsureJSON.MatchString(text) {
		return nil, false
	}
	v, err := value.ParseJSON([]byte(text))
	m, ok := v.(*value.Map)
	return m, err == nil && ok
}
