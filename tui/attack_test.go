package tui

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// evil is what a peer, a disk or a minion might call itself.
const evil = "a\x1b[2J\x1b]0;title\x07\x1b[31mred\r\n\tb\x00\x7f\u202e\u2588\xff\u009b5mc"

// ours are the sequences that pages use themselves: bold, reverse, and back.
var ours = regexp.MustCompile("\x1b\\[[017]?m")

// harmless fails the test if a screen holds anything but printable ASCII, line
// ends and our own sequences.
func harmless(t *testing.T, name, screen string) {
	t.Helper()
	rest := ours.ReplaceAllString(screen, "")
	if i := strings.IndexFunc(rest, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }); i >= 0 {
		t.Errorf("%s: %q", name, rest[max(0, i-20):min(len(rest), i+20)])
	}
}

// TestAttack26TerminalEscapes: text from outside cannot reach the terminal as
// anything but printable characters, on any page that shows some.
func TestAttack26TerminalEscapes(t *testing.T) {
	s := newScripted()
	s.facts.Hostname, s.facts.Version = "host", evil
	for i := range s.facts.Interfaces {
		s.facts.Interfaces[i].MAC = evil
		s.facts.Interfaces[i].Addresses = []string{evil, "10.0.0.9/24"}
	}

	for i := range s.facts.Disks {
		s.facts.Disks[i].Model, s.facts.Disks[i].Why = evil, evil
	}

	s.checks = []setup.Check{{Name: evil, What: evil, Detail: evil, Hint: evil, Result: setup.Fail}}
	inBubble(t, s, func(p *pump) {
		look := func(name string) { harmless(t, name, p.m.View().Content) }
		look("welcome")
		p.keys("enter")
		look("network")
		p.keys("enter", "enter", "enter", "enter", "enter", "enter", "enter", "ctrl+u", "=10.0.0.9", "enter",
			"enter", "enter")
		look("storage or later")
		p.keys("down", "down", "enter")
		look("after storage")

		for _, progress := range []setup.Progress{
			{
				State: evil,
				Steps: []setup.Step{
					{Name: evil, State: evil, Message: evil},
					{Name: evil, State: "doing", Message: evil},
				},
			},
			{State: status.SetupFailed, Failure: &setup.Failure{Tried: evil, Cause: evil, Check: []string{evil, evil}}},
			{
				State: status.SetupReady,
				Done: &setup.Done{
					Addresses:  []string{evil},
					MinionConf: evil + "\n" + evil,
					States:     evil,
					Pillars:    evil,
					JoinString: evil,
					Console:    evil,
					BackUp:     []string{evil},
				},
			},
		} {
			p.m.(*Wizard).began = true // the last page too
			s.set(func(s *scripted) { s.progress = progress })
			p.wait(3 * time.Second)
			look(string(progress.State))
		}

		s.set(func(s *scripted) { s.claim = setup.Claim{Owner: evil} })
		p.wait(3 * time.Second)
		look("follower")
		p.keys("t")
		look("take over?")
	})

	s = newScripted()
	s.facts.Hostname = evil
	inConsole(t, s, func(p *pump, _ *Console) {
		s.set(func(s *scripted) {
			d := &s.doc
			d.Node = evil
			d.Cluster = evil
			d.Version = evil
			d.Next = evil
			d.Front.Addresses = []string{evil}
			d.Nodes = []status.Node{{
				Name:    evil,
				Role:    evil,
				State:   evil,
				Master:  evil,
				Proxy:   evil,
				Storage: evil,
				Clock:   evil,
			}}

			d.Services = []status.Service{{Name: evil, State: evil, Message: evil, LastExit: evil}}
			d.Storage.Path = evil
			d.Problems = []status.Problem{{Code: evil, Title: evil, Cause: evil, Next: evil}}
		})

		p.wait(4 * time.Second)
		for _, key := range []string{"", "1", "esc", "2", "esc", "3", "esc", "5"} {
			if key != "" {
				p.keys(key)
			}
			harmless(t, "console "+key, p.m.View().Content)
		}
	})
}
