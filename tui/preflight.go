package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
)

// preflightPage shows the checks of the answers, which the supervisor makes before it changes
// anything.
type preflightPage struct {
	checks []setup.Check
	done   bool
	from   int // index of the first line shown
}

type preflighted struct {
	turn   int
	checks []setup.Check
	err    error
}

func (p *preflightPage) heading() string        { return "Checks" }
func (p *preflightPage) applies(w *Wizard) bool { return true }

func (p *preflightPage) opened(w *Wizard) tea.Cmd {
	p.checks = nil
	p.done = false
	p.from = 0
	w.busy = "Checking; this takes up to a minute ..."
	turn, a := w.turn, w.draft.answers()
	return func() tea.Msg {
		c, err := w.api.SetupPreflight(w.ctx, a)
		return preflighted{turn, c, err}
	}
}

// passed reports whether the set-up may continue.
func (p *preflightPage) passed() bool {
	for _, c := range p.checks {
		if c.Result == setup.Fail {
			return false
		}
	}
	return p.done
}

func (p *preflightPage) update(w *Wizard, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case preflighted:
		if msg.turn != w.turn {
			return nil
		}

		w.busy = ""
		p.checks = msg.checks
		p.done = msg.err == nil
		switch {
		case msg.err != nil:
			w.message = "The checks could not be run: " + cleanLine(msg.err.Error())
		case p.passed() && slices.ContainsFunc(p.checks, func(c setup.Check) bool { return c.Result == setup.Warn }):
			w.message = "The set-up can go on. Look at the warnings first."
		case p.passed():
			w.message = "The set-up can go on."
		default:
			w.message = "The set-up cannot go on: fix what is marked [fail], then press r."
		}
	case tea.KeyPressMsg:
		switch key := msg.String(); {
		case key == "esc":
			return w.goBack()
		case w.busy != "":
		case key == "r":
			return w.openPage()
		case key == "enter" && p.passed():
			return w.forward()
		case key == "down":
			p.from++
		case key == "up":
			p.from = max(0, p.from-1)
		}
	}

	return nil
}

// looksAt returns a text that says what the checks examine.
func looksAt(w *Wizard) string {
	if forming(w) {
		return "Looking at this machine's memory, disks, clock, addresses and ports."
	}
	return "Looking at this machine's memory, disks, clock, addresses and ports, at the way to the other " +
		"nodes, and at the cluster's version and proof."
}

func (p *preflightPage) render(w *Wizard) string {
	if w.busy != "" {
		return "\n" + paragraph("", looksAt(w), w.size.bodySize().width)
	}

	b := w.size.bodySize()
	var lines []string
	for _, c := range p.checks {
		text := c.What
		text = cmp.Or(text, c.Name)
		if c.Detail != "" {
			text += ": " + c.Detail
		}

		lines = append(lines, strings.Split(paragraph(fmt.Sprintf("[%-4s] ", c.Result), text, b.width), "\n")...)
		if c.Hint != "" && (c.Result == setup.Fail || c.Result == setup.Warn) {
			lines = append(lines, strings.Split(paragraph("       -> ", c.Hint, b.width), "\n")...)
		}
	}

	return "\n" + scrolled(lines, &p.from, b.height-1)
}

// scrolled returns the lines from index *firstLine on that fit into room lines. If *firstLine is
// out of range, scrolled corrects it.
func scrolled(lines []string, firstLine *int, room int) string {
	*firstLine = max(0, min(*firstLine, len(lines)-room))
	if len(lines) <= room {
		return strings.Join(lines, "\n")
	}
	part := append([]string{}, lines[*firstLine:*firstLine+room]...)
	if *firstLine+room < len(lines) {
		part[room-1] = fmt.Sprintf("  ... %d more lines (arrow down)", len(lines)-*firstLine-room+1)
	}
	return strings.Join(part, "\n")
}

func (p *preflightPage) keyHelp(*Wizard) string {
	if p.passed() {
		return footer("Enter: next", "r: check again", helpKeys, "Esc: back", "Ctrl-C: leave")
	}
	return footer("r: check again", helpKeys, "Esc: back", "Ctrl-C: leave")
}
