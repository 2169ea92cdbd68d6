package tui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

func someStatus(now time.Time) status.Document {
	since, two := now.Add(-12*24*time.Hour), 1204
	d := status.Document{
		Schema:       1,
		Time:         now,
		Health:       status.Degraded,
		Exit:         2,
		Setup:        status.SetupReady,
		Version:      "1.0.0",
		Cluster:      "prod-eu",
		Node:         "sca-1",
		ServingSince: &since,
		Front:        status.Front{Addresses: []string{"10.0.0.11"}, PublishPort: 4505, RequestPort: 4506},
		Nodes: []status.Node{
			{
				Name:    "sca-1",
				This:    true,
				Address: "10.0.0.11",
				Version: "1.0.0",
				Role:    "voter",
				State:   "ready",
				Master:  "ok",
				Proxy:   "ok",
				Storage: "ok",
				Minions: &two,
				Clock:   "+2ms",
			},
			{
				Name:     "sca-2",
				Address:  "10.0.0.12",
				Version:  "1.0.0",
				Role:     "voter",
				State:    "unreachable",
				Master:   "?",
				Proxy:    "?",
				Storage:  "?",
				LastSeen: &since,
			},
		},
		Services: []status.Service{
			{Name: "master", State: "running", Message: "running", Since: since, PID: 812},
			{Name: "lb", State: "running", Message: "running", Since: since, PID: 813},
		},
		Minions: status.Minions{Accepted: 2408, Pending: 3},
		Storage: status.Storage{Path: "/srv/cluster", Total: 64 << 30, Free: 40 << 30, FreePercent: 62},
		Problems: []status.Problem{{
			Code:     status.NodeUnreachable,
			Severity: status.Warning,
			Title:    "node sca-2 is unreachable",
			Since:    now.Add(-4 * time.Minute),
			Cause:    "10.0.0.12 does not answer on 4521/tcp since a while; the evil \x1b[31mname\u2588 is part of a cause that is longer than one line of a terminal",
			Next:     "applianced ping sca-2",
		}},
	}

	return d
}

func inConsole(t *testing.T, s *scripted, do func(p *pump, c *Console)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := NewConsole(t.Context(), s,
			func(context.Context) (string, error) { return "/var/lib/saltern/support/x.tar.gz", nil })
		s.set(func(s *scripted) { s.doc = someStatus(time.Now()) })
		p := newPump(t, c)
		defer p.end()
		do(p, c)
	})
}

// TestConsole walks through the menu and compares every screen.
func TestConsole(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, c *Console) {
		p.golden("70-console")
		p.keys("1")
		p.golden("71-details")
		p.keys("esc", "2")
		p.golden("72-logs")
		p.keys("2")
		p.has("The last lines of lb")
		p.keys("esc", "3")
		p.golden("73-network")
		p.keys("esc", "4")
		p.golden("74-support")
		p.keys("n")
		p.has("1 to 7")
		p.keys("4", "y")
		p.has("Written: /var/lib/saltern/support/x.tar.gz")
		p.keys("5")
		p.golden("75-restart")
		p.keys("1", "n", "2", "y")
		p.has("is being restarted")
		p.keys("esc", "6", "n", "7")

		if !p.quit || c.Action() != Login {
			t.Errorf("ended %v with %q", p.quit, c.Action())
		}
	})

	if got := strings.Join(s.restarts, " "); got != "lb" {
		t.Errorf("restarted: %s", got)
	}
}

// TestConsoleSettingUp: after a power cut in the middle of the set-up the page
// says how far it is and all of what it waits for.
func TestConsoleSettingUp(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, c *Console) {
		s.set(func(s *scripted) {
			s.doc.Setup = status.SetupForming
			s.doc.Health = status.NotServing
			s.doc.Exit = status.ExitNotServing
			s.doc.ServingSince = nil
			s.doc.Nodes, s.doc.Problems = s.doc.Nodes[:1], nil
			s.doc.SetupStep = &status.SetupStep{
				Number:  6,
				Of:      8,
				Name:    "prepare the shared storage",
				Message: "waits for the shared volume (the directory /var/lib/saltern/cluster is not mounted yet)",
			}
		})

		p.wait(4 * time.Second)
		p.has("SETTING UP step 6 of 8", "is not mounted yet)")
		p.golden("81-setting-up")
	})
}

// fakeAccess takes keys if the password is right.
type fakeAccess struct {
	proof    bool
	added    []string
	password string
}

