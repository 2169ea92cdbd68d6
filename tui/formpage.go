package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"

	"saltern/supervisor/setup"
	"saltern/tui/input"
)

// tightFrom is the number of fields from which a page omits the empty lines between its fields.
const tightFrom = 5

// maxInput bounds the text of a field. The longest texts are SSH keys.
const maxInput = 16 << 10

// formPage asks the user for some answers. When its form is complete, the supervisor validates all
// answers. If a field of the page has a fault, the page stays open and shows the fault at the
// field.
type formPage struct {
	name   string
	intro  string
	facts  func(w *Wizard) []string // lines below the intro; may be nil
	fields func(w *Wizard, f *fieldMaker) []huh.Field
	// prepare fills in known answers before the page opens. It may be nil.
	prepare func(w *Wizard)
	when    func(w *Wizard) bool // reports whether the page applies; may be nil: always
	check   func(w *Wizard) []setup.Fault
	done    func(w *Wizard) tea.Cmd // called with the complete form; may be nil: the supervisor validates all answers
	// places maps fields of other pages to the field of this page that shows their faults.
	places map[string]string
	// unfinished reports whether the text is certainly incomplete, so that Enter may be a line end
	// within a pasted text. It may be nil: Enter always completes the text.
	unfinished func(w *Wizard) bool

	form   *huh.Form
	own    []string // names of the page's fields, in their order
	texts  []textField
	hidden map[string]*huh.Input
	shown  bool // whether hidden fields show their text
	faults map[string]string
	early  []setup.Fault // faults that check has found
	held   int           // number of the last held Enter; see holdEnter
}

// textField is an input field for one line, and a pointer to its text.
type textField struct {
	input  *huh.Input
	text   *string
	hint   string // text at the field while it has no fault
	judged string // the text for which the field shows a fault
}

// fieldMaker creates fields that show their faults.
type fieldMaker struct{ p *formPage }

func (f *fieldMaker) hintFor(field, hint string) string {
	if m := f.p.faults[field]; m != "" {
		return "! " + strings.Join(wrapWords(m, 70), "\n  ")
	}
	return hint
}

func (f *fieldMaker) newInput(field, title, hint string, v *string) *huh.Input {
	i := huh.NewInput().Key(field).Title(title).Description(f.hintFor(field, hint)).CharLimit(maxInput).Prompt("> ").Value(v)
	f.p.texts = append(f.p.texts, textField{input: i, text: v, hint: hint, judged: *v})
	return i
}

func (f *fieldMaker) secret(field, title, hint string, v *string) *huh.Input {
	i := f.newInput(field, title, hint, v)
	if f.p.hidden == nil {
		f.p.hidden = map[string]*huh.Input{}
	}
	f.p.hidden[field] = i
	return i.EchoMode(f.p.echoMode())
}

// choice returns a field with options. If there are many options, the field shows a few options
// around the chosen option, and the number of options.
func (f *fieldMaker) choice(field, title, hint string, v *string, options ...huh.Option[string]) *huh.Select[string] {
	many := len(options) > mostOptions
	if many && hint == "" {
		hint = fmt.Sprintf("%d to choose from; arrows show more", len(options))
	}
	list := huh.NewSelect[string]().Key(field).Title(title).Description(f.hintFor(field, hint)).Options(options...).Value(v)
	if many {
		return list.Height(mostOptions + 2) // two lines more, for title and description
	}
	return list
}

// mostOptions is how many options are shown at a time.
const mostOptions = 7

func (f *fieldMaker) yesNo(field, title, hint string, v *bool) *huh.Select[bool] {
	return huh.NewSelect[bool]().Key(field).Title(title).Description(f.hintFor(field, hint)).
		Options(huh.NewOption("no", false), huh.NewOption("yes", true)).Value(v)
}

func (p *formPage) heading() string { return p.name }

func (p *formPage) applies(w *Wizard) bool { return p.when == nil || p.when(w) }

func (p *formPage) opened(w *Wizard) tea.Cmd {
	p.faults, p.shown = nil, false
	if p.prepare != nil {
		p.prepare(w)
	}
	return p.buildForm(w)
}

func (p *formPage) echoMode() huh.EchoMode {
	if p.shown {
		return huh.EchoModeNormal
	}
	return huh.EchoModePassword
}

