package tui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"charm.land/bubbles/v2/cursor"
	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/tui/input"
)

// page is one screen of the wizard.
type page interface {
	heading() string
	applies(w *Wizard) bool
	opened(w *Wizard) tea.Cmd
	update(w *Wizard, msg tea.Msg) tea.Cmd
	render(w *Wizard) string
	keyHelp(w *Wizard) string
}

// Wizard is the first-boot wizard as a bubbletea model. Only bubbletea's goroutine uses it.
type Wizard struct {
	ctx  context.Context
	api  Supervisor
	name string // name of this terminal, such as "tty1"

	keys  Keyboard // may be nil: this terminal has no keyboard whose layout can be set
	size  size
	facts setup.Facts
	draft draft
	// checked holds the answers that the supervisor completed last.
	checked setup.Answers

	pages []page
	at    int // index of the current page in pages; -1 until facts and progress were received
	turn  int // number of opened pages; replies to requests of an earlier page are dropped

	progress setup.Progress
	claim    setup.Claim
	leading  bool  // a key was typed here, so this terminal has claimed to lead
	began    bool  // whether this terminal has started the set-up; only such a terminal shows the secret at the end
	lost     error // error of the last request if the supervisor did not answer; nil otherwise

	laid    string // the keyboard layout that was set last
	laying  bool   // a layout is being set
	busy    string // description of the request that the wizard waits for
	message string
	ask     *question
	helping bool // help is shown in the place of the page
	within  bool // the pages belong to the console page, to which Esc returns
}

// question asks the user for a confirmation before an action that cannot be undone.
type question struct {
	text string
	yes  func() tea.Cmd
}

// NewWizard creates the wizard for the terminal called name. ctx ends its requests.
func NewWizard(ctx context.Context, s Supervisor, name string) *Wizard {
	return &Wizard{
		ctx:   ctx,
		api:   s,
		name:  name,
		size:  size{minWidth, minHeight},
		pages: wizardPages(),
		at:    -1,
	}
}

// Layout is a keyboard layout: a name such as "de", and a title such as "German".
type Layout struct{ Name, Title string }

// Keyboard is the keyboard at the machine's own screen.
type Keyboard interface {
	Layouts() []Layout
	Now() string
	Set(ctx context.Context, name string) error
}

// AtKeyboard adds the choice of a keyboard layout to the wizard. Call it before the wizard runs.
func (w *Wizard) AtKeyboard(k Keyboard) { w.keys = k }

// laidOut is the message with the outcome of setting a layout.
type laidOut struct {
	title string
	place string // position among the layouts: "3 of 21"
	err   error
}

// layOut applies the chosen keyboard layout if it is new. It applies one layout at a time, so that
// the last choice takes effect.
func (w *Wizard) layOut() tea.Cmd {
	name := w.draft.layout
	if w.keys == nil || w.laying || name == w.laid {
		return nil
	}

	w.laid, w.laying = name, true
	return func() tea.Msg {
		m := laidOut{err: w.keys.Set(w.ctx, name)}
		all := w.keys.Layouts()
		for i, l := range all {
			if l.Name == name {
				m.title, m.place = l.Title, fmt.Sprintf("%d of %d", i+1, len(all))
			}
		}

		return m
	}
}

// Ready reports whether the machine is set up, which ends the wizard's work.
func (w *Wizard) Ready() bool { return SetUp(w.progress.State) }

// SetUp reports whether a machine in this state is set up.
func SetUp(s status.Setup) bool {
	switch s {
	case status.SetupReady, status.SetupDegraded, status.SetupDraining, status.SetupRemoved:
		return true
	}
	return false
}

// polled is the message with the state of the set-up.
type polled struct {
	progress setup.Progress
	claim    setup.Claim
	facts    *setup.Facts
	again    bool // whether this reply starts the next poll
	err      error
}

// validated is the message with the supervisor's result for the draft.
type validated struct {
	turn   int
	faults []setup.Fault
	full   setup.Answers
	err    error
}

type pollNow struct{}

