package tui

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

var update = flag.Bool("update", false, "rewrite the screens under testdata")

// pump runs a model without a terminal. It lives in a synctest bubble: time
// passes only when a test lets it.
type pump struct {
	t    *testing.T
	m    tea.Model
	msgs chan tea.Msg
	quit bool
	over bool // no further commands are run
}

func newPump(t *testing.T, m tea.Model) *pump {
	p := &pump{t: t, m: m, msgs: make(chan tea.Msg, 1000)}
	p.run(m.Init())
	p.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	return p
}

var cmdList = reflect.TypeFor[[]tea.Cmd]()

// run starts a command as bubbletea does: each in its own goroutine, except
// for sequences.
func (p *pump) run(cmd tea.Cmd) {
	if cmd == nil || p.over {
		return
	}
	go p.exec(cmd)
}

func (p *pump) exec(cmd tea.Cmd) {
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, c := range msg {
			p.run(c)
		}
	default:
		v := reflect.ValueOf(msg)
		if v.Kind() != reflect.Slice || !v.Type().ConvertibleTo(cmdList) {
			p.msgs <- msg
			return
		}

		for _, c := range v.Convert(cmdList).Interface().([]tea.Cmd) { // tea.Sequence
			if c != nil {
				p.exec(c)
			}
		}
	}
}

// settle lets everything happen that needs no time.
func (p *pump) settle() {
	for {
		synctest.Wait()
		select {
		case msg := <-p.msgs:
			if _, ok := msg.(tea.QuitMsg); ok {
				p.quit = true
				continue
			}
			p.update(msg)
		default:
			return
		}
	}
}

func (p *pump) update(msg tea.Msg) {
	var cmd tea.Cmd
	p.m, cmd = p.m.Update(msg)
	p.run(cmd)
}

func (p *pump) send(msg tea.Msg) {
	p.update(msg)
	p.settle()
}

// wait lets time pass.
func (p *pump) wait(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(500*time.Millisecond, time.Until(end)))
		p.settle()
	}
}

// end lets what still sleeps wake up and end.
func (p *pump) end() {
	p.over = true
	time.Sleep(10 * time.Minute)
	p.settle()
}

var special = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "tab": {Code: tea.KeyTab}, "esc": {Code: tea.KeyEscape},
	"up": {Code: tea.KeyUp}, "f1": {Code: tea.KeyF1}, "down": {Code: tea.KeyDown},
	"shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	"ctrl+u": {Code: 'u', Mod: tea.ModCtrl}, "ctrl+t": {Code: 't', Mod: tea.ModCtrl},
}

// keys presses keys by name; a word with a leading = is typed.
func (p *pump) keys(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		if text, ok := strings.CutPrefix(k, "="); ok {
			for _, r := range text {
				p.send(tea.KeyPressMsg{Code: r, Text: string(r)})
			}
			continue
		}

		if msg, ok := special[k]; ok {
			p.send(msg)
		} else if len(k) == 1 {
			p.send(tea.KeyPressMsg{Code: rune(k[0]), Text: k})
		} else {
			p.t.Fatalf("no key %q", k)
		}
	}
}

// screen is what an 80x24 terminal shows.
func (p *pump) screen() string { return ansi.Strip(p.m.View().Content) }

// has fails the test unless the screen shows each text.
func (p *pump) has(texts ...string) {
	p.t.Helper()
	s := p.screen()
	flat := strings.Join(strings.Fields(s), " ")
	for _, text := range texts {
		if !strings.Contains(s, text) && !strings.Contains(flat, text) {
			p.t.Fatalf("%q is not on the screen:\n%s", text, s)
		}
	}
}

// golden compares the screen with the recorded one, after checking what holds
// for all: it fits, and is ASCII.
func (p *pump) golden(name string) {
	p.t.Helper()
	lines := strings.Split(p.screen(), "\n")
	if len(lines) > 24 {
		p.t.Errorf("%s: %d lines", name, len(lines))
	}

	for i, l := range lines {
		l = strings.TrimRight(l, " ")
		lines[i] = l
		if len(l) > 79 {
			p.t.Errorf("%s: line %d has %d columns: %s", name, i+1, len(l), l)
		}

		for _, r := range l {
			if r < ' ' || r > '~' {
				p.t.Errorf("%s: line %d has %q", name, i+1, r)
			}
		}
	}

	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			p.t.Fatal(err)
		}
		return
	}

	want, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatalf("%v (make it with -update)", err)
	}

	if got != string(want) {
		p.t.Errorf("%s differs.\n--- got\n%s--- want\n%s", name, got, want)
	}
}
