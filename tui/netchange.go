package tui

import (
	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
)

// networkChanged is the message with the outcome of changing the network from the console page.
type networkChanged struct{ text string }

// networkPages returns the wizard's pages about the network.
func networkPages() []page {
	return []page{networkPage(), fixedPage(), &trialPage{}, &changedPage{}}
}

// changedPage follows the last page of a network change, and closes the change as soon as it is
// opened.
type changedPage struct{}

func (*changedPage) heading() string                 { return "Network" }
func (*changedPage) applies(*Wizard) bool            { return true }
func (*changedPage) update(*Wizard, tea.Msg) tea.Cmd { return nil }
func (*changedPage) render(*Wizard) string           { return "" }
func (*changedPage) keyHelp(*Wizard) string          { return "" }
func (*changedPage) opened(w *Wizard) tea.Cmd {
	text := "Nothing was changed."
	if w.draft.method != methodKeep {
		text = "The network is as you confirmed it."
	}
	return func() tea.Msg { return networkChanged{text} }
}

// changeNetwork begins a change of the network with the machine's present values.
func (c *Console) changeNetwork(f setup.Facts) tea.Cmd {
	w := NewWizard(c.ctx, c.api, "console")
	w.facts, w.draft = f, newDraft(f)
	return c.within(w, networkPages()...)
}

// inChange passes a message to the network change in progress. If there is none, it returns false.
func (c *Console) inChange(msg tea.Msg) (tea.Cmd, bool) {
	w := c.changing
	if w == nil {
		return nil, false
	}

	if reply, ok := msg.(pageReply); ok && reply.askedOn() != w {
		return nil, false // the user has left that page
	}

	switch msg := msg.(type) {
	case refreshNow, statusMsg, linesMsg, doneMsg, keysRead, keyAccepted:
		return nil, false
	case proved:
		return c.proved(w, msg), true
	case passwordSet:
		return c.changed(w, "fresh", msg.err, c.newPassword(msg)), true
	case networkChanged:
		c.message = msg.text
		return c.endChange(), true
	case keysAdded:
		return c.changed(w, "key", msg.err, c.wordAdded(msg)), true
	case tea.KeyPressMsg:
		if key := msg.String(); !w.helping && (key == "ctrl+c" || key == "esc" && w.onFirstPage()) {
			c.message = "Nothing was changed."
			if p, ok := w.pages[w.at].(*trialPage); ok && p.trial.Active && p.confirmed == nil {
				c.message = "The former network is being restored."
				return tea.Sequence(func() tea.Msg {
					_, err := c.api.SetupNetwork(c.ctx, "revert", setup.Network{})
					return doneMsg{"The network is as it was before.", err}
				}, c.endChange()), true
			}

			return c.endChange(), true
		}
	}

	_, cmd := w.Update(msg)
	return cmd, true
}

// endChange returns to the view where the change began: the network view or the menu.
func (c *Console) endChange() tea.Cmd {
	c.changing = nil
	if c.view != network {
		return nil
	}
	return c.network()
}
