package member

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/test/check"
)

// cloned are n1 and n2 of a cluster, and a machine with a copy of n2's disk.
type cloned struct {
	n1, n2, clone *Member
	now           time.Time
	source        string // of the clone
	master        *recordMaster
}

// newCloned gives them on one clock. The clone has n2's address when held.
func newCloned(t *testing.T, held bool, own, other keyuse.Facts) *cloned {
	t.Helper()
	c := &cloned{now: time.Unix(1e9, 0), source: "127.0.74.33", master: &recordMaster{}}
	now := func() time.Time { return c.now }
	ms, _ := pair(t, now)
	c.n1, c.n2 = ms[0], ms[1]

	if held {
		c.source = "127.0.74.2"
	}

	cfg := *c.n2.env.Settings
	cfg.DataDir = filepath.Join(t.TempDir(), "data")
	check.Must(t, os.CopyFS(cfg.DataDir, os.DirFS(c.n2.env.Settings.DataDir)))
	c.master.path = cfg.ClusterRecord()
	m := newMember(t, Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: now}, c.master)
	t.Cleanup(m.peers.close)
	c.clone = m
	c.n2.uses.facts, m.uses.facts = own, other
	m.uses.held, m.uses.looked = held, c.now.Add(24*time.Hour)

	return c
}

// asks is a round of one machine's questions to n1; it returns why it was refused.
func (c *cloned) asks(t *testing.T, m *Member, source string) (refusal string) {
	t.Helper()
	m.uses.reconcile(t.Context())
	line, _ := m.uses.selfEntry()
	refusal = c.n1.uses.recordUse(line, m.uses.speaker(), source)
	from, _ := c.n1.uses.selfEntry()
	m.uses.takeReports(from, c.n1.uses.reports())
	return refusal
}

// together has both run for so long.
func (c *cloned) together(t *testing.T, long time.Duration) (node, clone string) {
	t.Helper()
	for end := c.now.Add(long); c.now.Before(end); {
		node = c.asks(t, c.n2, "127.0.74.2")
		c.now = c.now.Add(time.Second)
		clone = c.asks(t, c.clone, c.source)
		c.now = c.now.Add(time.Second)
	}
	return node, clone
}

func (c *cloned) alone(t *testing.T, long time.Duration) {
	t.Helper()
	for end := c.now.Add(long); c.now.Before(end); c.now = c.now.Add(2 * time.Second) {
		if why := c.asks(t, c.n2, "127.0.74.2"); why != "" {
			t.Fatalf("the node alone: %s", why)
		}
	}
}

// causes are what a member says about uses of keys.
func causes(m *Member) map[status.Code]string {
	out := map[status.Code]string{}
	for _, f := range m.uses.findings() {
		out[f.Code] = f.Subject + ": " + f.Cause
	}
	return out
}

// changesNothing tries all that changes the cluster on a machine that may not.
func changesNothing(t *testing.T, m *Member, master *recordMaster) {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(m.env.Settings.SharedNodesDir(), nodes.File))
	check.Must(t, err)
	v := Verbs{m}
	for name, act := range map[string]func(context.Context) error{
		"leave":     v.Leave,
		"drain":     func(ctx context.Context) error { return v.Drain(ctx, "n2", false) },
		"drain n1":  func(ctx context.Context) error { return v.Drain(ctx, "n1", false) },
		"remove":    func(ctx context.Context) error { return v.Remove(ctx, "n1", true) },
		"take turn": func(ctx context.Context) error { return v.TakeTurn(ctx, true) },
		"new secret": func(ctx context.Context) error {
			_, err := v.RotateSecret(ctx, true)
			return err
		},
		"take in": func(ctx context.Context) error {
			_, err := host{m}.Admit(ctx,
				nodes.Node{
					Name:        "n4",
					Address:     "127.0.74.4",
					State:       nodes.Joining,
					Certificate: certificateOf(4),
					Storage:     "client",
				})

			return err
		},
		"another one leaves": func(ctx context.Context) error {
			_, err := host{m}.SetState(ctx, "n1", nodes.Removed)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the clock of the test stands
		err := act(ctx)
		cancel()
		if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "applianced reset --yes") {
			t.Errorf("%s: %v", name, err)
		}
	}

	after, err := os.ReadFile(filepath.Join(m.env.Settings.SharedNodesDir(), nodes.File))
	check.Must(t, err)
	if string(before) != string(after) || len(master.calls) > 0 {
		t.Errorf("the cluster was changed: %v\n%s", master.calls, after)
	}
}

