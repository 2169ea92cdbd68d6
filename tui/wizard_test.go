package tui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"saltern/supervisor/keyboard"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// inBubble runs a test of the wizard against a scripted supervisor.
func inBubble(t *testing.T, s *scripted, do func(p *pump)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := NewWizard(t.Context(), s, "tty1")
		p := newPump(t, w)
		defer p.end()
		do(p)
	})
}

// join is a join string of the right form.
var join = setup.JoinInfo{
	KeyHash: strings.Repeat("0123456789abcdef", 4),
	Secret:  "not-shown-secret-of-it",
	Peers:   []string{"10.0.0.12"},
}.String()

// finger is the fingerprint of a key.
var finger = strings.Repeat("0a:1b:2c:3d:", 7) + "0a:1b:2c:3d"

const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW ops@example"

// TestFormPages walks the way of a first node, with a fixed address, and
// compares every screen.
func TestFormPages(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.golden("01-welcome")
		p.keys("enter")
		p.golden("02-network")
		p.keys("enter", "down", "down", "enter")
		p.golden("03-fixed")
		p.keys(clearFixed...)
		p.keys("=10.0.0.21/24", "enter", "=10.0.0.1", "enter", "=10.0.0.2, 10.0.0.3", "enter",
			"=example.org", "enter", "=ntp.example.org", "enter")
		p.golden("04-trial")
		p.wait(15 * time.Second)
		p.has("taken back in 45 seconds", "name server 10.0.0.3 NO ANSWER", "NO ANSWER: no such name")
		p.golden("04-trial-answers")
		p.keys("enter")
		p.has("Administrator")
		p.golden("05-administrator")
		p.keys("="+someKey, "enter", "=correct horse", "enter", "=correct horse", "enter")
		p.golden("06-form")
		p.keys("=prod-eu", "enter", "enter", "enter", "enter")
		p.golden("07-storage")
		p.keys("enter")
		p.golden("08-virtual")
		p.keys("=10.0.0.20", "enter")
		p.golden("13-api")
		p.keys("down", "enter")
		p.golden("09-preflight")
		p.keys("enter")
		p.golden("10-review")
		p.keys("enter")
		p.has("Press s to start the set-up.")

		if s.started != nil {
			t.Error("Enter starts the set-up")
		}

		p.keys("s")
		p.wait(3 * time.Second)
		p.golden("11-progress")
		s.set(func(s *scripted) {
			s.progress = setup.Progress{
				State: status.SetupReady,
				Done: &setup.Done{
					Addresses:  []string{"10.0.0.20", "10.0.0.21"},
					Console:    "https://10.0.0.20:8000/console/",
					MinionConf: setup.MinionConf([]string{"10.0.0.20"}, finger, setup.Ports{}),
					States:     "/srv/salt",
					Pillars:    "/srv/pillar",
					JoinString: setup.JoinInfo{
						KeyHash: strings.Repeat("0123456789abcdef", 4),
						Secret:  strings.Repeat("s", 32),
						Peers:   []string{"10.0.0.21"},
					}.String(),
					BackUp: []string{"the join string above", "what applianced backup writes"},
				},
			}
		})

		p.wait(3 * time.Second)
		p.golden("12-ready")
		p.keys("enter")
		if !p.quit {
			t.Error("the wizard goes on after the last page")
		}
	})

	a := s.started
	if a == nil || a.Mode != setup.Form || a.Cluster != "prod-eu" || a.Node != "sca-1" ||
		a.Network.Method != "static" || a.Network.Address != "10.0.0.21/24" ||
		len(a.Network.DNS) != 2 || len(a.Network.Search) != 1 || len(a.Network.NTP) != 1 || a.DataDisk != "/dev/vdb" || a.Virtual != "10.0.0.20" || !a.API || a.Admin.Password != "correct horse" || a.Admin.SSHKeys[0] != someKey {
		t.Errorf("started with %+v", a)
	}

	if got := strings.Join(s.networks, " "); got != "try confirm" {
		t.Errorf("network: %s", got)
	}
}