func (*fakeAccess) Account() string       { return "admin" }
func (*fakeAccess) HostKey() string       { return "SHA256:" + strings.Repeat("k", 43) }
func (a *fakeAccess) NeedsPassword() bool { return a.proof }
func (a *fakeAccess) Prove(_ context.Context, password string) error {
	if a.proof && password != "correct horse" {
		return ErrPassword
	}
	return nil
}
func (a *fakeAccess) SetPassword(ctx context.Context, password, fresh string) error {
	if err := a.Prove(ctx, password); err != nil {
		return err
	}
	a.password = fresh
	return nil
}
func (a *fakeAccess) Add(ctx context.Context, key, password string) (int, error) {
	if err := a.Prove(ctx, password); err != nil {
		return 0, err
	}
	switch {
	case strings.HasPrefix(key, "https://"):
		a.added = append(a.added, key)
		return 2, nil
	}
	a.added = append(a.added, key)
	return 1, nil
}

// TestConsoleAddsKeys: who can paste no key on a console gives an address; who
// has not logged in proves that he may.
func TestConsoleAddsKeys(t *testing.T) {
	s, a := newScripted(), &fakeAccess{proof: true}
	inConsole(t, s, func(p *pump, c *Console) {
		c.Offer(a)
		p.has("ssh admin@10.0.0.11", "host key SHA256:kkkk", "8 add an SSH key", "1 to 9, m, k, j: choose")
		p.golden("82-access")
		p.keys("8", "=ssh-rsa nonsense", "enter", "enter")
		p.has("is damaged")
		p.keys("ctrl+u", "="+someKey, "enter", "=wrong", "enter")
		p.has("the password is wrong")
		p.golden("83-add-key")
		p.keys("ctrl+u", "=correct horse", "enter")
		p.has("The key can log in now as admin.", "1 status details")
		p.keys("8", "=https://git.example/jane.keys", "enter", "=correct horse", "enter")
		p.has("2 keys can log in now as admin.")
		p.keys("8", "esc")
		p.has("Nothing was changed.", "1 status details")
		a.proof = false
		p.keys("8")

		if strings.Contains(p.screen(), "Password") {
			t.Error("who has logged in is asked for a password")
		}

		p.keys("esc")
		c.Lock()
		p.keys("8")
		p.has("This needs the administrator")
	})

	if got := strings.Join(a.added, " "); got != someKey+" https://git.example/jane.keys" {
		t.Errorf("added %q", got)
	}

	inConsole(t, newScripted(), func(p *pump, c *Console) {
		p.keys("8")
		p.has("this node has the address 10.0.0.11", "1 to 7, m, k, j: choose")
	})
}

// TestConsoleMenuOfMinions: a minion is configured and its key accepted from the console,
// and the next node let in: for who proves that he is the administrator. (m15)
func TestConsoleMenuOfMinions(t *testing.T) {
	s, a := newScripted(), &fakeAccess{proof: true}
	s.progress = readyProgress()
	s.minions = []status.Minion{
		{ID: "accepted", Key: "accepted", Finger: finger},
		{ID: "web1", Key: "pending", Address: "10.0.0.31", Finger: finger},
		{ID: "evil\x1b[2Jname", Key: "pending", Finger: strings.ToUpper(finger)},
	}

	inConsole(t, s, func(p *pump, c *Console) {
		c.Offer(a)
		c.BeforeLogin()
		p.keys("m")
		p.has("master: 10.0.0.20", "master_finger")
		p.golden("84-lines-for-minions")

		p.keys("esc", "j")
		p.has("Administrator's password", "whoever has it can make a machine a node")
		p.keys("=wrong", "enter")
		p.has("the password is wrong")
		p.keys("ctrl+u", "=correct horse", "enter")
		p.has("The next node joins with this secret string:")
		p.golden("85-join-string")
		p.keys("esc")

		if strings.Contains(p.screen(), "not-shown") {
			t.Error("the join string is still shown")
		}

		p.keys("k", "=correct horse", "enter")
		p.has("Keys that wait to be accepted: 1 of 2", "> web1", "from 10.0.0.31")
		p.golden("86-keys")
		p.keys("f1")
		p.has("Compare the fingerprint with that of the minion")
		p.keys("x", "down")
		p.has("> evilname", "from an unknown address")
		p.keys("up", "a")
		p.has("Accept web1 with the key "+finger[:20], "(y/n)")
		p.keys("n", "a", "y")
		p.has("web1 is accepted.", "Keys that wait to be accepted: 1 of 1")
		p.keys("enter", "y")
		p.has("No minion waits for its key to be accepted.")
		p.keys("a", "down", "esc")
		p.golden("87-console-of-an-image")
	})

	if len(s.changes) != 2 || s.changes[0].Verb != "accept" || s.changes[0].IDs[0] != "web1" ||
		s.changes[0].Finger != finger {
		t.Errorf("changed: %+v", s.changes)
	}
}