// fieldNote returns a note about the text field with the cursor, or "".
func (p *formPage) fieldNote(w *Wizard) string {
	field := p.form.GetFocusedField()
	i := p.hidden[field.GetKey()]
	if i == nil {
		if text, _ := field.GetValue().(string); text != "" && w.typing() {
			return "Ctrl-U clears this line."
		}
		return ""
	}

	v, _ := i.GetValue().(string)
	n := utf8.RuneCountInString(v)
	switch {
	case n == 0:
		return "Nothing is typed here. Ctrl-T shows what you type."
	case !p.shown:
		return fmt.Sprintf("%d characters are typed here. Ctrl-T shows them.", n)
	case n > w.size.bodySize().width-8: // the text is wider than the field
		return fmt.Sprintf("%d characters, Ctrl-T hides them: %s", n, v)
	}

	return fmt.Sprintf("%d characters are typed here. Ctrl-T hides them.", n)
}

// buildForm creates the form from the draft and the known faults, and puts the cursor on the first
// faulty field.
func (p *formPage) buildForm(w *Wizard) tea.Cmd {
	p.hidden, p.texts = nil, nil
	fields := p.fields(w, &fieldMaker{p})
	p.own = nil
	for _, f := range fields {
		p.own = append(p.own, f.GetKey())
	}

	p.form = huh.NewForm(huh.NewGroup(fields...)).WithShowHelp(false).WithShowErrors(false).
		WithTheme(plainTheme(len(fields) >= tightFrom)).WithKeyMap(formKeys())
	p.resize(w)
	cmds := []tea.Cmd{p.form.Init()}
	for i, name := range p.own {
		if p.faults[name] != "" {
			for range i {
				cmds = append(cmds, p.form.NextField())
			}
			break
		}
	}

	return tea.Batch(cmds...)
}

func (p *formPage) resize(w *Wizard) {
	b := w.size.bodySize()
	p.form.WithWidth(b.width).WithHeight(max(3, b.height-strings.Count(p.renderHead(w), "\n")))
	for _, f := range p.texts { // a field computes the shown part of a long text only when the text is set
		f.input.Value(f.text)
	}
}

// renderHead returns the lines above the form.
func (p *formPage) renderHead(w *Wizard) string {
	head := "\n"
	if p.intro != "" {
		head += paragraph("", p.intro, w.size.bodySize().width) + "\n\n"
	}
	if p.facts != nil {
		if lines := p.facts(w); len(lines) > 0 {
			head += strings.Join(lines, "\n") + "\n\n"
		}
	}
	return head
}

func (p *formPage) update(w *Wizard, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case validated:
		return p.validated(w, msg)
	case tea.WindowSizeMsg:
		p.resize(w)
		return nil
	case heldEnter:
		if msg.count != p.held || w.busy != "" {
			return nil // another key followed the Enter
		}
		return p.complete(w)
	case tea.KeyPressMsg:
		if msg.String() == "esc" {
			return w.goBack()
		}
		w.message = ""
		p.held++
	case tea.PasteMsg, input.Text:
		p.held++
	}

	if w.busy != "" {
		return nil
	}

	switch msg := msg.(type) {
	case tea.PasteMsg:
		return p.pasted(w, msg)
	case input.Text:
		return p.insert(w, string(msg))
	case tea.KeyPressMsg:
		if cmd, taken := p.handleMoveKey(w, msg.String()); taken {
			return cmd
		}
	}

	_, cmd := p.form.Update(msg)
	return tea.Batch(cmd, w.layOut())
}

// handleMoveKey handles the keys that move between fields, and the key that shows hidden text. The
// form itself would move only at its next message, and text typed before that would go into the
// previous field. The bool reports whether the key was one of these.
func (p *formPage) handleMoveKey(w *Wizard, key string) (tea.Cmd, bool) {
	at := slices.Index(p.own, p.form.GetFocusedField().GetKey())
	_, line := p.form.GetFocusedField().(*huh.Input)
	last := len(p.own) - 1
	switch {
	case key == "ctrl+t":
		p.shown = !p.shown
		for _, i := range p.hidden {
			i.EchoMode(p.echoMode())
		}
		_, cmd := p.form.Update(nil) // nil redraws the form
		return cmd, true
	case key == "ctrl+v":
		return nil, true // the field would otherwise run a desktop program to read the clipboard
	case key == "enter" && at == last && p.unfinished != nil && p.unfinished(w):
		return p.holdEnter(), true
	case key == "enter" && at == last:
		return p.complete(w), true
	case key == "enter", key == "tab", key == "down" && line:
		if at == last {
			return nil, true
		}
		p.forgetFault(w)
		return p.form.NextField(), true
	case key == "shift+tab", key == "up" && line:
		if at == 0 {
			return nil, true
		}
		p.forgetFault(w)
		return p.form.PrevField(), true
	}

	return nil, false
}

