package tui

import (
	"errors"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// View implements tea.Model.
func (c *Console) View() tea.View {
	v := tea.NewView(c.screen())
	v.AltScreen = true
	return v
}

func (c *Console) screen() string {
	heading := "Saltern"
	if c.doc.Node != "" {
		heading += "  " + clip(clean(c.doc.Node), 30)
	}
	message := c.message
	if c.busy != "" {
		message = c.busy
	}
	if c.ask != nil {
		message = c.ask.text
	}
	if w := c.changing; w != nil {
		message = w.message
		if w.busy != "" {
			message = w.busy
		}
		if message == "" {
			message = w.note()
		}
		where, body, keys := w.page()
		return frame(c.size, heading, where, body, message, keys)
	}
	return frame(c.size, heading, clip(clean(c.doc.Version), 36), c.body(), message, c.keys())
}

const menu = ` 1 status details   3 network            5 restart       7 log in
 2 logs             4 support bundle     6 shut down`

const menuOfKeys = "     8 add an SSH key"

const restartMenu = `
 1 restart salt-master          minions reconnect by themselves
 2 restart the load balancer    minions reconnect by themselves
 3 restart this machine`

func (c *Console) body() string {
	b := c.size.body()
	switch c.view {
	case restarts:
		return restartMenu
	case logs, network:
		return scrolled(c.lines, &c.from, b.height)
	case details:
		return scrolled(c.statusLines(true), &c.from, b.height)
	}
	lines := c.statusLines(false)
	room := b.height - 3
	shown := lines
	if len(lines) > room {
		shown = append(append([]string{}, lines[:room-1]...), fmt.Sprintf("  ... %d more lines: press 1", len(lines)-room+1))
	}
	for len(shown) < room {
		shown = append(shown, "")
	}
	text := strings.Join(shown, "\n") + "\n\n" + menu
	if c.access != nil {
		text += menuOfKeys
	}
	return text
}

// statusLines is the status as text that fits the width: wrapped when whole,
// else cut.
func (c *Console) statusLines(whole bool) []string {
	width := c.size.body().width
	switch {
	case !c.seen:
		return []string{"", "Asking the supervisor ..."}
	case errors.Is(c.err, api.ErrNotRunning):
		return []string{"", bold.Render("UNKNOWN"), "", "The supervisor does not run. It is started by itself in a moment; if it is", "not, restart the machine (5)."}
	case c.err != nil:
		return append([]string{"", bold.Render("UNKNOWN"), ""}, wrap(c.err.Error(), width)...)
	}
	var text strings.Builder
	_ = status.WriteText(&text, c.doc) // a Builder takes everything
	var lines []string
	login := c.accessLines(width)
	for i, l := range strings.Split(strings.TrimRight(text.String(), "\n"), "\n") {
		if strings.HasPrefix(l, "NODE ") {
			lines = append(lines, login...)
		}
		flat := strings.TrimLeft(clean(l), " ")
		indent := strings.Repeat(" ", len(clean(l))-len(flat))
		switch {
		case i == 0:
			lines = append(lines, bold.Render(clip(clean(l), width)))
		case strings.HasPrefix(l, status.SetupPrefix): // nothing else is of interest then
			lines = append(lines, strings.Split(paragraph("", flat, width), "\n")...)
		case whole && len(l) > width && strings.Count(flat, "  ") > 2:
			lines = append(lines, foldRow(clean(l), width)...)
		case whole && len(indent)+len(flat) > width:
			lines = append(lines, strings.Split(paragraph(indent, flat, width), "\n")...)
		default:
			lines = append(lines, clip(clean(l), width))
		}
	}
	return lines
}

// foldRow breaks a row of a table between two columns, so that the rest of each
// row stays aligned on a line of its own.
func foldRow(row string, width int) []string {
	at := strings.LastIndex(row[:min(width+2, len(row))], "  ")
	if at < 0 || len(row) <= width {
		return []string{clip(row, width)}
	}
	return []string{strings.TrimRight(row[:at], " "), clip("    "+strings.TrimLeft(row[at:], " "), width)}
}

func (c *Console) keys() string {
	switch c.view {
	case logs:
		return "1: salt-master   2: load balancer   arrows, PgUp, PgDn: scroll   Esc: back"
	case restarts:
		return "1, 2, 3: restart   Esc: back"
	case overview:
		if c.access != nil {
			return "1 to 8: choose"
		}
		return "1 to 7: choose"
	case network:
		if c.facts.Managed {
			return "c: change the network   arrows, PgUp, PgDn: scroll   Esc: back"
		}
	}
	return "arrows, PgUp, PgDn: scroll   Esc: back"
}
