package output

import "saltern/printable"

// palette holds the escape sequences of the colours, all empty when colours
// are off (salt/utils/color.py get_colors).
type palette struct {
	red, lightRed, green, lightGreen, yellow, lightYellow string
	blue, lightBlue, magenta, lightMagenta, cyan, end     string
	darkGray, lightGray, white                            string
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
		darkGray: sgr("DARK_GRAY", "0;1;30"), lightGray: sgr("LIGHT_GRAY", "0;37"), white: sgr("WHITE", "0;1;37"),
	}
}

// strip makes text from elsewhere safe for a terminal; see [printable.Text].
func (o *Options) strip(s string) string {
	if !o.StripEscapes {
		return s
	}
	return printable.Text(s)
}

// stripLine is strip for what must stay on one line: an id or a key that breaks its
// line could pass for the result of another minion.
func (o *Options) stripLine(s string) string {
	if !o.StripEscapes {
		return s
	}
	return printable.Line(s)
}
