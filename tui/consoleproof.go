package tui

import (
	"context"
	"errors"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"

	"saltern/supervisor/setup"
)

// pageReply is a message with the answer to a request of a page. When it arrives, the user may
// already be on another page.
type pageReply interface{ askedOn() *Wizard }

// askedBy is embedded in a [pageReply] and holds the page that sent the request.
type askedBy struct{ page *Wizard }

func (a askedBy) askedOn() *Wizard { return a.page }

// proved is the message with the result of checking the administrator's password.
type proved struct {
	// askedBy holds the page that started the check.
	askedBy
	err  error
	then func() tea.Cmd
}

// BeforeLogin marks the user as not logged in. Call it before the page runs.
func (c *Console) BeforeLogin() { c.stranger = true }

// proofField is the field for the administrator's password.
func (c *Console) proofField(w *Wizard, f *fieldMaker) huh.Field {
	account := cleanLine(c.access.Account())
	return f.secret("password", "Password of "+account, "asked for because nobody has logged in at this console",
		&w.draft.password)
}

// afterProof runs action, which only an administrator may do. It runs action at once if the user
// has logged in, otherwise after the user has typed the account's password. explanation is shown
// above the prompt for the password.
func (c *Console) afterProof(explanation string, action func() tea.Cmd) tea.Cmd {
	switch {
	case c.locked, c.access == nil && c.stranger:
		c.message = lockedText
		return nil
	case c.access == nil, !c.access.NeedsPassword():
		return action()
	}

	return c.askOn(&formPage{
		name:  "Administrator's password",
		intro: explanation,
		fields: func(w *Wizard, f *fieldMaker) []huh.Field {
			return []huh.Field{c.proofField(w, f)}
		},
		done: func(w *Wizard) tea.Cmd {
			w.busy = "Checking the password ..."
			password := w.draft.password
			return func() tea.Msg { return proved{askedBy{w}, c.access.Prove(c.ctx, password), action} }
		},
	})
}

// proved shows the error of a wrong password, or continues.
func (c *Console) proved(w *Wizard, m proved) tea.Cmd {
	if m.err != nil {
		return c.refused(w, "password", m.err)
	}
	c.changing = nil
	return m.then()
}

// refused shows an error at a field of the current page. If the error is a wrong password, it shows
// the error at the password field instead.
func (c *Console) refused(w *Wizard, field string, err error) tea.Cmd {
	p, ok := w.pages[w.at].(*formPage)
	if !ok {
		return nil
	}
	w.busy = ""
	if errors.Is(err, ErrPassword) {
		field = "password"
	}
	return p.showFaults(w, []setup.Fault{{Field: field, Message: err.Error()}})
}

// passwordSet is the message with the outcome of changing the administrator's password.
type passwordSet struct {
	askedBy
	err error
}

// setPassword asks the user for a new password of the administrator.
func (c *Console) setPassword() tea.Cmd {
	proof := c.access.NeedsPassword()
	return c.askOn(&formPage{
		name: "New password",
		intro: "The password of " + cleanLine(c.access.Account()) +
			" is for logging in at this console and in the browser. SSH takes keys only.",
		fields: func(w *Wizard, f *fieldMaker) (list []huh.Field) {
			if proof {
				list = append(list,
					f.secret("password", "Present password", "asked for because nobody has logged in at this console",
						&w.draft.secret))
			}

			return append(list,
				f.secret("fresh", "New password", "at least 8 characters", &w.draft.password),
				f.secret("again", "New password once more", "", &w.draft.again))
		},
		check: newPasswordFaults,
		done: func(w *Wizard) tea.Cmd {
			w.busy = "Setting the password ..."
			present, fresh := w.draft.secret, w.draft.password
			return func() tea.Msg { return passwordSet{askedBy{w}, c.access.SetPassword(c.ctx, present, fresh)} }
		},
	})
}

func newPasswordFaults(w *Wizard) (faults []setup.Fault) {
	if why := setup.PasswordFault(w.draft.password); why != "" {
		faults = append(faults, setup.Fault{Field: "fresh", Message: why})
	}
	if w.draft.password != w.draft.again {
		faults = append(faults, setup.Fault{Field: "again", Message: "the two passwords differ"})
	}
	return faults
}

// changed shows an error at its field. If there is no error, it closes the page and shows the text
// success.
func (c *Console) changed(w *Wizard, field string, err error, success string) tea.Cmd {
	if err != nil {
		return c.refused(w, field, err)
	}
	c.changing = nil
	c.showView(overview)
	c.message = success
	return nil
}

// newPassword returns a text that describes the outcome of changing the password.
func (c *Console) newPassword(m passwordSet) string {
	if m.err != nil {
		return cleanLine(m.err.Error())
	}
	return cleanLine(c.access.Account()) + " has the new password."
}

// joinString opens the view with the join string.
func (c *Console) joinString() tea.Cmd {
	return c.afterProof("The join string holds the cluster's secret: whoever has it can make a machine a node.",
		func() tea.Cmd {
			return c.readView(joining, func(ctx context.Context) ([]string, error) {
				line, err := c.api.JoinString(ctx)
				if err != nil {
					return nil, err
				}
				return joinLines(line), nil
			})
		})
}

// joinLines returns lines with a join string and an explanation of its use.
func joinLines(line string) []string {
	lines := []string{"The next node joins with this secret string:", ""}
	for s := cleanLine(line); s != ""; {
		n := min(len(s), minWidth-6)
		lines = append(lines, "    "+s[:n])
		s = s[n:]
	}
	lines = append(lines, "")
	return append(lines,
		wrapWords("It is one line, broken here for the screen; line breaks do no harm. It holds the "+
			"cluster's secret. Esc takes it from the screen.",
			minWidth-2)...)
}

// minionLines opens the view with the configuration for minions.
func (c *Console) minionLines() tea.Cmd {
	d := c.doc
	return c.readView(minionConf, func(ctx context.Context) ([]string, error) {
		p, err := c.api.SetupProgress(ctx)
		if err != nil {
			return nil, err
		}

		conf := ""
		ports := setup.Ports{Publish: d.Front.PublishPort, Request: d.Front.RequestPort}
		switch {
		case d.Arbiter():
			return wrapWords("This node is the cluster's arbiter and serves no minions: look on another node.",
				minWidth-2), nil
		case p.Done != nil:
			conf = p.Done.MinionConf
		case d.Virtual != nil:
			conf = setup.MinionConf([]string{d.Virtual.Address}, "", ports)
		case len(d.Front.Addresses) == 0:
			return wrapWords("The addresses for minions are not known yet.", minWidth-2), nil
		default:
			conf = setup.MinionConf(d.Front.Addresses, "", ports)
		}

		return append([]string{"In each minion's /etc/salt/minion.d/master.conf:", ""}, confLines(conf)...), nil
	})
}

// readView opens a view and reads its lines with ask.
func (c *Console) readView(v consoleView, ask func(context.Context) ([]string, error)) tea.Cmd {
	c.showView(v)
	c.busy = "Reading ..."
	return func() tea.Msg {
		lines, err := ask(c.ctx)
		return linesMsg{v, lines, err}
	}
}
