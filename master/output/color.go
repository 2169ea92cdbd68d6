package output

import "strings"

// palette holds the escape sequences of the colours, all empty when colours
// are off (salt/utils/color.py get_colors).
type palette struct {
	red, lightRed, green, lightGreen, yellow, lightYellow string
	blue, lightBlue, magenta, lightMagenta, cyan, end     string
}

func (o *Options) colors() palette {
	if !o.Color {
		return palette{}
	}
	sgr := func(name, params string) string {
		if t, ok := o.Theme[name]; ok {
			params = t
		}
		return "\x1b[" + params + "m"
	}
	return palette{
		red: sgr("RED", "0;31"), lightRed: sgr("LIGHT_RED", "0;1;31"),
		green: sgr("GREEN", "0;32"), lightGreen: sgr("LIGHT_GREEN", "0;1;32"),
		yellow: sgr("YELLOW", "0;33"), lightYellow: sgr("LIGHT_YELLOW", "0;1;33"),
		blue: sgr("BLUE", "0;34"), lightBlue: sgr("LIGHT_BLUE", "0;1;34"),
		magenta: sgr("MAGENTA", "0;35"), lightMagenta: sgr("LIGHT_MAGENTA", "0;1;35"),
		cyan: sgr("CYAN", "0;36"), end: sgr("ENDC", "0;0"),
	}
}

// strip makes terminal escapes in text from elsewhere harmless: ESC and the
// C1 controls, which 8-bit terminals take for escapes too, become "?".
func (o *Options) strip(s string) string {
	if !o.StripEscapes {
		return s
	}
	return Strip(s)
}

// Strip replaces ESC and the C1 controls by "?"
// (salt/output/__init__.py strip_esc_sequence replaces ESC).
func Strip(s string) string {
	if strings.IndexFunc(s, isEscape) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if isEscape(r) {
			return '?'
		}
		return r
	}, s)
}

// isEscape spares U+0085, which is a line break in Python and never reaches
// the terminal.
func isEscape(r rune) bool { return r == 0x1b || r >= 0x80 && r <= 0x9f && r != 0x85 }
