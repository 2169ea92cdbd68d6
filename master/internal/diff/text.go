package diff

import (
	"encoding/xml"
	"fmt"
	"strings"

	"saltern/internal/printable"
)

// Text returns the report for people. With colour it has the sequences of a terminal.
func (r *Report) Text(colour bool) string {
	p := &painter{colour: colour}
	p.line("", "%s compared with %s: %d of %d minions differ, in %d groups", r.To, r.From, r.Differing, r.Compared,
		len(r.Groups))
	if r.Unknowns > 0 {
		p.line(yellow, "%d minions have no grains on this master and were not compared: %s", r.Unknowns,
			strings.Join(r.Unknown, ", "))
	}
	for _, note := range r.Notes {
		p.line(yellow, "%s", note)
	}

	for _, g := range r.Groups {
		p.line("", "")
		p.line(bold, "%s", g.title())
		g.write(p)
	}
	if r.More > 0 {
		p.line("", "")
		p.line(yellow, "%d more minions differ in ways that are not shown; compare fewer with tgt=", r.More)
	}

	r.writeRefused(p)
	return p.out.String()
}

func (g *group) title() string {
	const shown = 8
	names := strings.Join(g.minions[:min(len(g.minions), shown)], ", ")
	switch {
	case g.count == 1:
		return names
	case g.count > shown:
		names += fmt.Sprintf(" and %d more", g.count-shown)
	}
	return fmt.Sprintf("%d minions: %s", g.count, names)
}

func (g *group) write(p *painter) {
	for _, name := range g.gone {
		p.line(red, "  - SLS %s", name)
	}
	for _, name := range g.new {
		p.line(green, "  + SLS %s", name)
	}
	for _, c := range g.changes {
		switch {
		case c.kind == added:
			p.line(green, "  + %s: %s", c.path, c.to)
		case c.kind == removed:
			p.line(red, "  - %s: %s", c.path, c.from)
		case c.from == c.to:
			p.line(yellow, "  ~ %s: %s changes", c.path, c.to)
		default:
			p.line(yellow, "  ~ %s: %s → %s", c.path, c.from, c.to)
		}
	}
	if g.more > 0 {
		p.line(yellow, "  and %d more changes", g.more)
	}
}

func (r *Report) writeRefused(p *painter) {
	if len(r.Refused) == 0 {
		return
	}
	p.line("", "")
	p.line(bold, "Cannot be told (left out on both sides):")
	for _, f := range r.Refused {
		text := "its text differs, or what it imports"
		if f.same {
			text = "its text is the same, and what it imports"
		}
		p.line(yellow, "  %s %s; %s; %d minions, such as %s", f.file, f.reason, text, f.count, f.minion)
	}
	if r.Unlisted > 0 {
		p.line(yellow, "  and more, %d times", r.Unlisted)
	}
}

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// painter writes lines.
type painter struct {
	out    strings.Builder
	colour bool
}

func (p *painter) line(colour, form string, args ...any) {
	text := printable.Line(fmt.Sprintf(form, args...))
	if p.colour && colour != "" && text != "" {
		text = colour + text + plain
	}
	p.out.WriteString(text + "\n")
}

// JUnit returns the report in the form that CI systems read: a test for each group, which fails,
// and for each SLS that cannot be told.
func (r *Report) JUnit() (string, error) {
	suite := junitSuite{Name: r.Name, Time: fmt.Sprintf("%.2f", r.Seconds)}
	add := func(name, kind, text string) {
		suite.Tests++
		c := junitCase{Name: name, Class: r.Name}
		switch kind {
		case "failure":
			suite.Failures++
			c.Failure = &junitText{Message: name, Text: text}
		case "skipped":
			suite.Skipped++
			c.Skipped = &junitText{Message: text}
		}
		suite.Cases = append(suite.Cases, c)
	}

	if same := r.Compared - r.Differing; same > 0 {
		add(fmt.Sprintf("%d minions without a difference", same), "", "")
	}
	for _, g := range r.Groups {
		p := &painter{}
		g.write(p)
		add(g.title(), "failure", p.out.String())
	}
	if r.More > 0 {
		add(fmt.Sprintf("%d minions differ in ways that are not shown", r.More), "failure", "")
	}
	for _, f := range r.Refused {
		kind := "failure"
		if f.same {
			kind = "skipped"
		}
		add(f.file, kind, "cannot be told: "+f.reason)
	}
	if r.Unlisted > 0 {
		kind := "skipped"
		if r.hidden {
			kind = "failure"
		}
		add("more files that cannot be told", kind, "compare fewer minions with tgt=")
	}
	if r.Compared == 0 {
		add("no minion could be compared", "failure", "")
	}

	out, err := xml.MarshalIndent(suite, "", "  ")
	return xml.Header + string(out) + "\n", err
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Failure *junitText `xml:"failure"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}
