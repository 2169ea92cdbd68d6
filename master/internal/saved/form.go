package saved

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"saltern/master/value"
)

// form reads the settings of an object. The first error counts.
type form struct {
	settings *value.Map
	known    map[string]bool
	err      error
}

func newForm(settings *value.Map) *form { return &form{settings: settings, known: map[string]bool{}} }

func (f *form) fail(format string, a ...any) {
	if f.err == nil {
		f.err = badf(format, a...)
	}
}

// get returns a value, or nil if it is not there or None.
func (f *form) get(key string) any {
	f.known[key] = true
	return f.settings.Value(key)
}

// text returns a text of at most limit bytes, or "".
func (f *form) text(key string, limit int) string {
	v := f.get(key)
	if v == nil {
		return ""
	}
	text, ok := v.(string)
	switch {
	case !ok:
		f.fail("%s must be text: quote it", key)
	case len(text) > limit:
		f.fail("%s has %d bytes, at most %d", key, len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		f.fail("%s is no text", key)
	}
	return text
}

// description returns the text that tells people what the object is for. It may have several lines.
func (f *form) description() string {
	text := f.text("description", maxDescription)
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		f.fail("description has a character that is not printed")
	}
	return text
}

func (f *form) flag(key string) bool {
	v := f.get(key)
	b, ok := v.(bool)
	if v != nil && !ok {
		f.fail("%s is True or False", key)
	}
	return b
}

func (f *form) list(key string, limit int) []any {
	v := f.get(key)
	list, ok := v.([]any)
	if v != nil && !ok {
		f.fail("%s must be a list", key)
	}
	if len(list) > limit {
		f.fail("%s has %d entries, at most %d", key, len(list), limit)
	}
	return list
}

func (f *form) mapping(key string) *value.Map {
	v := f.get(key)
	m, ok := v.(*value.Map)
	if v != nil && !ok {
		f.fail("%s must be a map", key)
	}
	return m
}

// end returns the first error. A key that nobody has read is one.
func (f *form) end() error {
	for k := range f.settings.All() {
		if key, _ := k.(string); !f.known[key] {
			f.fail("there is no setting %.40q here", key)
		}
	}
	return f.err
}