// TestJoinPages walks the two ways to join.
func TestJoinPages(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys("down", "enter")
		p.has("Administrator") // the network is not ours
		p.keys("="+someKey, "enter", "enter", "enter")
		p.golden("20-join-how")
		p.keys("enter", "enter", "enter")
		p.keys("=" + join)
		p.golden("21-join-string")

		if strings.Contains(p.screen(), "not-shown") {
			t.Error("the join string is shown")
		}

		p.keys("ctrl+t")
		p.has("109 characters", "ot-shown-secret-of-it@10.0.0.12")
		p.golden("27-join-shown")
		p.keys("ctrl+t")

		if strings.Contains(p.screen(), "not-shown") {
			t.Error("the join string is still shown")
		}

		p.keys("=z", "enter")
		p.wait(holdFor)
		p.has("typing error after the @")
		p.keys("esc", "down", "enter", "enter", "enter")
		p.golden("22-join-peers")
		p.keys("=prod-eu", "enter", "=10.0.0.12,10.0.0.13", "enter", "=zitrone-leuchtturm1", "enter")
		p.golden("31-join-storage")
		p.keys("down", "down", "down", "enter")
		p.golden("23-erase")
		p.keys("enter")
		p.has("! /dev/vdc is not empty")
		p.keys("esc", "up", "enter")
		p.golden("24-shared")
		p.keys("=/srv/nfs", "enter", "enter", "enter")
		p.golden("25-review-join")

		if strings.Contains(p.screen(), "geheimer") {
			t.Error("the secret is shown")
		}

		p.keys("s")
		p.wait(3 * time.Second)
	})

	if a := s.started; a == nil || a.Mode != setup.Join || len(a.Peers) != 2 ||
		a.Secret != "zitrone-leuchtturm1" || a.JoinString != "" || a.Storage.Path != "/srv/nfs" || a.API || a.DataDisk != "" {
		t.Errorf("started with %+v", s.started)
	}
}

// TestImageNode: a machine with the image's host name is offered one of its own,
// and its administrator is told how to clear the field.
func TestImageNode(t *testing.T) {
	for _, mode := range []string{"form", "join"} {
		s := newScripted()
		s.facts.Managed = false
		s.facts.Hostname = "saltern"
		s.facts.Appliance = true
		inBubble(t, s, func(p *pump) {
			if mode == "join" {
				p.keys("down")
			}

			p.keys("enter", "="+someKey, "enter", "enter", "enter", "enter")
			p.has("> salt-123456", "Ctrl-U clears this line.")
			p.golden("26-image-" + mode)
			p.keys("ctrl+u", "=n7")
			p.has("> n7")
			p.keys("enter", "enter", "=rack-7.example.org")
			p.has("> rack-7.example.org")

			if a := p.m.(*Wizard).draft.answers(); a.Node != "n7" ||
				a.Network.Hostname != "rack-7.example.org" || a.Network.Method != "" {
				t.Errorf("%s: %+v", mode, a)
			}
		})
	}
}

// TestPreflightStops: a failed check keeps the wizard before the review, with
// its hint; the checks can be made again and answers be changed.
func TestPreflightStops(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	good := s.checks
	s.checks = []setup.Check{
		{
			Name:   "clock",
			What:   "clock, compared with 10.0.0.12",
			Result: setup.Fail,
			Detail: "10 minutes behind",
			Hint:   "set the clock: timedatectl, or name a time server that answers",
		},
		{
			Name:   "mtu",
			What:   "large packets to 10.0.0.12",
			Result: setup.Warn,
			Detail: "1450 bytes pass",
			Hint:   "minions and peers will work; look at the switch",
		},
		{
			Name:   "port",
			What:   "port 4521/tcp of 10.0.0.12",
			Result: setup.Fail,
			Detail: "connection refused",
			Hint:   "is applianced running there, and does a firewall drop 4521/tcp?",
		},
		{
			Name:   "cluster",
			What:   "cluster at 10.0.0.12",
			Result: setup.Skip,
			Detail: "not looked at: no peer could be reached",
		},
		{Name: "name", What: "evil \x1b[31mname\u2588\n", Result: setup.Pass},
	}

	inBubble(t, s, func(p *pump) {
		p.keys("enter", "="+someKey, "enter", "enter", "enter", "=prod", "enter", "enter", "enter", "enter",
			"enter", "enter", "enter")
		p.golden("30-preflight-fails")
		p.keys("enter")
		p.has("Checks")
		s.set(func(s *scripted) { s.checks = good })
		p.keys("r")
		p.has("The set-up can go on")
		p.keys("esc")
		p.has("Salt's API")
		p.keys("enter", "enter")
		p.has("This will be done")
		s.set(func(s *scripted) { s.startErr = errors.New("somebody else leads: ttyS0") })
		p.keys("s")
		p.has("Not started: somebody else leads")
	})

	if s.started != nil {
		t.Error("started")
	}
}

