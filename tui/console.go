package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// How often the console page asks for the status: refreshEvery while somebody uses the page or
// something is wrong, otherwise refreshCalm.
const (
	refreshEvery = 3 * time.Second
	refreshCalm  = 10 * time.Second
)

// Action is the user's choice at the end of the console page, which the command carries out.
type Action string

// The actions.
const (
	Leave    Action = ""
	Login    Action = "log in"
	Reboot   Action = "restart the machine"
	PowerOff Action = "shut down the machine"
)

// Console is the page of a node whose set-up is complete, as a bubbletea model: the node's status
// and a numbered menu. Only bubbletea's goroutine uses it.
type Console struct {
	ctx     context.Context
	api     Supervisor
	support func(context.Context) (string, error) // writes a support bundle and returns its path
	size    size
	access  Access // may be nil: the page offers no access
	locked  bool   // changes need a login, and the user has not logged in
	// stranger is true while the user has not logged in.
	stranger bool

	doc  status.Document
	err  error
	seen bool // whether the first request to the supervisor has ended

	pressed time.Time // time of the last key press
	chain   int       // number of the present chain of refreshes; refreshes of older chains stop

	view    consoleView
	helping bool
	keys    pendingKeys
	lines   []string // lines of a view that does not show the status
	from    int
	busy    string
	message string
	ask     *question
	action  Action

	facts    setup.Facts // facts shown in the network view
	changing *Wizard     // a change of the network; nil while there is none
}

type consoleView int

const (
	overview consoleView = iota
	details
	logs
	network
	restarts
	minionConf
	keysView
	joining
)

// NewConsole creates the console page. support writes a support bundle and returns its path.
func NewConsole(ctx context.Context, s Supervisor, support func(context.Context) (string, error)) *Console {
	return &Console{
		ctx:     ctx,
		api:     s,
		support: support,
		size:    size{minWidth, minHeight},
		pressed: time.Now(),
	}
}

// Lock disables the choices that change something: the user must log in first.
func (c *Console) Lock() { c.locked = true }

const lockedText = "This needs the administrator. Log in (7), then: sudo applianced console"

// Action returns the choice with which the page ended.
func (c *Console) Action() Action { return c.action }

type statusMsg struct {
	doc   status.Document
	err   error
	chain int
}

type refreshNow struct{ chain int }

// factsMsg is the message with the facts for the network view.
type factsMsg struct {
	facts setup.Facts
	err   error
}

// linesMsg is the message with the lines of a view.
type linesMsg struct {
	view  consoleView
	lines []string
	err   error
}

// doneMsg is the message with the outcome of a request.
type doneMsg struct {
	text string
	err  error
}

// Init implements tea.Model.
func (c *Console) Init() tea.Cmd { return c.refresh() }

func (c *Console) refresh() tea.Cmd {
	chain := c.chain
	return func() tea.Msg {
		d, err := c.api.Status(c.ctx)
		return statusMsg{d, err, chain}
	}
}

// refreshDelay returns the time to the next refresh.
func (c *Console) refreshDelay() time.Duration {
	if c.err == nil && c.doc.Health == status.Healthy && time.Since(c.pressed) >= time.Minute {
		return refreshCalm
	}
	return refreshEvery
}

// secretsFor is how long a view that needed the administrator's password stays open without a key
// press.
const secretsFor = 2 * time.Minute

// hideSecrets closes a view that shows a secret or keys when no key was pressed for secretsFor.
func (c *Console) hideSecrets() {
	if (c.view == joining || c.view == keysView) && time.Since(c.pressed) >= secretsFor {
		c.ask = nil
		c.showView(overview)
	}
}

// touched records the time of a key press. If the page was refreshed rarely until now, it refreshes
// the page at once, so that the user sees the present state.
func (c *Console) touched() tea.Cmd {
	calm := c.refreshDelay() == refreshCalm
	c.pressed = time.Now()
	if !calm {
		return nil
	}
	c.chain++
	return c.refresh()
}

// Update implements tea.Model.
func (c *Console) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && msg.Height > 0 {
			c.size = size{msg.Width, msg.Height}
		}
	}

	var again tea.Cmd
	if _, ok := msg.(tea.KeyPressMsg); ok {
		again = c.touched()
	}

	if cmd, taken := c.inChange(msg); taken {
		return c, tea.Batch(cmd, again)
	}

	switch msg := msg.(type) {
	case factsMsg:
		c.facts = msg.facts
		c.showLines(linesMsg{view: network, lines: networkLines(msg.facts), err: msg.err})
	case refreshNow:
		if msg.chain == c.chain {
			return c, c.refresh()
		}
	case statusMsg:
		c.doc = msg.doc
		c.err = msg.err
		c.seen = true
		c.hideSecrets()
		if msg.chain == c.chain {
			return c, tea.Tick(c.refreshDelay(), func(time.Time) tea.Msg { return refreshNow{msg.chain} })
		}
	case linesMsg:
		c.showLines(msg)
	case keysAdded: // the user has left the page of the key meanwhile
		c.message = c.wordAdded(msg)
	case passwordSet:
		c.message = c.newPassword(msg)
	case keysRead:
		c.keysRead(msg)
	case keyAccepted:
		return c, c.keyAccepted(msg)
	case doneMsg:
		c.busy, c.message = "", msg.text
		if msg.err != nil {
			c.message = cleanLine(msg.err.Error())
		}
	case tea.KeyPressMsg:
		return c, tea.Batch(c.handleKey(msg.String()), again)
	}

	return c, nil
}