// hardware of n2, and of a clone of its virtual machine.
func ownHardware() keyuse.Facts {
	return keyuse.Facts{
		keyuse.MachineID: "0000000000000001",
		keyuse.Board:     "0000000000000002",
		keyuse.Cards:     "0000000000000003",
	}
}

func cloneHardware() keyuse.Facts {
	return keyuse.Facts{
		keyuse.MachineID: "0000000000000001",
		keyuse.Board:     "0000000000000012",
		keyuse.Cards:     "0000000000000013",
	}
}

// TestCloneElsewhereChangesNothing: a copy of a node's machine that does not have its
// address says so first, and changes nothing, with the original beside it or off; all
// nodes name both machines (F5).
func TestCloneElsewhereChangesNothing(t *testing.T) {
	for original, hardware := range map[string]keyuse.Facts{"beside": ownHardware(), "off": cloneHardware()} {
		t.Run(original, func(t *testing.T) {
			c := newCloned(t, false, ownHardware(), hardware)
			c.alone(t, 2*time.Minute)
			if found := causes(c.n1); len(found) > 0 {
				t.Errorf("before: %v", found)
			}

			want := "a machine at 127.0.74.33 uses the key of n2, which has the address 127.0.74.2"
			if original == "beside" {
				want = "two machines use the key of n2: 127.0.74.2 and 127.0.74.33"
				if node, clone := c.together(t, time.Minute); node != "" || clone != want {
					t.Errorf("n1 refuses n2 for %q, the copy for %q", node, clone)
				}

				if found := causes(c.n2)[status.KeyTwice]; found != "n2: "+want {
					t.Errorf("n2: %q", found)
				}

				if err := (Verbs{c.n2}).Drain(t.Context(), "n1", false); err != nil {
					t.Errorf("n2: %v", err)
				}
			} else {
				c.now = c.now.Add(time.Hour)
				for range 30 {
					c.now = c.now.Add(2 * time.Second)
					if why := c.asks(t, c.clone, c.source); why != want {
						t.Fatalf("n1 refuses the copy for %q", why)
					}
				}
			}

			if found := causes(c.n1)[status.KeyTwice]; found != "n2: "+want {
				t.Errorf("n1: %q", found)
			}

			if found := causes(c.clone)[status.NotTheNode]; !strings.HasPrefix(found,
				"n2: the table of nodes has n2 at 127.0.74.2, and this machine does not have that address") {
				t.Errorf("the copy: %q", found)
			}

			if may, why := c.clone.MayServe(); may || !strings.Contains(why, "the node's own") {
				t.Errorf("the copy may serve its copy of the volume: %q", why)
			}

			changesNothing(t, c.clone, c.master)
		})
	}
}

// TestNodeThatLostItsAddress: a node of which nothing else is known than that it has another address, as after a
// new lease, is not told that it is a copy: to reset it would end the node. It is one as soon
// as another machine answers in its place.
func TestNodeThatLostItsAddress(t *testing.T) {
	c := newCloned(t, true, ownHardware(), ownHardware())
	c.alone(t, 2*time.Minute)
	c.n2.uses.held = false
	c.n2.uses.looked = c.now.Add(24 * time.Hour)

	for range 30 {
		c.now = c.now.Add(2 * time.Second)
		if c.asks(t, c.n2, "127.0.74.63") == "" {
			t.Fatal("it may act with another address")
		}
		if found := causes(c.n2); len(found) > 0 {
			t.Fatalf("n2: %v", found)
		}
	}

	want := "n2: a machine at 127.0.74.63 uses the key of n2, which has the address 127.0.74.2; its hardware is that of n2, which may have got another address"
	if found := causes(c.n1)[status.KeyTwice]; found != want {
		t.Errorf("n1: %q", found)
	}

	if err := c.n2.uses.mayAct(); err == nil {
		t.Error("it may act")
	}

	c.n2.uses.answered = c.now
	if found := causes(c.n2)[status.NotTheNode]; !strings.Contains(found, "at which another machine answers") {
		t.Errorf("n2, with another machine in its place: %q", found)
	}
}