// TestPresentNetworkIsShown: who is to leave the network as it is sees how it is.
func TestPresentNetworkIsShown(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys("enter")
		p.has("Now ens3", "10.0.0.11/24 by DHCP", "gateway 10.0.0.1", "name servers 10.0.0.2, 10.0.0.3")
		p.keys("down")
		p.has("Now ens4", "no cable", "no address")
	})
	s = newScripted()
	s.facts.Interfaces = nil
	inBubble(t, s, func(p *pump) {
		p.keys("enter")
		p.has("This machine has no network interface.")
	})
}

// fakeKeyboard notes the layouts that were set.
type fakeKeyboard struct {
	set []string
	err error
}

func (k *fakeKeyboard) Layouts() (out []Layout) {
	for _, l := range (keyboard.Keyboard{}).Layouts() {
		out = append(out, Layout{Name: l.Name, Title: l.Title})
	}
	return out
}

func (k *fakeKeyboard) Now() string { return "us" }
func (k *fakeKeyboard) Set(_ context.Context, name string) error {
	k.set = append(k.set, name)
	return k.err
}

// TestKeyboard: at the machine's own screen the layout of the keyboard can be
// chosen, before anything is typed; elsewhere it is not asked for.
func TestKeyboard(t *testing.T) {
	s, k := newScripted(), &fakeKeyboard{}
	s.facts.Managed = false
	synctest.Test(t, func(t *testing.T) {
		w := NewWizard(t.Context(), s, "tty1")
		w.AtKeyboard(k)
		p := newPump(t, w)
		defer p.end()

		p.has("Keyboard", "> English (US)")
		p.golden("28-keyboard")
		p.keys("enter", "down", "down")
		p.has("> German", "The keyboard is German now (3 of 21).")
		k.err = errors.New("loadkeys: no such map")
		p.keys("down")
		p.has("loadkeys: no such map")
		p.update(special["down"]) // two keys faster than a layout is set
		p.update(special["down"])
		p.settle()
		p.keys("enter")
		p.has("Administrator")
	})

	if got := strings.Join(k.set, " "); got != "uk de ch-de ch-fr fr" {
		t.Errorf("set: %s", got)
	}

	inBubble(t, newScripted(), func(p *pump) {
		if strings.Contains(p.screen(), "Keyboard") {
			t.Error("a terminal without a keyboard of its own is asked for its layout")
		}
	})
}

// TestHelp: each page with fields has a paragraph of help that fits, by F1 also
// where a question mark is typed.
func TestHelp(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys("?")
		p.has("Help: Welcome", "any key: back")
		p.golden("29-help")
		p.keys("x", "enter", "=a?b")
		p.has("> a?b")
		p.keys("f1")
		p.has("Help: Administrator", "Ctrl-T shows what you typed")
		p.keys("ctrl+c")
		p.has("> a?b", "Administrator (2 of 8)")
	})

	for _, x := range append(wizardPages(), networkPages()[:3]...) {
		room := size{minWidth, minHeight}.bodySize()
		if text := helpText(x.heading(), room.width); text == "" || strings.Count(text, "\n") > room.height {
			t.Errorf("%s: help of %d lines", x.heading(), strings.Count(text, "\n"))
		}
	}

	for view := overview; view <= joining; view++ {
		c := Console{size: size{minWidth, minHeight}, view: view}
		if text := c.helpBody(); text == "" || strings.Count(text, "\n") > c.size.bodySize().height {
			t.Errorf("view %d of the console: help of %d lines", view, strings.Count(text, "\n"))
		}
	}
}

// TestFixedAddressIsFilledIn: who takes a fixed address is offered what the machine has
// now, of the interface that he chose; what he types stays. (m2)
func TestFixedAddressIsFilledIn(t *testing.T) {
	s := newScripted()
	s.facts.Interfaces[1].Addresses = []string{"fe80::1/64", "fd00::7/64", "10.9.0.7/16"}
	s.facts.DNS = []string{"127.0.0.53", "10.0.0.2"}
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter", "down", "down", "enter")
		p.has("> 10.0.0.11/24", "> 10.0.0.1", "> 10.0.0.2", "> example.org",
			"The fields hold what this machine has now.")
		p.keys("esc", "down", "enter", "enter")
		p.has("> 10.9.0.7/16")
		p.keys("ctrl+u", "=10.9.0.8/16", "esc", "up", "enter", "enter")
		p.has("> 10.9.0.8/16")
	})

	for want, i := range map[string]setup.Interface{
		"":           {Name: "e", Addresses: []string{"fe80::1/64", "10.0.0.1/32", "nonsense"}, Gateway: "10.0.0.2"},
		"fd00::7/64": {Name: "e", Addresses: []string{"fe80::1/64", "fd00::7/64"}},
	} {
		got := presentAddress(setup.Facts{Interfaces: []setup.Interface{i}, DNS: []string{"::1"}}, "e")
		if got != (fixedAddress{address: want}) {
			t.Errorf("%v: %+v", i.Addresses, got)
		}
	}
}

