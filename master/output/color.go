package output

import "saltern/internal/printable"

// palette holds the escape sequences of the colours. When colours are off, all of them are ""
// (salt/utils/color.py get_colors).
type palette struct {
	red, lightRed, green, lightGreen, yellow, lightYellow string
	blue, lightBlue, magenta, lightMagenta, cyan, end     string
	darkGray, lightGray, white                            string
}

func (o *Options) colors() palette {
	if !o.Color {
		return palette{}
	}

	sgr := func(params string) string { return "\x1b[" + params + "m" }
	return palette{
		red:          sgr("0;31"),
		lightRed:     sgr("0;1;31"),
		green:        sgr("0;32"),
		lightGreen:   sgr("0;1;32"),
		yellow:       sgr("0;33"),
		lightYellow:  sgr("0;1;33"),
		blue:         sgr("0;34"),
		lightBlue:    sgr("0;1;34"),
		magenta:      sgr("0;35"),
		lightMagenta: sgr("0;1;35"),
		cyan:         sgr("0;36"),
		end:          sgr("0;0"),
		darkGray:     sgr("0;1;30"),
		lightGray:    sgr("0;37"),
		white:        sgr("0;1;37"),
	}
}

// stripEscapes returns text from minions in a form that is safe on a terminal (see
// [printable.Text]), unless the option StripEscapes is off.
func (o *Options) stripEscapes(s string) string {
	if !o.StripEscapes {
		return s
	}
	return printable.Text(s)
}

// stripLine works like stripEscapes, for text that must be one line, and removes line breaks.
// Otherwise an id or a key with a line break could look like the result of another minion.
func (o *Options) stripLine(s string) string {
	if !o.StripEscapes {
		return s
	}
	return printable.Line(s)
}
