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

// Access is how administrators get into this machine, and lets more keys do so.
type Access interface {
	// Account is the account that SSH keys log in as.
	Account() string
	// HostKey is the fingerprint of the machine's own SSH key; empty when it is
	// not known.
	HostKey() string
	// NeedsPassword reports whether whoever stands here has to prove with the
	// account's password that he may add a key.
	NeedsPassword() bool
	// Add lets a public key, or all those at an https address, log in; it gives
	// their number. A wrong password is an [ErrPassword].
	Add(ctx context.Context, key, password string) (int, error)
}

// ErrPassword says that the password of the account is another one.
var ErrPassword = errors.New("the password is wrong, or the account has none")

// keysAdded ends the adding of a key from the console page.
type keysAdded struct {
	keys int
	err  error
}

// Offer offers to add SSH keys.
func (c *Console) Offer(a Access) { c.access = a }

// addKey asks for a key.
func (c *Console) addKey() tea.Cmd {
	w := NewWizard(c.ctx, c.api, "console")
	proof := c.access.NeedsPassword()
	w.pages, w.at, w.size = []page{&formPage{name: "Add an SSH key",
		intro: "Whoever has the private key can log in over SSH as " + clean(c.access.Account()) + ". Where no key can be pasted, give the https address where a Git server has yours.",
		fields: func(w *Wizard, f *fieldMaker) []huh.Field {
			list := []huh.Field{f.input("key", "SSH public key, or address", "a line as in ~/.ssh/id_ed25519.pub, or https://...", &w.draft.sshKey)}
			if proof {
				list = append(list, f.secret("password", "Password of "+clean(c.access.Account()), "to prove that you may add keys", &w.draft.password))
			}
			return list
		},
		check: func(w *Wizard) []setup.Fault { return keyFaults(w.draft.sshKey) },
		done: func(w *Wizard) tea.Cmd {
			w.busy = "Adding the key ..."
			key, password := trim(w.draft.sshKey), w.draft.password
			return func() tea.Msg {
				n, err := c.access.Add(c.ctx, key, password)
				return keysAdded{n, err}
			}
		}}}, 0, c.size
	w.claim.Mine, w.leading = true, true
	c.changing = w
	return w.show()
}

func keyFaults(typed string) []setup.Fault {
	if strings.HasPrefix(trim(typed), "https://") {
		return nil
	}
	if _, err := setup.ReadKeys(strings.NewReader(typed)); err != nil {
		return []setup.Fault{{Field: "key", Message: err.Error()}}
	}
	return nil
}

// keysAdded shows at its field what was wrong, or ends the page.
func (c *Console) keysAdded(w *Wizard, m keysAdded) tea.Cmd {
	p, ok := w.pages[w.at].(*formPage)
	if !ok {
		return nil
	}
	w.busy = ""
	if m.err != nil {
		field := "key"
		if errors.Is(m.err, ErrPassword) {
			field = "password"
		}
		return p.show(w, []setup.Fault{{Field: field, Message: m.err.Error()}})
	}
	c.changing = nil
	c.show(overview)
	c.message = c.added(m)
	return nil
}

// added words how the adding of keys ended.
func (c *Console) added(m keysAdded) string {
	switch {
	case m.err != nil:
		return clean(m.err.Error())
	case m.keys == 1:
		return "The key can log in now as " + clean(c.access.Account()) + "."
	}
	return fmt.Sprintf("%d keys can log in now as %s.", m.keys, clean(c.access.Account()))
}

// accessLines say how to log in to this node.
func (c *Console) accessLines(width int) []string {
	address := ""
	for _, n := range c.doc.Nodes {
		if n.This {
			address = clean(n.Address)
		}
	}
	switch {
	case address == "":
		return nil
	case c.access == nil:
		return []string{"this node has the address " + address}
	}
	text := "ssh " + clean(c.access.Account()) + "@" + address
	if key := clean(c.access.HostKey()); key != "" {
		text += ", key " + key
	}
	return wrap(text, width)
}
