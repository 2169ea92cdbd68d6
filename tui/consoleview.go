package tui

import (
	"errors"
	"fmt"
	"slices"
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
	where := clip(clean(c.doc.Version), 36)
	if c.seen && c.err == nil {
		where += "  " + c.doc.Time.UTC().Format("15:04 UTC")
	}
	return frame(c.size, heading, where, c.body(), message, c.keys())
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
		return scrolled(c.statusLines(0), &c.from, b.height)
	}
	room := b.height - strings.Count(menu, "\n") - 2
	shown := c.statusLines(room)
	if len(shown) > room {
		shown = append(slices.Clone(shown[:room-1]), fmt.Sprintf("  ... %d more lines: press 1", len(shown)-room+1))
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

// statusLines is the status in lines that fit the width: as many as there are with room
// 0, else worded so briefly that they fit into room, where there is a status.
func (c *Console) statusLines(room int) []string {
	width := c.size.body().width
	switch {
	case !c.seen:
		return []string{"", "Asking the supervisor ..."}
	case errors.Is(c.err, api.ErrNotRunning):
		text := "The supervisor does not run. It starts again by itself in a moment; if it does not, restart the machine (5)."
		return append([]string{"", bold.Render("UNKNOWN"), ""}, wrap(text, width)...)
	case c.err != nil:
		return append([]string{"", bold.Render("UNKNOWN"), ""}, wrap(c.err.Error(), width)...)
	}
	lines := status.Fit(c.doc, status.Room{Width: width, Lines: room, Rest: "press 1"}, c.accessLines(width)...)
	for i, l := range lines {
		lines[i] = clean(l)
	}
	lines[0] = bold.Render(lines[0])
	return lines
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