// TestConsolePassword: the administrator's password is changed from the console by who
// knows it, or has logged in. (m15)
func TestConsolePassword(t *testing.T) {
	a := &fakeAccess{proof: true}
	inConsole(t, newScripted(), func(p *pump, c *Console) {
		c.Offer(a)
		c.BeforeLogin()
		p.keys("9", "=correct horse", "enter", "=short", "enter", "=other", "enter")
		p.has("! has to have 8 to 256 characters", "! the two passwords differ")
		p.golden("88-new-password")
		p.keys("ctrl+u", "=battery staple", "enter", "ctrl+u", "=battery staple", "enter")
		p.has("admin has the new password.")
		p.keys("9", "=wrong", "enter", "=battery staple2", "enter", "=battery staple2", "enter")
		p.has("the password is wrong")
		p.keys("esc")
		a.proof = false
		p.keys("9")

		if strings.Contains(p.screen(), "Present password") {
			t.Error("who has logged in is asked for it")
		}
	})

	if a.password != "battery staple" {
		t.Errorf("set: %q", a.password)
	}
}

// TestConsoleSecretsWantTheAdministrator: without an account to prove it with, and with
// console.login, nobody who has not logged in gets at secrets or changes keys. (m15)
func TestConsoleSecretsWantTheAdministrator(t *testing.T) {
	for _, x := range []struct {
		name             string
		locked, stranger bool
		access           Access
		refused          bool
	}{
		{"console.login", true, true, &fakeAccess{}, true},
		{"a host without the account", false, true, nil, true},
		{"a host, logged in", false, false, nil, false},
		{"an image, logged in", false, false, &fakeAccess{}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newScripted()
			s.minions = []status.Minion{{ID: "web1", Key: "pending", Finger: finger}}
			inConsole(t, s, func(p *pump, c *Console) {
				if x.access != nil {
					c.Offer(x.access)
				}

				if x.locked {
					c.Lock()
				}

				if x.stranger {
					c.BeforeLogin()
				}

				for _, key := range []string{"j", "k", "a", "y"} {
					p.keys(key)
				}

				text := p.screen()
				p.keys("esc", "j")
				text += p.screen()
				if shown := strings.Contains(text, "not-shown"); shown == x.refused || len(s.changes) > 0 == x.refused {
					t.Errorf("changes %+v, and\n%s", s.changes, text)
				}

				if x.refused {
					p.has("This needs the administrator.")
				}
			})
		})
	}
}

// TestConsoleHidesSecrets: a join string does not stand on a screen that nobody looks at,
// nor does a proof last that somebody gave before he left. (m15)
func TestConsoleHidesSecrets(t *testing.T) {
	for key, shown := range map[string]string{"j": "The next node joins", "k": "Keys that wait"} {
		s := newScripted()
		s.minions = []status.Minion{{ID: "web1", Key: "pending", Finger: finger}}
		inConsole(t, s, func(p *pump, c *Console) {
			c.Offer(&fakeAccess{proof: true})
			c.BeforeLogin()
			p.keys(key, "=correct horse", "enter")
			p.has(shown)

			if key == "k" {
				p.keys("a")
			}

			p.wait(secretsFor - 5*time.Second)
			p.has(shown)
			p.wait(2 * refreshCalm)
			p.has("1 status details")
			p.keys("y")

			if strings.Contains(p.screen(), shown) || len(s.changes) > 0 {
				t.Errorf("%s: changed %v, and\n%s", key, s.changes, p.screen())
			}
		})
	}
}

// slowAccess takes as long as a wrong password does.
type slowAccess struct{ *fakeAccess }

func (a slowAccess) Prove(ctx context.Context, password string) error {
	_ = pause.For(ctx, 3*time.Second)
	return a.fakeAccess.Prove(ctx, password)
}

func (a slowAccess) Add(ctx context.Context, key, password string) (int, error) {
	_ = pause.For(ctx, 3*time.Second)
	return a.fakeAccess.Add(ctx, key, password)
}

// TestConsoleRepliesBelongToTheirPage: what comes of a page that was left does nothing to
// the one that is shown by then.
func TestConsoleRepliesBelongToTheirPage(t *testing.T) {
	for name, asked := range map[string][]string{
		"a right password":              {"j", "=correct horse", "enter"},
		"a wrong password":              {"k", "=wrong", "enter"},
		"a key with a wrong password":   {"8", "=" + someKey, "enter", "=wrong", "enter"},
		"a key with the right password": {"8", "=" + someKey, "enter", "=correct horse", "enter"},
	} {
		t.Run(name, func(t *testing.T) {
			inConsole(t, newScripted(), func(p *pump, c *Console) {
				c.Offer(slowAccess{&fakeAccess{proof: true}})
				c.BeforeLogin()
				p.keys(asked...)
				p.keys("esc", "9", "=present")
				p.wait(5 * time.Second)
				p.has("New password once more", "> *******")

				if text := p.screen(); strings.Contains(text, "! ") || strings.Contains(text, "not-shown") {
					t.Errorf("the page shows what came of another:\n%s", text)
				}
			})
		})
	}
}