// showLines shows the lines of a view, or the error of reading them. If the user has left the view,
// it does nothing.
func (c *Console) showLines(msg linesMsg) {
	c.busy = ""
	if msg.view != c.view {
		return
	}

	c.lines = msg.lines
	if msg.err != nil {
		c.lines = wrapWords(msg.err.Error(), c.size.bodySize().width)
	}
	if c.view == logs {
		c.from = len(c.lines) // scrolls to the newest lines
	}
}

func (c *Console) handleKey(key string) tea.Cmd {
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
	if c.helping || isHelp(key, false) {
		c.helping = !c.helping
		return nil
	}

	if c.view == keysView {
		if cmd, taken := c.keysKey(key); taken {
			return cmd
		}
	}

	page := c.size.bodySize().height - 2
	switch key {
	case "ctrl+c":
		return c.ending(Leave)()
	case "esc", "0", "q":
		if c.view == overview && key == "q" {
			return c.ending(Leave)()
		}
		c.showView(overview)
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
	case network:
		if key == "c" && c.locked {
			c.message = lockedText
			return nil
		}
		if key == "c" && c.facts.Managed {
			return c.changeNetwork(c.facts)
		}
	}

	return c.menuKey(key)
}

// network opens the network view and asks for the present interfaces.
func (c *Console) network() tea.Cmd {
	c.showView(network)
	c.facts = setup.Facts{}
	return func() tea.Msg {
		f, err := c.api.SetupFacts(c.ctx)
		return factsMsg{f, err}
	}
}

func (c *Console) showView(v consoleView) {
	c.view = v
	c.from = 0
	c.lines = nil
	c.keys = pendingKeys{}
}

func (c *Console) menuKey(key string) tea.Cmd {
	switch key {
	case "1":
		c.showView(details)
	case "2":
		return c.readLogs("master")
	case "3":
		return c.network()
	case "4":
		c.confirm("Write a support bundle? It holds no secrets. (y/n)", func() tea.Cmd {
			c.busy = "Writing a support bundle ..."
			return func() tea.Msg {
				path, err := c.support(c.ctx)
				return doneMsg{"Written: " + cleanLine(path), err}
			}
		})
	case "5":
		c.showView(restarts)
	case "6":
		c.confirm("Shut down this machine? Its minions go to other nodes, if there are any. (y/n)", c.ending(PowerOff))
	case "7":
		return c.ending(Login)()
	case "8":
		return c.forAccess(c.addKey)
	case "9":
		return c.forAccess(c.setPassword)
	case "m":
		return c.minionLines()
	case "k":
		return c.pending()
	case "j":
		return c.joinString()
	}

	return nil
}

// forAccess calls the function do, for a choice about the administrator's account, if the page offers
// access and is not locked.
func (c *Console) forAccess(do func() tea.Cmd) tea.Cmd {
	switch {
	case c.access == nil:
	case c.locked:
		c.message = lockedText
	default:
		return do()
	}
	return nil
}

// confirm asks the user before an action that changes something.
func (c *Console) confirm(text string, yes func() tea.Cmd) {
	if c.locked {
		c.message = lockedText
		return
	}
	c.ask = &question{text, yes}
}

func (c *Console) ending(a Action) func() tea.Cmd {
	return func() tea.Cmd {
		c.action = a
		return tea.Quit
	}
}

func (c *Console) readLogs(service string) tea.Cmd {
	c.showView(logs)
	c.busy = "Reading ..."
	width := c.size.bodySize().width
	return func() tea.Msg {
		got, err := c.api.Output(c.ctx, service, 200)
		lines := []string{"The last lines of " + service + ":"}
		for _, l := range got {
			lines = append(lines, wrapWords(l, width)...)
		}
		return linesMsg{logs, lines, err}
	}
}

func (c *Console) logKey(key string) tea.Cmd {
	switch key {
	case "1":
		return c.readLogs("master")
	case "2":
		return c.readLogs("lb")
	}
	return nil
}

func (c *Console) restartKey(key string) tea.Cmd {
	restart := func(service, action string) {
		c.confirm("Restart "+action+"? (y/n)", func() tea.Cmd {
			c.busy = "Restarting " + action + " ..."
			return func() tea.Msg { return doneMsg{action + " is being restarted.", c.api.Restart(c.ctx, service)} }
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
