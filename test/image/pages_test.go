//go:build nspawn || boot

package image

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hinshun/vt10x"

	"saltern/test/lab"
)

// terminal is a serial line, or a screen with a keyboard.
type terminal interface {
	Screen() string
	Type(t testing.TB, text string)
}

// text is what is to be seen on a terminal, without blanks at the ends of lines.
func text(vt vt10x.Terminal) string {
	lines := strings.Split(vt.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// pages goes through the wizard of a machine: what each page shows, and what
// is typed there.
type pages struct {
	t    *testing.T
	x    terminal
	wait time.Duration // for a page
	each func(number int)
	n    int

	virtual string // what to answer when the virtual address is asked for
}

func (p *pages) page(shows, types string) {
	p.t.Helper()
	lab.Eventually(p.t, p.wait, "the page "+shows, func() error {
		if s := p.x.Screen(); !strings.Contains(s, shows) {
			return fmt.Errorf("the terminal shows\n%s", s)
		}
		return nil
	})
	p.n++
	if p.each != nil {
		p.each(p.n)
	}
	p.x.Type(p.t, types)
}

// lead takes the set-up over if another console was there first.
func (p *pages) lead() {
	p.t.Helper()
	asked := false
	lab.Eventually(p.t, p.wait, "the set-up", func() error {
		s := p.x.Screen()
		switch {
		case strings.Contains(s, "What shall this machine do?") && strings.Contains(s, "Enter: next"):
			return nil
		case !asked && strings.Contains(s, "t: take over"):
			p.x.Type(p.t, "t")
			asked = true
		case asked && strings.Contains(s, "(y/n)"):
			p.x.Type(p.t, "y")
			asked = false
		}

		return fmt.Errorf("the terminal shows\n%s", s)
	})
}

// network leaves the network as it is. A machine with one interface is not asked
// which; a key too many would be an answer on the next page.
func (p *pages) network() {
	p.t.Helper()
	p.page("A change is tried first", "\r")
	lab.Eventually(p.t, p.wait, "the page after the network", func() error {
		switch s := p.x.Screen(); {
		case strings.Contains(s, "| Addresses") && strings.Contains(s, "  Interface"):
			p.x.Type(p.t, "\r")
			return nil
		case strings.Contains(s, "A change is tried first"):
			return fmt.Errorf("the terminal shows\n%s", s)
		}
		return nil
	})
}

// form answers that the machine forms a cluster, up to ready, and chooses the
// first of the disks. Without an address the machine finds its own.
func (p *pages) form(public, node, address string) {
	p.t.Helper()
	p.lead()
	p.page("What shall this machine do?", "\r")
	if strings.Contains(p.x.Screen(), "Keyboard") { // at the machine's own screen
		p.page("English (US)", "\r")
	}

	p.network()
	p.page("How you log in later", public+"\r\r\r")
	p.page("Name of the cluster", "blue\r\x15"+node+"\r"+address+"\r\r\r")
	p.page("best on a disk", "\r")
	p.page("Virtual address", p.virtual+"\r")
	p.page("Shall this node serve", "\r")
	p.page("The set-up can go on", "\r")
	p.page("START THE SET-UP", "s")
	p.page("This node is ready", "")
}