// TestCloneAtTheAddress: of two machines at one address the one with the node's hardware
// goes on; when it cannot be told neither changes anything, until one is off (F5).
func TestCloneAtTheAddress(t *testing.T) {
	for _, decided := range []bool{true, false} {
		t.Run(map[bool]string{true: "other hardware", false: "the same hardware"}[decided], func(t *testing.T) {
			other := ownHardware()
			if decided {
				other = cloneHardware()
			}

			c := newCloned(t, true, ownHardware(), other)
			c.alone(t, 2*time.Minute)
			node, clone := c.together(t, keyuse.SettledAfter)
			if clone == "" || (node == "") != decided {
				t.Errorf("n1 refuses n2 for %q, the copy for %q", node, clone)
			}

			if found := causes(c.n1)[status.KeyTwice]; !strings.HasPrefix(found,
				"n2: two machines at 127.0.74.2 use the key of n2") {
				t.Errorf("n1: %q", found)
			}

			changesNothing(t, c.clone, c.master)

			err := (Verbs{c.n2}).Drain(t.Context(), "n1", false)
			if (err == nil) != decided {
				t.Errorf("n2: %v", err)
			}

			_, copied := causes(c.clone)[status.NotTheNode]
			_, doubted := causes(c.clone)[status.KeyTwice]
			if copied != decided || doubted == decided {
				t.Errorf("the copy: %v", causes(c.clone))
			}

			c.now = c.now.Add(2 * time.Minute)
			c.alone(t, time.Minute)
			if len(causes(c.n1))+len(causes(c.n2)) > 0 {
				t.Errorf("after the copy is off: %v %v", causes(c.n1), causes(c.n2))
			}
		})
	}
}

// TestCopyOfRunningMemory: a machine that goes on with the memory of a node has its start, its facts and its
// address, and is noticed all the same; neither changes anything until one is off (F5).
func TestCopyOfRunningMemory(t *testing.T) {
	c := newCloned(t, true, ownHardware(), ownHardware())
	c.alone(t, 2*time.Minute)
	node, copied := c.n2.uses, c.clone.uses
	copied.life = node.life
	copied.beat = node.beat
	copied.before = node.before
	copied.drawn = node.drawn

	refusedNode, refusedCopy := c.together(t, 30*time.Second)
	if refusedNode == "" || refusedCopy == "" {
		t.Errorf("n1 refuses n2 for %q, the copy for %q", refusedNode, refusedCopy)
	}

	if found := causes(c.n1)[status.KeyTwice]; !strings.Contains(found, "which one is the copy cannot be told") {
		t.Errorf("n1: %q", found)
	}

	changesNothing(t, c.clone, c.master)
	changesNothing(t, c.n2, c.master)

	c.now = c.now.Add(2 * time.Minute)
	c.alone(t, time.Minute)
	if len(causes(c.n1))+len(causes(c.n2)) > 0 {
		t.Errorf("after the copy is off: %v %v", causes(c.n1), causes(c.n2))
	}
}

// TestLeaveWaitsUntilItIsNoticed: a copy that leaves as soon as it runs is refused all the
// same, since it waits until the others have found out about it.
func TestLeaveWaitsUntilItIsNoticed(t *testing.T) {
	c := newCloned(t, true, ownHardware(), cloneHardware())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Verbs{c.clone}).Leave(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it did not wait: %v", err)
	}
	if n, _ := find(c.n1, "n2"); n.State != nodes.Member {
		t.Errorf("n2 is %s", n.State)
	}
}