// TestNoVirtualAddressOnEC2: it would have no effect there and is not asked.
func TestNoVirtualAddressOnEC2(t *testing.T) {
	s := newScripted()
	s.facts.Managed, s.facts.EC2 = false, true
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter", "enter", "enter", "=c", "enter", "enter", "enter", "enter")
		p.has("Storage")
		p.keys("enter")
		p.has("Salt's API")
		p.keys("enter")
		p.has("The set-up can go on")
	})
}

// TestTrialEnds: nobody confirms the network, and the page says so.
func TestTrialEnds(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter", "down", "enter")
		p.has("on trial", "taken back in 60 seconds")
		p.wait(61 * time.Second)
		p.has("The network is as it was before")
		p.keys("r")
		p.has("taken back in 60 seconds")
		p.keys("esc")
		p.has("A change is tried first", "The network is as it was before.")
	})

	if got := strings.Join(s.networks, " "); got != "try try revert" {
		t.Errorf("network: %s", got)
	}
}

// TestFailureAndBack: why it stopped, what to look at, and both ways on.
func TestFailureAndBack(t *testing.T) {
	s := newScripted()
	s.progress = setup.Progress{
		State: status.SetupFailed,
		Steps: []setup.Step{{Name: "prove the secret", State: "failed", Message: "refused"}},
		Failure: &setup.Failure{
			Tried: "to join through 10.0.0.11",
			Cause: "the cluster does not know this secret",
			Back:  true,
			Check: []string{"the secret on a node: applianced join-string",
				"that 10.0.0.11 is a node of the cluster you mean"},
		},
	}

	inBubble(t, s, func(p *pump) {
		p.golden("40-failed")
		p.keys("r")
		p.wait(3 * time.Second)
		p.has("Failed:")
		p.keys("b")
		p.wait(3 * time.Second)
		p.has("What shall this machine do?")
	})

	if s.retried != 1 || s.restored != 1 {
		t.Errorf("retried %d, went back %d times", s.retried, s.restored)
	}
}

// TestFirstKeyLeads: a terminal that nobody has typed at follows nobody, and
// leads from the first key on.
func TestFirstKeyLeads(t *testing.T) {
	s := newScripted()
	s.claim = setup.Claim{Mine: true}
	inBubble(t, s, func(p *pump) {
		p.wait(5 * time.Second)
		p.has("What shall this machine do?")
		if len(s.asked) > 0 {
			t.Errorf("asked to lead without a key: %v", s.asked)
		}

		p.keys("down", "up", "down")
		p.wait(3 * time.Second)
		if len(s.asked) != 1 || s.asked[0] != string(setup.Begin) || s.claim.Owner == "" {
			t.Errorf("asked %v, led by %q", s.asked, s.claim.Owner)
		}

		p.has("What shall this machine do?")
	})
}

// TestFollower: the second terminal follows, and can take over.
func TestFollower(t *testing.T) {
	s := newScripted()
	s.claim = setup.Claim{Owner: "ttyS0", Since: time.Date(2026, 11, 21, 10, 32, 0, 0, time.UTC)}
	inBubble(t, s, func(p *pump) {
		p.golden("50-follower")
		p.keys("f1")
		p.has("Help: Following")
		p.keys("x")
		p.keys("enter", "down") // nothing is answered here
		s.set(func(s *scripted) {
			s.progress = setup.Progress{
				State: status.SetupForming,
				Steps: []setup.Step{{Name: "make the shared volume", State: "doing"}},
			}
		})

		p.wait(3 * time.Second)
		p.golden("51-follower-progress")
		p.keys("t")
		p.has("Take over the set-up from the serial line (ttyS0)? (y/n)")
		p.keys("n", "t", "y")
		p.wait(3 * time.Second)
		p.has("continues by itself")
		s.set(func(s *scripted) { s.claim = setup.Claim{Owner: "ttyS0"} })
		p.wait(3 * time.Second)
		p.has("Following ttyS0")
	})
}

