package optparse

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"saltern/master/output"
	"saltern/master/value"
)

// maxHelpColumn is the greatest column at which help texts begin.
const maxHelpColumn = 24

// UsageLine returns the first line of an error message.
func (p *Parser) UsageLine() string { return "Usage: " + p.Prog + " " + p.Usage + "\n" }

// Help returns the help text for a terminal of the given width, in the layout of optparse.
func (p *Parser) Help(columns int) string {
	h := layout{width: max(columns-2, 11)}
	h.column = h.longest(p)
	var b strings.Builder
	b.WriteString(p.UsageLine() + "\n")

	if p.Text != "" {
		b.WriteString(h.fillIndented(p.Text, 0) + "\n\n")
	}

	b.WriteString("Options:\n")
	for i := range p.Options {
		b.WriteString(h.option(&p.Options[i], 2))
	}

	for _, g := range p.Groups {
		b.WriteString("\n  " + g.Title + ":\n")
		if g.Text != "" {
			b.WriteString(h.fillIndented(g.Text, 4) + "\n\n")
		}
		for i := range g.Options {
			b.WriteString(h.option(&g.Options[i], 4))
		}
	}

	if p.Epilog != "" {
		b.WriteString("\n" + h.fillIndented(p.Epilog, 0) + "\n")
	}

	return b.String()
}

type layout struct{ width, column int }

func (h *layout) longest(p *Parser) int {
	n := 0
	for i := range p.Options {
		n = max(n, 2+len(spelling(&p.Options[i])))
	}
	for _, g := range p.Groups {
		for i := range g.Options {
			n = max(n, 4+len(spelling(&g.Options[i])))
		}
	}
	return min(n+2, min(maxHelpColumn, max(h.width-20, 4)))
}

// spelling returns how the help shows an option: "-x ARG, --xyz=ARG".
func spelling(o *Option) string {
	meta := ""
	if o.Kind > Unset {
		meta = o.Metavar
		meta = cmp.Or(meta, strings.ToUpper(o.Dst()))
	}

	var short, long []string
	for _, n := range o.Names {
		switch {
		case strings.HasPrefix(n, "--") && meta != "":
			long = append(long, n+"="+meta)
		case strings.HasPrefix(n, "--"):
			long = append(long, n)
		case meta != "":
			short = append(short, n+" "+meta)
		default:
			short = append(short, n)
		}
	}

	return strings.Join(append(short, long...), ", ")
}

func (h *layout) option(o *Option, indent int) string {
	names := spelling(o)
	pad := strings.Repeat(" ", indent)
	help := o.Help
	if o.Default != nil {
		help = strings.ReplaceAll(help, "%default", value.Str(defaultOf(o.Default)))
	} else {
		help = strings.ReplaceAll(help, "%default", "none")
	}

	lines := output.Wrap(help, max(h.width-h.column, 11))
	room := h.column - indent - 2
	var b strings.Builder
	if len(names) > room {
		fmt.Fprintf(&b, "%s%s\n", pad, names)
		if len(lines) > 0 {
			b.WriteString(strings.Repeat(" ", h.column))
		}
	} else {
		fmt.Fprintf(&b, "%s%-*s  ", pad, room, names)
	}

	if len(lines) == 0 {
		return strings.TrimRight(b.String(), " \n") + "\n"
	}

	for i, l := range lines {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", h.column))
		}
		b.WriteString(l + "\n")
	}

	return b.String()
}

func defaultOf(v any) any {
	if n, ok := v.(int); ok {
		return int64(n)
	}
	return v
}

func (h *layout) fillIndented(text string, indent int) string {
	pad := strings.Repeat(" ", indent)
	lines := output.Wrap(text, max(h.width-indent, 11))
	for i, l := range lines {
		if utf8.RuneCountInString(l) > 0 {
			lines[i] = pad + l
		}
	}
	return strings.Join(lines, "\n")
}