// Init implements tea.Model.
func (w *Wizard) Init() tea.Cmd { return w.pollSetup(setup.Watch, true) }

// pollSetup returns a command that asks the supervisor for the progress, claims the set-up, and the
// first time also asks for the facts of the machine.
func (w *Wizard) pollSetup(lead setup.Lead, again bool) tea.Cmd {
	first := w.at < 0
	q := setup.ClaimRequest{Name: w.name, Lead: lead}
	if w.claim.Mine && w.leading && !w.started() {
		q.Draft = w.draft.handed()
	}

	return func() tea.Msg {
		p := polled{again: again}
		if p.claim, p.err = w.api.SetupClaim(w.ctx, q); p.err != nil {
			return p
		}

		if p.progress, p.err = w.api.SetupProgress(w.ctx); p.err != nil || !first {
			return p
		}

		f, err := w.api.SetupFacts(w.ctx)
		p.facts, p.err = &f, err
		return p
	}
}

func (w *Wizard) pollLater() tea.Cmd {
	// Each poll renews the wizard's claim to lead the set-up. The claim lasts for several polls
	// (package setup).
	return tea.Tick(2*time.Second, func(time.Time) tea.Msg { return pollNow{} })
}

// Update implements tea.Model.
func (w *Wizard) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case cursor.BlinkMsg:
		return w, nil // a blinking cursor would cause traffic on a serial line
	case tea.WindowSizeMsg:
		if msg.Width <= 0 || msg.Height <= 0 {
			return w, nil
		}
		w.size = size{msg.Width, msg.Height}
	case pollNow:
		return w, w.pollSetup(setup.Watch, true)
	case polled:
		cmd := w.polled(msg)
		if msg.again {
			cmd = tea.Batch(cmd, w.pollLater())
		}
		return w, cmd
	case validated:
		if msg.turn != w.turn {
			return w, nil
		}
		w.busy, w.checked = "", msg.full
	case laidOut:
		w.message = fmt.Sprintf("The keyboard is %s now (%s).", msg.title, msg.place)
		if msg.err != nil {
			w.message = cleanLine(msg.err.Error())
		}
		w.laying = false
		return w, w.layOut()
	case tea.KeyPressMsg:
		if cmd, taken := w.globalKey(msg); taken {
			return w, cmd
		}
		return w, w.handleInput(msg)
	case tea.PasteMsg, input.Text:
		if w.ask != nil || w.helping {
			return w, nil
		}
		return w, w.handleInput(msg)
	}

	if w.at < 0 || w.following() {
		return w, nil
	}

	return w, w.pages[w.at].update(w, msg)
}

// handleInput passes typed or pasted text to the page. If no terminal leads, this terminal becomes
// the leader.
func (w *Wizard) handleInput(msg tea.Msg) tea.Cmd {
	if w.at < 0 || w.following() {
		return nil
	}
	cmd := w.pages[w.at].update(w, msg)
	if w.claim.Owner == "" && !w.leading {
		w.leading = true
		return tea.Batch(w.pollSetup(setup.Begin, false), cmd)
	}
	return cmd
}

func (w *Wizard) globalKey(msg tea.KeyPressMsg) (tea.Cmd, bool) {
	key := msg.String()
	if q := w.ask; q != nil {
		switch key {
		case "y", "Y":
			w.ask = nil
			return q.yes(), true
		case "n", "N", "esc":
			w.ask = nil
		}

		return nil, true
	}

	switch {
	case w.helping:
		w.helping = false
		return nil, true
	case w.asksHelp(key):
		w.helping = true
		return nil, true
	case key == "ctrl+c":
		w.ask = &question{w.leaving(), func() tea.Cmd { return tea.Quit }}
		return nil, true
	case w.at >= 0 && w.following():
		if key == "t" || key == "T" {
			w.ask = &question{w.takingOver(), func() tea.Cmd { return w.pollSetup(setup.Take, false) }}
		}
		return nil, true
	}

	return nil, false
}

