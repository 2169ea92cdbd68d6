package tui

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
)

// broken is a text broken into lines of a width, as a terminal shows it.
func broken(text string, width int) string {
	var lines []string
	for text != "" {
		n := min(len(text), width)
		lines, text = append(lines, "  "+text[:n]), text[n:]
	}
	return strings.Join(lines, "\r\n") + "\n"
}

// TestPasteIntoFields: what was copied from a terminal, broken over lines, is what it
// was before. (B3)
func TestPasteIntoFields(t *testing.T) {
	long := strings.Repeat("sca1 is no join string ", 180) // 4 KiB
	for _, x := range []struct {
		name   string
		to     []string
		pasted string
		want   string
	}{
		{"join string", toString, broken(join, 40), join},
		{"long text into the join string", toString, long, strings.ReplaceAll(long, " ", "")},
		{"key with a line end", toAdmin, someKey + "\n", someKey},
		{"key in two lines", toAdmin, someKey[:30] + "\n" + someKey[30:], someKey},
		{"key, its type alone in a line", toAdmin, strings.Replace(someKey, " ", "\n", 1), someKey},
		{"several keys", toAdmin, "# mine\n" + someKey + "\nssh-rsa AAAAB3 other\n", someKey},
		{"name with a line end", toForm, "prod-eu\r\n", "prod-eu"},
		{"two lines into a name", toForm, "prod\neu", "prod eu"},
		{"password", append(append([]string{}, toAdmin...), "enter"), "correct horse\n", "correct horse"},
		{"list of servers", append(append([]string{}, toFixed...), "enter", "enter", "ctrl+u"),
			"10.0.0.2\n10.0.0.3\n", "10.0.0.2, 10.0.0.3"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newScripted()
			s.facts.Managed = strings.HasPrefix(x.name, "list")
			inBubble(t, s, func(p *pump) {
				p.keys(x.to...)
				p.send(tea.PasteMsg{Content: strings.ReplaceAll(x.pasted, "\r\n", "\n")})
				w := p.m.(*Wizard)
				got := w.pages[w.at].(*formPage).form.GetFocusedField().GetValue()
				if got != x.want {
					t.Errorf("%.200q", got)
				}
			})
		})
	}
}

// TestUnmarkedPaste: a join string that is broken over lines, pasted where the terminal
// does not say so, is one, though each line ends with Enter. (B3)
func TestUnmarkedPaste(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys(toString...)
		for _, r := range broken(join, 30) {
			switch r {
			case '\r':
			case '\n':
				p.keys("enter")
			default:
				p.keys("=" + string(r))
			}
		}

		p.has("Storage")
	})

	inBubble(t, s, func(p *pump) { // what is no join string is told, in a moment
		p.keys(toString...)
		p.keys("=sca2.bad", "enter")
		p.wait(2 * holdFor)
		p.has("is not a join string")
	})
}

// TestPasteLeads: whoever pastes into a terminal leads the set-up from it; a question
// and help take no paste.
func TestPasteLeads(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys(toAdmin...)
		p.keys("enter", "enter", "ctrl+c")
		p.send(tea.PasteMsg{Content: "y"})
		p.has("Leave the set-up?")
		p.keys("n", "f1")
		p.send(tea.PasteMsg{Content: "y"})
		p.has("Help: Administrator")
	})

	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		s.claim.Owner = ""
		p := newPump(t, NewWizard(t.Context(), s, "tty1"))
		defer p.end()

		p.send(tea.PasteMsg{Content: "y"})
		p.wait(time.Second)
		if s.claim.Owner != "tty1" {
			t.Errorf("%q leads", s.claim.Owner)
		}
	})
}

// TestLongLinesStayLines: a text that is longer than its line shows its end there, also
// after a fault, on the way back, and in another size.
func TestLongLinesStayLines(t *testing.T) {
	long := "ssh-rsa " + strings.Repeat("AAAAB3NzaC1yc2EAAAADAQABAAACAQ", 20) + "END ops@example"
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		lines := func(when string) {
			t.Helper()
			if n := strings.Count(p.screen(), "AAAAB3Nz"); n > 3 { // of the 75 columns of a line
				t.Errorf("%s the key takes more than a line:\n%s", when, p.screen())
			}
			p.has("END ops@example")
		}

		p.keys(toAdmin...)
		p.send(tea.PasteMsg{Content: long})
		lines("typed")
		p.keys("enter", "=short", "enter", "=short", "enter")
		p.has("Please correct")
		lines("after a fault")
		p.send(tea.WindowSizeMsg{Width: 100, Height: 30})
		p.send(tea.WindowSizeMsg{Width: 80, Height: 24})
		lines("after a change of the size")
		p.keys("esc", "enter")
		lines("on the way back")
		w := p.m.(*Wizard)
		w.pages[w.at].(*formPage).showFaults(w, []setup.Fault{{Field: "admin.ssh_keys", Message: "is wrong"}})
		lines("as soon as it has a fault of its own")
	})
}