// TestConsoleLinesNeedAnAddress: there are no lines for minions before the node has told
// by which address they reach it.
func TestConsoleLinesNeedAnAddress(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, c *Console) {
		s.set(func(s *scripted) { s.doc.Front.Addresses = nil })
		p.wait(2 * refreshEvery)
		p.keys("m")
		p.has("The addresses for minions are not known yet.")
	})
}

// TestConsoleEnds: what ends the page is asked for first.
func TestConsoleEnds(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want Action
	}{{[]string{"6", "y"}, PowerOff}, {[]string{"5", "3", "y"}, Reboot}, {[]string{"7"}, Login}} {
		inConsole(t, newScripted(), func(p *pump, c *Console) {
			p.keys(tt.keys...)
			if !p.quit || c.Action() != tt.want {
				t.Errorf("%v: ended %v with %q", tt.keys, p.quit, c.Action())
			}
		})
	}
}

// TestConsoleNetwork: the network is changed from the console: tried, and kept
// or taken back.
func TestConsoleNetwork(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, c *Console) {
		p.keys("3", "c")
		p.golden("77-change-network")
		p.keys("enter", "down", "down", "enter")
		p.keys(clearFixed...)
		p.keys("=10.0.0.21/24", "enter", "=10.1.0.1", "enter", "enter", "enter", "enter")
		p.golden("78-change-fault")
		p.keys("ctrl+u", "=10.0.0.1", "enter", "enter", "enter", "enter")
		p.has("taken back in 60 seconds")
		p.golden("79-change-trial")
		p.wait(10 * time.Second)
		p.has("taken back in 50 seconds")
		p.keys("enter")
		p.has("The network is as you confirmed it.", "c: change the network")
		p.keys("c", "enter", "down", "enter")
		p.has("taken back in 60 seconds")
		p.wait(61 * time.Second)
		p.has("The network is as it was before. Press r")
		p.keys("ctrl+c")
		p.has("Nothing was changed.", "c: change the network")
		p.keys("c", "enter", "down", "enter")
		p.has("taken back in 60 seconds")
		p.keys("ctrl+c")
		p.has("The network is as it was before.", "c: change the network")
		p.keys("c", "enter", "enter")
		p.has("Nothing was changed.")
		p.keys("c", "esc", "esc")
		p.has("1 to 7, m, k, j: choose")
		s.set(func(s *scripted) { s.facts.Managed = false })
		p.keys("3")
		p.has("managed elsewhere")
		p.keys("c")
		p.has("managed elsewhere")
	})

	s.set(func(s *scripted) {
		s.facts.Managed = true
		s.confirmErr = errors.New("not possible now: this machine would lose 10.0.0.11, by which the other nodes know it; to give a node another address: applianced leave, change it, and join again")
	})

	inConsole(t, s, func(p *pump, _ *Console) {
		p.keys("3", "c", "enter", "down", "enter", "enter")
		p.golden("80-change-refused")
		p.keys("esc", "ctrl+c")
		p.has("Nothing was changed.", "c: change the network")
	})

	if got := strings.Join(s.networks, " "); got != "try confirm try try revert try confirm revert" {
		t.Errorf("network: %s", got)
	}
}

// TestTrialGoesOn: addresses come after the trial has begun, and a supervisor
// that is started anew has taken it back.
func TestTrialGoesOn(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, c *Console) {
		p.keys("3", "c", "enter", "down", "enter")
		p.has("10.0.0.21/24")
		s.set(func(s *scripted) { s.trial.Addresses = []string{"10.0.0.99/24"} })
		p.wait(2 * time.Second)
		p.has("10.0.0.99/24", "Enter: KEEP IT")
		s.set(func(s *scripted) { s.err = errors.New("not running") })
		p.wait(2 * time.Second)
		p.has("10.0.0.99/24", "Enter: KEEP IT")
		s.set(func(s *scripted) { s.err, s.trial = nil, setup.Trial{} })
		p.wait(2 * time.Second)
		p.has("The network is as it was before. Press r")
	})
}

// TestConsoleFollows: the page follows the node's state by itself, and says so
// when the supervisor is away.
func TestConsoleFollows(t *testing.T) {
	s := newScripted()
	inConsole(t, s, func(p *pump, _ *Console) {
		s.set(func(s *scripted) { s.err = api.ErrNotRunning })
		p.wait(4 * time.Second)
		p.golden("76-console-alone")
		s.set(func(s *scripted) { s.err = errors.New("it says \x1b[2J no") })
		p.wait(4 * time.Second)
		p.has("it says no")
		s.set(func(s *scripted) { s.err, s.doc.Health = nil, status.Healthy })
		p.wait(4 * time.Second)
		p.has("HEALTHY")
	})
}