// TestTakeOverBringsTheAnswers: who takes over finds what was answered on the other
// terminal, but no secret, and no consent to erase a disk; what he types from then on
// goes with him who takes it back. (m1)
func TestTakeOverBringsTheAnswers(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	secrets := []string{"correct horse", "hidden-secret-of-many-words", join}
	inBubble(t, s, func(p *pump) {
		p.keys(toHow...)
		p.keys("enter", "ctrl+u", "=n7", "enter", "=10.0.0.11", "enter", "="+join, "esc", "up", "esc",
			"ctrl+u", "="+someKey, "enter", "=correct horse", "enter", "=correct horse")
		w := p.m.(*Wizard)
		w.draft.secret = secrets[1]
		w.draft.erase = true
		w.draft.api = true
		w.draft.storage = "/dev/vdc"
		p.wait(3 * time.Second)
	})

	for name, value := range s.draft {
		for _, secret := range secrets {
			if strings.Contains(value, secret) {
				t.Errorf("%s is handed over: %s", name, value)
			}
		}
	}

	s.claim = setup.Claim{Owner: "tty1", Since: time.Date(2026, 11, 21, 10, 32, 0, 0, time.UTC)}
	inBubble(t, s, func(p *pump) {
		p.keys("t")
		p.has("Take over, with the answers given there, but not the secrets? (y/n)")
		p.keys("y")
		p.has("> join an existing cluster",
			"What was answered on the other terminal is here, but for passwords and secrets.")
		w := p.m.(*Wizard)
		d := w.draft
		if d.node != "n7" || d.peerAddress != "10.0.0.11" || d.sshKey != someKey || !d.api || d.storage != "/dev/vdc" {
			t.Errorf("taken over: %+v", d)
		}

		if d.erase || d.password+d.again+d.secret+d.joinString != "" {
			t.Errorf("secrets are taken over: %+v", d)
		}

		w.draft.node = "n8"
		p.wait(3 * time.Second)
	})

	if s.draft["node"] != "n8" {
		t.Errorf("who takes it back finds %q", s.draft["node"])
	}
}

// TestSecretStaysWhereItWasStarted: a terminal that only follows, or watched
// an unattended set-up, ends when the node is ready and never shows its secret.
func TestSecretStaysWhereItWasStarted(t *testing.T) {
	for _, mine := range []bool{true, false} {
		s := newScripted()
		s.claim.Mine = mine
		inBubble(t, s, func(p *pump) {
			s.set(func(s *scripted) { s.progress = setup.Progress{State: status.SetupJoining} })
			p.wait(3 * time.Second)
			p.has("State: joining")
			s.set(func(s *scripted) {
				s.progress = setup.Progress{State: status.SetupReady, Done: &setup.Done{JoinString: join}}
			})
			p.wait(3 * time.Second)

			if !p.quit || strings.Contains(p.screen(), "not-shown") {
				t.Errorf("leading %v: ended %v:\n%s", mine, p.quit, p.screen())
			}
		})
	}
}

// TestReadyAlone: the last page of a machine that no other can join says so.
func TestReadyAlone(t *testing.T) {
	for join, words := range map[string]string{"": "No other node can join", join: "The next node joins with"} {
		w := &Wizard{
			size:     size{80, 24},
			progress: setup.Progress{State: status.SetupReady, Done: &setup.Done{JoinString: join}},
		}
		if page := w.renderDone(); !strings.Contains(page, words) {
			t.Errorf("join string %q: no %q in\n%s", join, words, page)
		}
	}
}

// TestFactsAfterTrial: pages after a change of the network name the addresses
// that the machine has now.
func TestFactsAfterTrial(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter", "down", "enter")
		p.has("taken back in 60 seconds")
		s.set(func(s *scripted) { s.facts.Interfaces[0].Addresses = []string{"fe80::1/64", "10.0.0.77/24"} })
		p.keys("enter", "enter", "enter", "enter")
		p.has("empty: 10.0.0.77")
	})
}

// TestLeaving: Ctrl-C asks, and nothing was started.
func TestLeaving(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "ctrl+c")
		p.golden("60-leaving")
		p.keys("x", "enter", "n")
		p.has("A change is tried first")
		p.keys("ctrl+c", "y")

		if !p.quit {
			t.Error("still there")
		}
	})

	if s.started != nil || len(s.networks) != 0 {
		t.Error("something was changed")
	}
}

