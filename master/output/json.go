package output

import (
	"saltern/internal/printable"
	"saltern/master/value"
)

// jsonText implements salt/output/json_out.py: Python's json.dumps with ensure_ascii=False, bytes
// as their repr.
func jsonText(v any, o *Options) string {
	j := value.JSON{Indent: 4}
	switch {
	case o.Indent.Pretty:
		j.Order = sortedKeys
	case o.Indent.Set && o.Indent.Width < 0:
		j.Indent = -1
	case o.Indent.Set:
		j.Indent = o.Indent.Width
	}

	if o.Terminal && o.StripEscapes { // the same text to a reader of JSON
		j.Escape = printable.Unsafe
	}

	text, ok := j.Text(v)
	if !ok {
		return "{}" // what Salt prints when keys cannot be sorted
	}

	return text
}
