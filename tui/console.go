package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// refreshEvery is how often the console page asks for the status.
const refreshEvery = 3 * time.Second

// Action is what the console page ends with; the command carries it out.
type Action string

// The actions.
const (
	Leave    Action = ""
	Login    Action = "log in"
	Reboot   Action = "restart the machine"
	PowerOff Action = "shut down the machine"
)

// Console is the page of a node that is set up, as a bubbletea model: status,
// and a menu by number. It is used by one goroutine, bubbletea's.
type Console struct {
	ctx     context.Context
	api     Supervisor
	support func(context.Context) (string, error) // writes a bundle, gives its path
	size    size

	doc  status.Document
	err  error
	seen bool // doc or err is an answer

	view    consoleView
	lines   []string // of the view, when it is not made from the status
	from    int
	busy    string
	message string
	ask     *question
	action  Action
}

type consoleView int

const (
	overview consoleView = iota
	details
	logs
	network
	restarts
)

// NewConsole gives the console page. support writes a support bundle and
// gives its path.
func NewConsole(ctx context.Context, s Supervisor, support func(context.Context) (string, error)) *Console {
	return &Console{ctx: ctx, api: s, support: support, size: size{minWidth, minHeight}}
}

// Action is what was chosen when the page ended.
func (c *Console) Action() Action { return c.action }

type statusMsg struct {
	doc status.Document
	err error
}

type refreshNow struct{}

// linesMsg are lines for a view that was asked for.
type linesMsg struct {
	view  consoleView
	lines []string
	err   error
}

// doneMsg says how something went that was asked for.
type doneMsg struct {
	text string
	err  error
}

// Init implements tea.Model.
func (c *Console) Init() tea.Cmd { return c.refresh() }

func (c *Console) refresh() tea.Cmd {
	return func() tea.Msg {
		d, err := c.api.Status(c.ctx)
		return statusMsg{d, err}
	}
}

// Update implements tea.Model.
func (c *Console) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && msg.Height > 0 {
			c.size = size{msg.Width, msg.Height}
		}
	case refreshNow:
		return c, c.refresh()
	case statusMsg:
		c.doc, c.err, c.seen = msg.doc, msg.err, true
		return c, tea.Tick(refreshEvery, func(time.Time) tea.Msg { return refreshNow{} })
	case linesMsg:
		c.busy = ""
		if msg.view == c.view {
			c.lines = msg.lines
			if msg.err != nil {
				c.lines = wrap(msg.err.Error(), c.size.body().width)
			}
			if c.view == logs {
				c.from = len(c.lines) // the newest
			}
		}
	case doneMsg:
		c.busy, c.message = "", msg.text
		if msg.err != nil {
			c.message = clean(msg.err.Error())
		}
	case tea.KeyPressMsg:
		return c, c.key(msg.String())
	}
	return c, nil
}

func (c *Console) key(key string) tea.Cmd {
	if q := c.ask; q != nil {
		switch key {
		case "y", "Y":
			c.ask = nil
			return q.yes()
		case "n", "N", "esc", "ctrl+c":
			c.ask = nil
		}
		return nil
	}
	c.message = ""
	page := c.size.body().height - 2
	switch key {
	case "ctrl+c":
		return c.ending(Leave)()
	case "esc", "0", "q":
		if c.view == overview && key == "q" {
			return c.ending(Leave)()
		}
		c.show(overview)
		return nil
	case "down":
		c.from++
		return nil
	case "up":
		c.from--
		return nil
	case "pgdown", "space", " ":
		c.from += page
		return nil
	case "pgup":
		c.from -= page
		return nil
	}
	switch c.view {
	case logs:
		return c.logKey(key)
	case restarts:
		return c.restartKey(key)
	}
	return c.menuKey(key)
}

func (c *Console) show(v consoleView) {
	c.view, c.from, c.lines = v, 0, nil
}