// leaving returns the text that asks the user whether to leave the page, with the consequence.
func (w *Wizard) leaving() string {
	switch {
	case w.at >= 0 && w.pages[w.at].heading() == progressTitle && !w.Ready():
		return "Leave this page? The set-up continues by itself. (y/n)"
	case w.Ready():
		return "Leave this page? (y/n)"
	}
	for _, p := range w.pages {
		if t, ok := p.(*trialPage); ok && t.confirmed != nil {
			return "Leave the set-up? Nothing but the network has been changed. (y/n)"
		}
	}
	return "Leave the set-up? Nothing has been changed; what you typed is lost. (y/n)"
}

// takingOver returns the text that asks the user whether to take over, with the consequence.
func (w *Wizard) takingOver() string {
	if w.started() {
		return "Take over the set-up from " + terminalName(w.claim.Owner) + "? (y/n)"
	}
	return "Take over, with the answers given there, but not the secrets? (y/n)"
}

// following reports whether another terminal leads.
func (w *Wizard) following() bool { return !w.claim.Mine }

// started reports whether the set-up has started.
func (w *Wizard) started() bool { return w.progress.State != status.SetupNew && w.progress.State != "" }

func (w *Wizard) polled(p polled) tea.Cmd {
	w.lost = p.err
	if p.err != nil {
		return nil
	}

	led := w.claim.Mine
	told := len(w.progress.Unused)
	w.progress, w.claim = p.progress, p.claim
	if !w.claim.Mine || w.claim.Owner != "" {
		w.leading = w.claim.Mine
	}

	if w.Ready() && !w.began {
		return tea.Quit // this terminal has not started the set-up
	}

	if p.facts != nil {
		w.facts = *p.facts
		w.draft = newDraft(w.facts)
		if w.keys != nil {
			w.laid = w.keys.Now()
			w.draft.layout = w.laid
		}

		w.at = 0
		if w.started() {
			w.at = len(w.pages) - 1
		}

		return w.openPage()
	}

	last := len(w.pages) - 1
	switch {
	case w.at < 0:
		return nil
	case w.started() && w.at != last:
		// Another terminal, or configuration from outside, has started the set-up.
		w.at = last
		return w.openPage()
	case !w.started() && w.at == last && w.busy == "":
		w.at = 0
		return w.openPage()
	case w.claim.Mine && !led:
		cmd := w.openPage()
		if w.draft.takeHandedOver(p.claim.Draft) {
			cmd = w.openPage()
			w.message = "What was answered on the other terminal is here, but for passwords and secrets."
		}
		return cmd
	case led && !w.claim.Mine:
		w.turn++
		w.busy, w.message = "", ""
	case told != len(w.progress.Unused):
		return w.pages[w.at].update(w, tea.WindowSizeMsg{}) // the page's head has changed
	}

	return nil
}

// openPage opens the current page.
func (w *Wizard) openPage() tea.Cmd {
	w.turn++
	w.busy = ""
	w.message = ""
	w.helping = false
	return w.pages[w.at].opened(w)
}

// forward opens the next page that applies.
func (w *Wizard) forward() tea.Cmd {
	for i := w.at + 1; i < len(w.pages); i++ {
		if w.pages[i].applies(w) {
			w.at = i
			break
		}
	}
	return w.openPage()
}

// goBack opens the previous page, if there is one.
func (w *Wizard) goBack() tea.Cmd {
	for i := w.at - 1; i >= 0; i-- {
		if w.pages[i].applies(w) {
			w.at = i
			return w.openPage()
		}
	}
	return nil
}

func (w *Wizard) onFirstPage() bool {
	return !slices.ContainsFunc(w.pages[:w.at], func(p page) bool { return p.applies(w) })
}

// validate asks the supervisor to check the whole draft. The page receives the result in a
// validated message.
func (w *Wizard) validate() tea.Cmd {
	w.busy = "Checking the answers ..."
	turn, a := w.turn, w.draft.answers()
	return func() tea.Msg {
		v, err := w.api.SetupValidate(w.ctx, a)
		return validated{turn, v.Faults, v.Answers, err}
	}
}
