package output

import (
	"saltern/internal/printable"
	"saltern/master/value"
)

// jsonText implements salt/output/json_out.py: Python's json.dumps with ensure_ascii=False and with
// bytes as their repr.
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

	if o.Terminal && o.StripEscapes { // for a reader of JSON the escaped text means the same
		j.Escape = printable.Unsafe
	}

	text, ok := j.Text(v)
	if !ok {
		return "{}" // Salt prints this for a map whose keys cannot be sorted
	}

	return text
}