func (c *Console) menuKey(key string) tea.Cmd {
	switch key {
	case "1":
		c.show(details)
	case "2":
		return c.logs("master")
	case "3":
		c.show(network)
		return func() tea.Msg {
			f, err := c.api.SetupFacts(c.ctx)
			return linesMsg{network, networkLines(f), err}
		}
	case "4":
		c.confirm("Write a support bundle? It holds no secrets. (y/n)", func() tea.Cmd {
			c.busy = "Writing a support bundle ..."
			return func() tea.Msg {
				path, err := c.support(c.ctx)
				return doneMsg{"Written: " + clean(path), err}
			}
		})
	case "5":
		c.show(restarts)
	case "6":
		c.confirm("Shut down this machine? Its minions go to other nodes, if there are any. (y/n)", c.ending(PowerOff))
	case "7":
		return c.ending(Login)()
	}
	return nil
}

func (c *Console) confirm(text string, yes func() tea.Cmd) { c.ask = &question{text, yes} }

func (c *Console) ending(a Action) func() tea.Cmd {
	return func() tea.Cmd {
		c.action = a
		return tea.Quit
	}
}

func (c *Console) logs(service string) tea.Cmd {
	c.show(logs)
	c.busy = "Reading ..."
	return func() tea.Msg {
		got, err := c.api.Output(c.ctx, service, 200)
		lines := []string{"The last lines of " + service + ":"}
		for _, l := range got {
			lines = append(lines, wrap(l, minWidth-2)...)
		}
		return linesMsg{logs, lines, err}
	}
}

func (c *Console) logKey(key string) tea.Cmd {
	switch key {
	case "1":
		return c.logs("master")
	case "2":
		return c.logs("lb")
	}
	return nil
}

func (c *Console) restartKey(key string) tea.Cmd {
	restart := func(service, what string) {
		c.confirm("Restart "+what+"? (y/n)", func() tea.Cmd {
			c.busy = "Restarting " + what + " ..."
			return func() tea.Msg { return doneMsg{what + " is being restarted.", c.api.Restart(c.ctx, service)} }
		})
	}
	switch key {
	case "1":
		restart("master", "salt-master")
	case "2":
		restart("lb", "the load balancer")
	case "3":
		c.confirm("Restart this machine? (y/n)", c.ending(Reboot))
	}
	return nil
}

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
	return frame(c.size, heading, clip(clean(c.doc.Version), 36), c.body(), message, c.keys())
}

const menu = ` 1 status details   3 network            5 restart       7 log in
 2 logs             4 support bundle     6 shut down`

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
	return strings.Join(shown, "\n") + "\n\n" + menu
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
	for i, l := range strings.Split(strings.TrimRight(text.String(), "\n"), "\n") {
		flat := strings.TrimLeft(clean(l), " ")
		indent := strings.Repeat(" ", len(clean(l))-len(flat))
		switch {
		case strings.HasPrefix(l, "exit "):
		case i == 0:
			lines = append(lines, bold.Render(clip(clean(l), width)))
		case whole && len(indent)+len(flat) > width:
			lines = append(lines, strings.Split(paragraph(indent, flat, width), "\n")...)
		default:
			lines = append(lines, clip(clean(l), width))
		}
	}
	return lines
}

func networkLines(f setup.Facts) []string {
	lines := []string{"Host name  " + clean(f.Hostname), ""}
	for _, i := range f.Interfaces {
		state := "no cable"
		if i.Up {
			state = "up"
		}
		if i.Default {
			state += ", default route"
		}
		lines = append(lines, clip(fmt.Sprintf("%-10s %s  MTU %d  %s", clean(i.Name), clean(i.MAC), i.MTU, state), minWidth-2))
		for _, a := range i.Addresses {
			lines = append(lines, "           "+clean(a))
		}
	}
	if len(f.Interfaces) == 0 {
		lines = append(lines, "No interfaces are known.")
	}
	return lines
}

func (c *Console) keys() string {
	switch c.view {
	case logs:
		return "1: salt-master   2: load balancer   arrows, PgUp, PgDn: scroll   Esc: back"
	case restarts:
		return "1, 2, 3: restart   Esc: back"
	case overview:
		return "1 to 7: choose"
	}
	return "arrows, PgUp, PgDn: scroll   Esc: back"
}
