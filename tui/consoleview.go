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
		heading += "  " + clipLine(cleanLine(c.doc.Node), 30)
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
			message = w.pageNote()
		}

		where, body, keys := w.renderPage()
		return drawFrame(c.size, heading, where, body, message, keys)
	}

	if c.helping {
		return drawFrame(c.size, heading, "Help", c.helpBody(), message, "any key: back to the page")
	}

	where := clipLine(cleanLine(c.doc.Version), 36)
	if c.seen && c.err == nil {
		where += "  " + c.doc.Time.UTC().Format("15:04 UTC")
	}

	return drawFrame(c.size, heading, where, c.renderBody(), message, c.footer())
}

const menu = `1 status details   4 support bundle   7 log in             m lines for minions
2 logs             5 restart...                            k keys of minions
3 network          6 shut down...                          j join string`

// menuOfAccess is the menu when the page offers access to the administrator's account.
const menuOfAccess = `1 status details   4 support bundle   7 log in             m lines for minions
2 logs             5 restart...       8 add an SSH key     k keys of minions
3 network          6 shut down...     9 admin's password   j join string`

const restartMenu = `
 1 restart salt-master          minions reconnect by themselves
 2 restart the load balancer    minions reconnect by themselves
 3 restart this machine         minions go to other nodes, if there are any`

func (c *Console) renderBody() string {
	b := c.size.bodySize()
	switch c.view {
	case restarts:
		return restartMenu
	case keysView:
		return strings.Join(c.keyLines(), "\n")
	case logs, network, minionConf, joining:
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

	choices := menu
	if c.access != nil {
		choices = menuOfAccess
	}

	return strings.Join(shown, "\n") + "\n\n" + choices
}

// statusLines returns the status in lines of the page's width: all lines if room is 0, otherwise
// shortened to at most room lines.
func (c *Console) statusLines(room int) []string {
	width := c.size.bodySize().width
	switch {
	case !c.seen:
		return []string{"", "Reading how this node is ..."}
	case errors.Is(c.err, api.ErrNotRunning):
		text := "The supervisor is still starting, or starts again by itself in a moment. If this text stays for " +
			"some minutes, restart the machine (5)."
		return append([]string{"", bold.Render("UNKNOWN"), ""}, wrapWords(text, width)...)
	case c.err != nil:
		return append([]string{"", bold.Render("UNKNOWN"), ""},
			wrapWords("The supervisor cannot be asked: "+c.err.Error(), width)...)
	}

	lines := status.Fit(c.doc, status.Room{Width: width, Lines: room, Rest: "press 1"}, c.accessLines(width)...)
	for i, l := range lines {
		lines[i] = cleanLine(l)
	}

	lines[0] = bold.Render(lines[0])
	return lines
}

func (c *Console) footer() string {
	const scroll, back = "arrows, PgUp, PgDn: scroll", "Esc: back"
	switch c.view {
	case logs:
		return footer("1: master", "2: load balancer", "PgUp, PgDn: scroll", "Ctrl-G: help", back)
	case restarts:
		return footer("1, 2, 3: restart", helpKeys, back)
	case overview:
		if c.access != nil {
			return footer("1 to 9, m, k, j: choose", helpKeys)
		}
		return footer("1 to 7, m, k, j: choose", helpKeys)
	case keysView:
		return footer("a: accept", "arrows: choose", "r: read again", helpKeys, back)
	case network:
		if c.facts.Managed {
			return footer("c: change the network", "PgUp, PgDn: scroll", helpKeys, back)
		}
	}

	return footer(scroll, helpKeys, back)
}

// helpBody returns the help for the current view.
func (c *Console) helpBody() string {
	var b strings.Builder
	for _, text := range consoleHelp[c.view] {
		b.WriteString("\n" + paragraph("", text, c.size.bodySize().width) + "\n")
	}
	return b.String()
}