// forgetFault removes the fault of the field that the cursor leaves if the field's text has
// changed: the fault was about the earlier text. While the user corrects the text, the fault stays.
func (p *formPage) forgetFault(w *Wizard) {
	name := p.form.GetFocusedField().GetKey()
	at := slices.IndexFunc(p.texts, func(f textField) bool { return f.input.GetKey() == name })
	if p.faults[name] == "" || at < 0 || *p.texts[at].text == p.texts[at].judged {
		return
	}

	delete(p.faults, name)
	p.texts[at].input.Description(p.texts[at].hint)
	p.resize(w)
}

// heldEnter is the message that an Enter was held for holdFor.
type heldEnter struct{ count int }

// holdFor is how long an Enter is held back. If a terminal does not mark a paste, each pasted line
// ends in an Enter, and the next line follows at once.
const holdFor = 300 * time.Millisecond

// holdEnter waits for holdFor, to learn whether another key follows an Enter.
func (p *formPage) holdEnter() tea.Cmd {
	count := p.held
	return tea.Tick(holdFor, func(time.Time) tea.Msg { return heldEnter{count} })
}

func (p *formPage) complete(w *Wizard) tea.Cmd {
	p.early = nil
	if p.check != nil {
		p.early = p.check(w)
	}
	switch {
	case p.done == nil:
		return w.validate() // shows all faults at once
	case len(p.early) > 0:
		return p.showFaults(w, p.early)
	}
	return p.done(w)
}

func (p *formPage) validated(w *Wizard, msg validated) tea.Cmd {
	if msg.err != nil {
		w.message = "The answers could not be checked: " + cleanLine(msg.err.Error())
		return p.buildForm(w)
	}
	return p.showFaults(w, slices.Concat(p.early, msg.faults))
}

// showFaults shows the faults of this page. If there are none, it opens the next page.
func (p *formPage) showFaults(w *Wizard, faults []setup.Fault) tea.Cmd {
	p.faults = map[string]string{}
	for _, f := range faults {
		if !w.asksLater(f.Field) {
			p.markFault(f)
		}
	}
	if len(p.faults) == 0 {
		return w.forward()
	}
	w.message = "Please correct what is marked with an exclamation mark."
	return p.buildForm(w)
}

// asksLater reports whether a later page of the wizard shows the faults of field.
func (w *Wizard) asksLater(field string) bool {
	return slices.ContainsFunc(w.pages[w.at+1:], func(later page) bool {
		form, ok := later.(*formPage)
		return ok && form.places[field] != "" && form.applies(w)
	})
}

// markFault records a fault at the first field that shows it. A field may have several faults of
// its own, but only one that it shows for other fields.
func (p *formPage) markFault(f setup.Fault) {
	for _, name := range p.own {
		own, old := isAbout(f.Field, name), p.faults[name]
		switch {
		case !own && p.places[f.Field] != name:
			continue
		case old == "":
			p.faults[name] = f.Message
		case own && !strings.Contains(old, f.Message):
			p.faults[name] = old + "; " + f.Message
		}
		return
	}
}

func (p *formPage) render(w *Wizard) string { return p.renderHead(w) + p.form.View() }

func (p *formPage) keyHelp(w *Wizard) string {
	move := "Tab, arrows: move"
	if w.typing() {
		move = "Tab, Up: move"
	}
	back := "Esc: back"
	if w.onFirstPage() && !w.within {
		back = ""
	}
	return footer("Enter: next", move, helpKeys, back, "Ctrl-C: leave")
}

// isAbout reports whether the field called name shows faults of field. It does if the two are the
// same, if one is a part of the other (storage and storage.path), or if one is an element of the
// other (peers and peers[1]).
func isAbout(field, name string) bool {
	return field == name || strings.HasPrefix(field, name+"[") || strings.HasPrefix(field, name+".") ||
		strings.HasPrefix(name, field+".")
}
