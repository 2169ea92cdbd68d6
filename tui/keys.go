package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"

	"saltern/supervisor/setup"
)

// Access describes how administrators log in to this machine, and adds keys that may log in.
type Access interface {
	// Account returns the name of the account that SSH keys log in to.
	Account() string
	// HostKey returns the fingerprint of the machine's own SSH key, or "" when it is
	// unknown.
	HostKey() string
	// NeedsPassword reports whether the user must give the account's password to add a
	// key.
	NeedsPassword() bool
	// Prove checks the account's password if NeedsPassword returns true. If the password is wrong,
	// it returns [ErrPassword].
	Prove(ctx context.Context, password string) error
	// Add allows a public key, or all keys at an https address, to log in, and returns the number
	// of keys. It checks the password first.
	Add(ctx context.Context, key, password string) (int, error)
	// SetPassword sets a new password for the account. It first checks the old password.
	SetPassword(ctx context.Context, password, fresh string) error
}

// ErrPassword means that the password of the account is wrong.
var ErrPassword = errors.New("the password is wrong, or the account has none")

// keysAdded is the message with the outcome of adding keys.
type keysAdded struct {
	askedBy
	keys int
	err  error
}

// Offer adds the choices about the administrator's access to the page.
func (c *Console) Offer(a Access) { c.access = a }

// addKey asks the user for an SSH key.
func (c *Console) addKey() tea.Cmd {
	proof := c.access.NeedsPassword()
	return c.askOn(&formPage{name: "Add an SSH key",
		intro: "Whoever has the private key can log in over SSH as " + cleanLine(c.access.Account()) +
			". Where no key can be pasted, give the https address where a Git server has yours.",
		fields: func(w *Wizard, f *fieldMaker) []huh.Field {
			list := []huh.Field{f.newInput("key", "SSH public key, or address",
				"a line as in ~/.ssh/id_ed25519.pub, or https://...", &w.draft.sshKey)}
			if proof {
				list = append(list, c.proofField(w, f))
			}
			return list
		},
		check: func(w *Wizard) []setup.Fault { return keyFaults(w.draft.sshKey) },
		done: func(w *Wizard) tea.Cmd {
			w.busy = "Adding the key ..."
			key, password := trimSpace(w.draft.sshKey), w.draft.password
			return func() tea.Msg {
				n, err := c.access.Add(c.ctx, key, password)
				return keysAdded{askedBy{w}, n, err}
			}
		}})
}

// askOn shows a page of the wizard in place of the console page.
func (c *Console) askOn(p page) tea.Cmd {
	return c.within(NewWizard(c.ctx, c.api, "console"), p)
}

// within shows pages of w in place of the console page.
func (c *Console) within(w *Wizard, pages ...page) tea.Cmd {
	w.pages = pages
	w.at = 0
	w.size = c.size
	w.within = true
	w.claim.Mine, w.leading = true, true // the set-up is over: no other terminal can lead
	c.changing = w
	return w.openPage()
}

func keyFaults(typed string) []setup.Fault {
	if strings.HasPrefix(trimSpace(typed), "https://") {
		return nil
	}
	if _, err := setup.ReadKeys(strings.NewReader(typed)); err != nil {
		return []setup.Fault{{Field: "key", Message: err.Error()}}
	}
	return nil
}

// wordAdded returns a text that describes the outcome of adding keys.
func (c *Console) wordAdded(m keysAdded) string {
	switch {
	case m.err != nil:
		return cleanLine(m.err.Error())
	case m.keys == 1:
		return "The key can log in now as " + cleanLine(c.access.Account()) + "."
	}
	return fmt.Sprintf("%d keys can log in now as %s.", m.keys, cleanLine(c.access.Account()))
}

// accessLines explains how to log in to this node.
func (c *Console) accessLines(width int) []string {
	address := ""
	for _, n := range c.doc.Nodes {
		if n.This {
			address = cleanLine(n.Address)
		}
	}

	switch {
	case address == "":
		return nil
	case c.access == nil:
		return []string{"this node has the address " + address}
	}

	login := "ssh " + cleanLine(c.access.Account()) + "@" + address
	key := cleanLine(c.access.HostKey())
	if key == "" {
		return wrapWords(login, width)
	}

	key = "host key " + key
	if line := login + ", " + key; len(line) <= width {
		return []string{line}
	}
	return append(wrapWords(login, width), wrapWords(key, width)...)
}
