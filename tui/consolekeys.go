package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// pendingKeys is the view of the pending keys of minions.
type pendingKeys struct {
	list []status.Minion
	err  error
	at   int // index of the chosen key
	read bool
}

// keysRead is the message with the pending keys.
type keysRead struct {
	list []status.Minion
	err  error
}

// keyAccepted is the message with the outcome of accepting a key.
type keyAccepted struct {
	id  string
	err error
}

// pending shows the pending keys.
func (c *Console) pending() tea.Cmd {
	return c.afterProof("A minion whose key is accepted gets pillars and files, and runs what it is told.",
		func() tea.Cmd {
			c.showView(keysView)
			return c.readKeys()
		})
}

func (c *Console) readKeys() tea.Cmd {
	c.keys = pendingKeys{at: c.keys.at}
	c.busy = "Reading ..."
	return func() tea.Msg {
		all, err := c.api.Minions(c.ctx, true)
		list := slices.DeleteFunc(all.Minions, func(m status.Minion) bool { return m.Key != "pending" })
		return keysRead{list, err}
	}
}

func (c *Console) keysRead(m keysRead) {
	c.busy = ""
	c.keys.list, c.keys.err = m.list, m.err
	c.keys.read = true
	c.keys.at = max(0, min(c.keys.at, len(m.list)-1))
}

// keysKey handles a key press in the view of pending keys. For a key press that the view does not
// use it returns false.
func (c *Console) keysKey(key string) (tea.Cmd, bool) {
	k := &c.keys
	page := c.size.bodySize().height - keysAround
	switch key {
	case "down":
		k.at++
	case "up":
		k.at--
	case "pgdown":
		k.at += page
	case "pgup":
		k.at -= page
	case "r":
		return c.readKeys(), true
	case "a", "enter":
		c.accept()
		return nil, true
	default:
		return nil, false
	}

	k.at = max(0, min(k.at, len(k.list)-1))
	return nil, true
}

// fingerLines returns a fingerprint as two lines of the same length.
func fingerLines(finger string) []string {
	const label = "fingerprint "
	half := (len(finger) + 1) / 2
	return []string{label + finger[:half], strings.Repeat(" ", len(label)) + finger[half:]}
}

// accept asks the user whether to accept the chosen key.
func (c *Console) accept() {
	if len(c.keys.list) == 0 {
		return
	}
	m := c.keys.list[c.keys.at]
	c.ask = &question{fmt.Sprintf("Accept %s with the key %s? (y/n)", cleanLine(m.ID), cleanLine(m.Finger)),
		func() tea.Cmd {
			c.busy = "Accepting the key ..."
			return func() tea.Msg {
				// With the fingerprint, another key of the same name stays pending.
				err := c.api.ChangeKeys(c.ctx, api.KeyChange{Verb: "accept", IDs: []string{m.ID}, Finger: m.Finger})
				return keyAccepted{m.ID, err}
			}
		}}
}

// keyAccepted shows the outcome, and reads the keys again if their view is open.
func (c *Console) keyAccepted(m keyAccepted) tea.Cmd {
	c.busy = ""
	message := cleanLine(m.id) + " is accepted."
	if m.err != nil {
		message = cleanLine(m.err.Error())
	}
	var again tea.Cmd
	if c.view == keysView {
		again = c.readKeys()
	}
	c.message = message
	return again
}

// keysAround is how many lines surround the keys: a heading, and the details of the chosen key.
const keysAround = 6

// keyLines returns the lines of the view with pending keys: the keys, and the details of the chosen
// key.
func (c *Console) keyLines() []string {
	k := c.keys
	width := c.size.bodySize().width
	switch {
	case !k.read:
		return nil
	case k.err != nil:
		return wrapWords(k.err.Error(), width)
	case len(k.list) == 0:
		return []string{"No minion waits for its key to be accepted."}
	}

	lines := []string{fmt.Sprintf("Keys that wait to be accepted: %d of %d", k.at+1, len(k.list)), ""}
	room := max(1, c.size.bodySize().height-keysAround)
	from := max(0, min(k.at-room/2, len(k.list)-room))
	for i := from; i < min(from+room, len(k.list)); i++ {
		mark := "  "
		if i == k.at {
			mark = "> "
		}
		lines = append(lines, clipLine(mark+cleanLine(k.list[i].ID), width))
	}

	m := k.list[k.at]
	text := "from " + cleanLine(m.Address)
	if m.Address == "" {
		text = "from an unknown address"
	}

	if m.Seen != nil {
		text += ", last heard " + status.Age(time.Since(*m.Seen)) + " ago"
	}

	lines = append(lines, "", text)
	return append(lines, fingerLines(cleanLine(m.Finger))...)
}
