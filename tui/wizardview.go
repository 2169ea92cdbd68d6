package tui

import (
	"strings"

	tea "charm.land/bubbletea/v2"
)

// View implements tea.Model.
func (w *Wizard) View() tea.View {
	v := tea.NewView(w.screen())
	v.AltScreen = true
	return v
}

func (w *Wizard) screen() string {
	heading := "Saltern set-up"
	if v := cleanLine(w.facts.Version); v != "" {
		heading += "  " + clipLine(v, 30)
	}

	message := w.message
	if w.busy != "" {
		message = w.busy
	}

	switch {
	case w.ask != nil:
		message = w.ask.text
	case w.lost != nil:
		message = "The supervisor does not answer; still trying."
	}

	if w.at < 0 {
		return drawFrame(w.size, heading, "", "\nReading what this machine has ...", message, "Ctrl-C: leave")
	}

	if message == "" && !w.following() {
		message = w.pageNote()
	}

	if w.following() && !w.helping {
		return drawFrame(w.size, heading, followingTitle+" "+cleanLine(w.claim.Owner), w.followed(), message,
			footer("t: take over", helpKeys, "Ctrl-C: leave"))
	}

	where, body, keys := w.renderPage()
	return drawFrame(w.size, heading, where, body, message, keys)
}

// pageNote returns a note about the current field, for display while there is no message.
func (w *Wizard) pageNote() string {
	if f, ok := w.pages[w.at].(*formPage); ok && !w.helping {
		return f.fieldNote(w)
	}
	return ""
}

// wordPlace returns the page's position among the pages.
func (w *Wizard) wordPlace(p page) string {
	n, all := 0, 0
	for i, q := range w.pages[:len(w.pages)-1] {
		if !q.applies(w) {
			continue
		}
		all++
		if i <= w.at {
			n++
		}
	}

	if w.at == len(w.pages)-1 {
		return p.heading()
	}

	return p.heading() + pageOf(n, all)
}

// terminalName describes the device of a terminal for users who do not know such names.
func terminalName(device string) string {
	device = cleanLine(device)
	switch {
	case strings.HasPrefix(device, "ttyS"):
		return "the serial line (" + device + ")"
	case strings.HasPrefix(device, "tty"):
		return "the machine's screen (" + device + ")"
	}
	return device
}

// followed returns the page that a terminal shows while another terminal leads.
func (w *Wizard) followed() string {
	head := "\n" + paragraph("", "The set-up is being done on "+terminalName(w.claim.Owner)+" since "+
		w.claim.Since.UTC().Format("15:04 UTC")+
		". This terminal shows how it goes, and can take over.", w.size.bodySize().width) + "\n\n"
	if !w.started() {
		return head + "The questions are being answered there."
	}
	return head + w.wordSteps()
}
