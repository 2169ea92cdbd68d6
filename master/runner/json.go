package runner

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/master/value"
)

// JSON returns a value in the form in which Python's json.dumps formats it for state.event: on one
// line with a space after commas and colons, or, if pretty is set, on several lines with an indent
// of four spaces and sorted keys. Bytes become base64. In text it escapes what JSON requires, and
// characters that are unsafe on a terminal.
func JSON(v any, pretty bool) string {
	j := value.JSON{Indent: -1, Escape: printable.Unsafe, Other: otherText}
	if pretty {
		j.Indent, j.Order = 4, byText
	}
	s, _ := j.Text(v)
	return s
}

func byText(m *value.Map) ([]any, bool) {
	var keys []any
	for k := range m.All() {
		keys = append(keys, k)
	}
	slices.SortStableFunc(keys, func(a, b any) int { return strings.Compare(value.JSONKey(a), value.JSONKey(b)) })
	return keys, true
}

func otherText(v any) string {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case value.Ext:
		return string(bytes.ToValidUTF8(v.Data, []byte("?")))
	}
	return textOf(v)
}