// TestUnattendedOvertakes: answers come from elsewhere while somebody looks at
// the wizard.
func TestUnattendedOvertakes(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter")
		s.set(func(s *scripted) { s.progress = setup.Progress{State: status.SetupJoining} })
		p.wait(3 * time.Second)
		p.has("State: joining")
	})
}

// TestSupervisorLost: the supervisor goes away and comes back.
func TestSupervisorLost(t *testing.T) {
	s := newScripted()
	s.err = errors.New("not running")
	inBubble(t, s, func(p *pump) {
		p.golden("61-no-supervisor")
		s.set(func(s *scripted) { s.err = nil })
		p.wait(3 * time.Second)
		p.has("What shall this machine do?")
		s.set(func(s *scripted) { s.err = errors.New("not running") })
		p.wait(3 * time.Second)
		p.has("The supervisor does not answer")
		p.keys("enter")
		s.set(func(s *scripted) { s.err = nil })
		p.wait(3 * time.Second)
		p.has("The answers could not be checked")
		p.keys("enter")
		p.has("Network")
	})
}

// TestSizes: small screens say so, large ones are used, and the way back
// brings the page with what was typed.
func TestSizes(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "=ssh-ed25519 AAAA")
		p.send(tea.WindowSizeMsg{Width: 40, Height: 10})
		p.has("This terminal is too small")
		p.send(tea.WindowSizeMsg{Width: 0, Height: 0}) // says nothing
		p.send(tea.WindowSizeMsg{Width: 1, Height: 1})
		p.screen()
		p.send(tea.WindowSizeMsg{Width: 120, Height: 50})
		p.has("ssh-ed25519 AAAA")
		p.send(tea.WindowSizeMsg{Width: 80, Height: 24})
		p.has("ssh-ed25519 AAAA")
	})
}

// TestTypeAhead: keys that come faster than the page is drawn go into the
// fields they were meant for.
func TestTypeAhead(t *testing.T) {
	s := newScripted()
	s.facts.Managed = false
	inBubble(t, s, func(p *pump) {
		p.keys("enter", "enter", "enter", "enter")
		for _, r := range "lab\rx\r10.0.0.11\r" {
			key := tea.KeyPressMsg{Code: r, Text: string(r)}
			if r == '\r' {
				key = special["enter"]
			}
			p.update(key)
		}

		p.settle()
		p.has("> lab", "> sca-1x", "> 10.0.0.11")
	})
}

// TestUnusedIsTold: the first page says what was given with the machine and is
// not used, also when that is found while the page is shown (F6).
func TestUnusedIsTold(t *testing.T) {
	s := newScripted()
	inBubble(t, s, func(p *pump) {
		p.has("What shall this machine do?")
		s.set(func(s *scripted) {
			s.progress.Unused = []string{
				"EC2 user-data was given and holds no answers for the set-up (gzip, MIME, 2 parts): part 1 is a script, part 2 is a #cloud-config without the key saltern",
				"vendor-data is not read"}
		})

		p.wait(5 * time.Second)
		p.has("Not used: EC2 user-data was given", "All of it (2): applianced setup progress",
			"What shall this machine do?", "join as arbiter")
	})

	lines := strings.Join(ProgressLines(setup.Progress{
		State:  status.SetupNew,
		Unused: []string{"vendor-data is not read"},
	},
		79),
		"\n")
	if !strings.Contains(lines, "Given with this machine and not used:\n  - vendor-data is not read") {
		t.Errorf("%s", lines)
	}
}

// TestChecksSayWhatTheyLookAt: no line is longer than the screen, which would cut it in
// the middle of a word, and a first node is told nothing of other nodes.
func TestChecksSayWhatTheyLookAt(t *testing.T) {
	for mode, others := range map[setup.Mode]bool{setup.Form: false, setup.Join: true} {
		t.Run(string(mode), func(t *testing.T) {
			w := &Wizard{busy: "Checking ...", size: size{80, 24}}
			w.draft.mode = string(mode)
			text := (&preflightPage{}).render(w)
			for l := range strings.Lines(text) {
				if got := ansi.StringWidth(strings.TrimRight(l, "\n")); got > w.size.bodySize().width {
					t.Errorf("%d columns: %q", got, l)
				}
			}

			if got := strings.Contains(text, "other nodes"); got != others {
				t.Errorf("other nodes: %t\n%s", got, text)
			}
		})
	}
}
