package tui

import (
	"cmp"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

const progressTitle = "Set-up"

// progressPage shows the progress of the set-up, the reason why it stopped, or the next steps once
// the node is ready.
type progressPage struct{ from int }

// told is the message with the result of the requests "retry" and "back".
type told struct {
	turn int
	err  error
}

func (p *progressPage) heading() string        { return progressTitle }
func (p *progressPage) applies(*Wizard) bool   { return true }
func (p *progressPage) opened(*Wizard) tea.Cmd { p.from = 0; return nil }

func (p *progressPage) update(w *Wizard, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case told:
		if msg.turn != w.turn {
			return nil
		}

		w.busy = ""
		if msg.err != nil {
			w.message = cleanLine(msg.err.Error())
		}

		return w.pollSetup(setup.Begin, false)
	case tea.KeyPressMsg:
		return p.handleKey(w, msg.String())
	}

	return nil
}

func (p *progressPage) handleKey(w *Wizard, key string) tea.Cmd {
	f := w.progress.Failure
	turn := w.turn
	switch {
	case key == "down":
		p.from++
	case key == "up":
		p.from = max(0, p.from-1)
	case w.Ready() && key == "enter":
		return tea.Quit
	case w.busy != "" || f == nil:
	case key == "r":
		w.busy = "Trying again ..."
		return func() tea.Msg { return told{turn, w.api.SetupRetry(w.ctx)} }
	case key == "b" && f.Back:
		w.busy = "Going back to the answers ..."
		return func() tea.Msg { return told{turn, w.api.SetupBack(w.ctx)} }
	}

	return nil
}

func (p *progressPage) render(w *Wizard) string {
	b := w.size.bodySize()
	text := w.wordSteps()
	if w.Ready() && w.began { // otherwise the terminal only watches: it shows the steps a moment longer, and then ends
		text = w.renderDone()
	}
	return "\n" + scrolled(strings.Split(text, "\n"), &p.from, b.height-1)
}

// wordSteps returns the steps as text, and the failure, if any.
func (w *Wizard) wordSteps() string {
	lines := ProgressLines(w.progress, w.size.bodySize().width)
	lines[0] = bold.Render(lines[0])
	return strings.Join(lines, "\n")
}

// stateWords explains the states whose names do not say enough.
var stateWords = map[status.Setup]string{
	status.SetupNew:       "not set up",
	status.SetupPreflight: "checking the answers",
	status.SetupForming:   "forming the cluster",
	status.SetupJoining:   "joining the cluster",
	status.SetupWaiting:   "waiting until the node serves",
	status.SetupDegraded:  "set up, but something is wrong: applianced status",
	status.SetupRemoved:   "removed from its cluster",
}

// ProgressLines describes the progress of the set-up, in lines of at most width.
func ProgressLines(p setup.Progress, width int) []string {
	state := cmp.Or(stateWords[p.State], cleanLine(string(p.State)))
	lines := []string{"State: " + state, ""}
	for _, s := range p.Steps {
		mark, text := stepMark(s.State), s.Name
		if s.Message != "" && s.State != "todo" {
			text += ": " + s.Message
		}
		lines = append(lines, paragraph(fmt.Sprintf("[%-4s] ", mark), text, width))
	}

	f := p.Failure
	switch {
	case p.State != status.SetupFailed:
	case f == nil:
		lines = append(lines,
			paragraph("", "The configuration of this node is wrong; applianced status says why.", width))
	default:
		lines = append(lines, "", paragraph("Failed: ", f.Tried, width), paragraph("Cause:  ", f.Cause, width))
		for i, c := range f.Check {
			head := "        "
			if i == 0 {
				head = "Check:  "
			}
			lines = append(lines, paragraph(head, c, width))
		}
	}

	if len(p.Unused) > 0 {
		lines = append(lines, "", "Given with this machine and not used:")
	}

	for _, u := range p.Unused {
		lines = append(lines, paragraph("  - ", u, width))
	}

	return lines
}

func stepMark(state string) string {
	switch state {
	case "done":
		return "done"
	case "doing":
		return "..."
	case "failed":
		return "FAIL"
	}
	return ""
}

// renderDone returns the last page, shown when the node is set up.
func (w *Wizard) renderDone() string {
	width := w.size.bodySize().width
	d := w.progress.Done
	lines := []string{bold.Render("This node is " + cleanLine(string(w.progress.State)) + ".")}
	if d == nil {
		return lines[0]
	}

	if d.Arbiter {
		lines = append(lines, "",
			paragraph("",
				"It is the cluster's arbiter: it keeps no data and serves no minions; it lets two nodes go "+
					"on when one is lost.",
				width))
	} else {
		lines = append(lines, "", paragraph("Minions use  ", strings.Join(d.Addresses, ", "), width), "",
			"In each minion's /etc/salt/minion.d/master.conf:")
		lines = append(lines, confLines(d.MinionConf)...)
	}

	if d.States != "" {
		lines = append(lines, "",
			paragraph("States go to  ", cleanLine(d.States)+", pillars to "+cleanLine(d.Pillars), width))
	}

	if d.Console != "" {
		lines = append(lines, "", paragraph("Browsers use  ", cleanLine(d.Console), width))
	}

	if d.JoinString == "" {
		lines = append(lines, "",
			paragraph("", "No other node can join: keys and files are on this machine's disk alone.", width))
	} else {
		lines = append(lines, "", "The next node joins with this secret string (later: applianced join-string):")
		for s := cleanLine(d.JoinString); s != ""; {
			n := min(len(s), width-4)
			lines = append(lines, "    "+s[:n])
			s = s[n:]
		}

		if j, err := setup.ParseJoin(d.JoinString); err == nil {
			lines = append(lines, paragraph("The cluster's secret in it: ", j.Secret, width))
		}
	}

	if len(d.BackUp) > 0 {
		lines = append(lines, "", "Keep a copy elsewhere of:")
		for _, b := range d.BackUp {
			lines = append(lines, paragraph("  - ", b, width))
		}
	}

	return strings.Join(lines, "\n")
}

// confLines returns the lines of a file, indented.
func confLines(text string) (lines []string) {
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, "    "+clipLine(cleanLine(l), minWidth-6))
	}
	return lines
}

func (p *progressPage) keyHelp(w *Wizard) string {
	f := w.progress.Failure
	switch {
	case w.Ready():
		return footer("Enter: to the console page", "arrows: scroll", helpKeys)
	case w.progress.State == status.SetupFailed && f != nil && f.Back:
		return footer("r: try again", "b: back to the answers", helpKeys, "Ctrl-C: leave")
	case w.progress.State == status.SetupFailed && f != nil:
		return footer("r: try again", helpKeys, "Ctrl-C: leave")
	}
	return footer("The set-up continues by itself.", helpKeys, "Ctrl-C: leave")
}