// TestKnownHardwareOutlivesARestart: a node that starts again knows by which hardware it
// tells the others.
func TestKnownHardwareOutlivesARestart(t *testing.T) {
	c := newCloned(t, true, ownHardware(), cloneHardware())
	c.alone(t, 2*time.Minute)
	c.n1.uses.saveFacts()
	k := newKeyWatch(c.n1.env, c.n1.id, "again", c.n1.keeper)
	known, _ := k.ledger.Known()
	if !maps.Equal(known[c.n2.id.Hash], ownHardware()) {
		t.Errorf("%v", known)
	}

	check.Must(t,
		os.WriteFile(filepath.Join(c.n1.env.Settings.NodeDir(), machinesFile), []byte(`{"x":{"board":"../y"}}`), 0o600))
	k = newKeyWatch(c.n1.env, c.n1.id, "damaged", c.n1.keeper)
	if known, _ := k.ledger.Known(); len(known) > 0 {
		t.Errorf("damaged: %v", known)
	}
}

// TestWhoMaySayThatANodeIsCopied: an arbiter, and who has not joined yet, cannot keep
// another node from acting; neither can what is no report.
func TestWhoMaySayThatANodeIsCopied(t *testing.T) {
	c := newCloned(t, true, ownHardware(), cloneHardware())
	claim := keyuse.Report{
		Certificate: c.n2.id.Hash,
		Two:         true,
		Machines:    []keyuse.Machine{{Life: c.n2.uses.life, Source: "127.0.74.2", Held: true, Likeness: keyuse.Other}},
	}

	serving, _ := find(c.n2, "n1")
	arbiter, joining := serving, serving
	arbiter.Storage, joining.State = nodes.ArbiterStorage, nodes.Joining
	spoilt := claim
	spoilt.Machines = []keyuse.Machine{{Life: "\x1b[2J", Source: "x"}}

	for _, row := range []struct {
		name    string
		from    nodes.Node
		reports []keyuse.Report
		refused bool
	}{
		{"a node that serves", serving, []keyuse.Report{claim}, true},
		{"an arbiter", arbiter, []keyuse.Report{claim}, false},
		{"who joins", joining, []keyuse.Report{claim}, false},
		{"no report", serving, []keyuse.Report{claim, spoilt}, false},
		{"too many", serving, slices.Repeat([]keyuse.Report{claim}, maxUsesTold+1), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c.n2.uses.takeReports(row.from, row.reports)
			if err := c.n2.uses.mayAct(); (err != nil) != row.refused {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOriginalIsFoundByTheCopy: a machine without the node's address asks there. That the
// same key answers proves to both that there are two, without any other node.
func TestOriginalIsFoundByTheCopy(t *testing.T) {
	c := newCloned(t, false, ownHardware(), ownHardware())
	port := serveMember(t, c.n2, "127.0.74.2")
	c.clone.env.Settings.Peering.NodePort = port
	line, _ := c.clone.uses.selfEntry()
	for range 4 {
		c.now = c.now.Add(ownAsk)
		c.n2.uses.reconcile(t.Context())
		c.clone.uses.askOwn(t.Context(), line)
	}

	if s := c.clone.uses.standing(); !s.copied ||
		!strings.Contains(s.refusal, "another machine answers with the same key") {
		t.Errorf("%+v", s)
	}

	if found := causes(c.n2)[status.KeyTwice]; !strings.HasPrefix(found,
		"n2: two machines use the key of n2: 127.0.74.2 and ") {
		t.Errorf("%q", found)
	}
}

// serveMember serves the node API of a member and returns the port.
func serveMember(t *testing.T, m *Member, address string) (port int) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = nodeapi.NewServer(host{m}, m.id, "v1", slog.New(slog.DiscardHandler), time.Now).Serve(ctx, ln)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return ln.Addr().(*net.TCPAddr).Port
}
