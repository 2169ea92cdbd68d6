// Package optionmap reads options of the master whose values are maps. It never quotes a value,
// because values may be secret.
package optionmap

import (
	"fmt"
	"strings"

	"saltern/master/value"
)

// Reader reads the keys of a map and collects what is wrong with them. It is not safe for concurrent use.
type Reader struct {
	Map    *value.Map
	Faults []error
}

// Fail adds a fault of a key.
func (r *Reader) Fail(key, format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Errorf("%s: %w", key, fmt.Errorf(format, args...)))
}

// Err returns the first fault, or nil.
func (r *Reader) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return r.Faults[0]
}

// Line returns the text of a key, of one line and at most so many bytes, or "" without the key.
func (r *Reader) Line(key string, most int) string {
	v := r.Map.Value(key)
	if v == nil {
		return ""
	}
	text, ok := v.(string)
	if !ok || len(text) > most || strings.ContainsFunc(text, isControl) {
		r.Fail(key, "it has to be a text of one line")
		return ""
	}
	return text
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// Texts returns the texts of a key, each of at most so many bytes: a text, or a list of texts. It returns nil
// without the key.
func (r *Reader) Texts(key string, most int) (texts []string) {
	v := r.Map.Value(key)
	if v == nil {
		return nil
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}

	for _, e := range list {
		text, ok := e.(string)
		if !ok || text == "" || len(text) > most {
			r.Fail(key, "it has to be a text, or a list of texts")
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// Bool returns the boolean of a key, or false without the key.
func (r *Reader) Bool(key string) bool {
	v := r.Map.Value(key)
	on, ok := v.(bool)
	if v != nil && !ok {
		r.Fail(key, "it has to be True or False")
	}
	return on
}
