package tui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
)

// trialPage tries a new network configuration, which stays only if the administrator confirms it in
// time.
type trialPage struct {
	trial     setup.Trial
	confirmed *setup.Network // the configuration that was confirmed last
	ended     bool           // the trial was undone
}

type trialMsg struct {
	turn   int
	action string
	trial  setup.Trial
	facts  *setup.Facts // facts about the machine after the confirmation; may be nil
	err    error
}

type trialTick struct{ turn int }

// lookMsg is the message with the state of a trial.
type lookMsg struct {
	turn  int
	trial setup.Trial
}

func (p *trialPage) heading() string { return "Network, on trial" }

func (p *trialPage) applies(w *Wizard) bool {
	return w.facts.Managed && w.draft.method != methodKeep
}

func (p *trialPage) opened(w *Wizard) tea.Cmd {
	p.trial, p.ended = setup.Trial{}, false
	if n := w.draft.network(); p.confirmed != nil && fmt.Sprint(*p.confirmed) == fmt.Sprint(n) {
		return nil
	}
	p.confirmed = nil
	return p.sendAction(w, "try")
}

func (p *trialPage) sendAction(w *Wizard, action string) tea.Cmd {
	w.busy = map[string]string{
		"try":     "Setting up the network ...",
		"confirm": "Keeping the network ...",
		"revert":  "Restoring the former network ...",
	}[action]

	turn, n := w.turn, w.draft.network()
	return func() tea.Msg {
		msg := trialMsg{turn: turn, action: action}
		if msg.trial, msg.err = w.api.SetupNetwork(w.ctx, action, n); action == "confirm" && msg.err == nil {
			if f, err := w.api.SetupFacts(w.ctx); err == nil {
				msg.facts = &f
			}
		}
		return msg
	}
}

func (p *trialPage) nextTick(w *Wizard) tea.Cmd {
	turn := w.turn
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return trialTick{turn} })
}

// askTrial asks the supervisor for the state of the trial. If there is no answer, the page stays
// unchanged.
func (p *trialPage) askTrial(w *Wizard) tea.Cmd {
	turn := w.turn
	return func() tea.Msg {
		t, err := w.api.SetupNetwork(w.ctx, "look", setup.Network{})
		if err != nil {
			return nil
		}
		return lookMsg{turn, t}
	}
}

func (p *trialPage) timeLeft() time.Duration { return time.Until(p.trial.Until).Round(time.Second) }

func (p *trialPage) update(w *Wizard, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case trialMsg:
		if msg.turn == w.turn {
			return p.handleAnswer(w, msg)
		}
	case trialTick:
		if msg.turn != w.turn || !p.trial.Active || p.confirmed != nil {
			return nil
		}
		if p.timeLeft() <= 0 {
			p.trial.Active, p.ended = false, true
			return nil
		}

		return tea.Batch(p.nextTick(w), p.askTrial(w))
	case lookMsg:
		if msg.turn == w.turn && p.trial.Active && p.confirmed == nil && w.busy == "" {
			p.trial.Addresses, p.trial.Reach = msg.trial.Addresses, msg.trial.Reach
			if !msg.trial.Active { // a supervisor that restarted has undone the trial
				p.trial.Active, p.ended = false, true
			}
		}
	case tea.KeyPressMsg:
		return p.handleKey(w, msg.String())
	}

	return nil
}

func (p *trialPage) handleAnswer(w *Wizard, msg trialMsg) tea.Cmd {
	w.busy = ""
	if msg.err != nil {
		w.message = cleanLine(msg.err.Error())
		p.ended = true
		return nil
	}

	p.trial = msg.trial
	switch msg.action {
	case "try":
		return p.nextTick(w)
	case "confirm":
		n := w.draft.network()
		p.confirmed = &n
		if msg.facts != nil {
			w.facts = *msg.facts
		}
		return w.forward()
	}

	p.ended = true
	back := w.goBack()
	w.message = "The network is as it was before."
	return back
}

func (p *trialPage) handleKey(w *Wizard, key string) tea.Cmd {
	switch {
	case w.busy != "":
	case key == "enter" && p.confirmed != nil:
		return w.forward()
	case key == "enter" && p.trial.Active:
		return p.sendAction(w, "confirm")
	case key == "r" && p.ended:
		return w.openPage()
	case key == "esc" && p.trial.Active && p.confirmed == nil:
		return p.sendAction(w, "revert")
	case key == "esc":
		return w.goBack()
	}

	return nil
}

func (p *trialPage) render(w *Wizard) string {
	width := w.size.bodySize().width
	switch {
	case w.busy != "":
		return "\n" + w.busy
	case p.confirmed != nil:
		return "\nThe network is as you confirmed it."
	case p.trial.Active:
		text := "\n" + paragraph("", "The new network is in force. The interface has now:", width) + "\n\n"
		for _, l := range append(p.addresses(), p.wordReachable()...) {
			text += "    " + clipLine(l, width-4) + "\n"
		}

		text += "\n" + paragraph("",
			fmt.Sprintf("It is taken back in %d seconds unless you press Enter.", int(p.timeLeft().Seconds())),
			width)
		if p.trial.Message != "" {
			text += "\n\n" + paragraph("", p.trial.Message, width)
		}

		return text
	}

	return "\n" + strings.Join(wrapWords("The network is as it was before. Press r to try again, or Esc to change it.",
		width),
		"\n")
}

func (p *trialPage) addresses() (lines []string) {
	for _, a := range p.trial.Addresses {
		lines = append(lines, cleanLine(a))
	}
	if len(lines) == 0 {
		return []string{"no address"}
	}
	return lines
}

// wordReachable describes which servers of the network answer.
func (p *trialPage) wordReachable() (lines []string) {
	if p.trial.Reach == nil {
		return []string{"Trying the gateway, name servers and time servers ..."}
	}

	widest := 0
	for _, r := range p.trial.Reach {
		name := strings.TrimSpace(r.What + " " + cleanLine(r.Address))
		widest = max(widest, len(name))
		lines = append(lines, name)
	}

	for i, r := range p.trial.Reach {
		answer := "answers"
		switch {
		case r.Answers:
		case r.Detail != "":
			answer = "NO ANSWER: " + cleanLine(r.Detail)
		default:
			answer = "NO ANSWER"
		}

		if r.Address == "" {
			answer = cleanLine(r.Detail)
		}

		lines[i] = fmt.Sprintf("%-*s  %s", widest, lines[i], answer)
	}

	return lines
}

func (p *trialPage) keyHelp(*Wizard) string {
	switch {
	case p.trial.Active && p.confirmed == nil:
		return footer("Enter: KEEP IT", "Esc: take it back", helpKeys, "Ctrl-C: leave")
	case p.confirmed != nil:
		return footer("Enter: next", helpKeys, "Esc: back", "Ctrl-C: leave")
	}
	return footer("r: try again", helpKeys, "Esc: back", "Ctrl-C: leave")
}
