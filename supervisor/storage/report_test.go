package storage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// good is a manager that has seen a pool of three without a fault.
func good(t *testing.T) *Manager {
	t.Helper()
	now := time.Unix(1e9, 0)
	m := New(Config{
		Self:   "node1",
		Volume: "cluster",
		Mount:  "/srv/cluster",
		Dir:    t.TempDir(),
		Helper: []string{"/bin/false"},
		Now:    func() time.Time { return now },
	})

	o := &glusterctl.Observation{
		At:        now,
		Reachable: map[string]bool{},
		Volume: &cli.Volume{Name: "cluster", State: cli.Started, Type: "Replicate", Dist: 1, Replica: 3,
			Options: map[string]string{"auth.allow": "10.0.0.1,10.0.0.2,10.0.0.3"}},
		Mount: &mount.Health{
			State:    mount.OK,
			Writable: true,
			Layout:   1,
			Nodes:    []string{"node1", "node2", "node3"},
			Total:    1000,
			Free:     500,
		},
	}

	for _, n := range []string{"1", "2", "3"} {
		name, addr, uuid := "node"+n, "10.0.0."+n, "u"+n
		m.table.Nodes = append(m.table.Nodes,
			nodes.Node{Name: name, Address: addr, State: nodes.Member, Storage: "data", Brick: "/b/cluster-1"})
		o.Pool = append(o.Pool,
			cli.Peer{UUID: uuid, Hostname: name, Self: n == "1", Connected: true, State: cli.PeerInCluster})
		o.Reachable[addr] = true
		b := cli.Brick{Name: name + ":/b/cluster-1", HostUUID: uuid}
		o.Volume.Bricks = append(o.Volume.Bricks, b)
		o.Processes = append(o.Processes,
			cli.Process{
				Name:       b.Name,
				HostUUID:   uuid,
				Online:     true,
				Sized:      true,
				Total:      1000,
				Free:       500,
				Inodes:     100,
				InodesFree: 50,
			})

		o.Heal = append(o.Heal,
			cli.Heal{Brick: b.Name, Connected: true, Total: cli.Count{Known: true}, SplitBrain: cli.Count{Known: true}})
	}

	m.obs, m.formed = o, true
	m.mirror.completedAt = now
	return m
}

// Everything that can be wrong has its code, and nothing else is said.
func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(m *Manager)
		codes string // with subjects
		word  string // of the first cause
	}{
		{"nothing", func(*Manager) {}, "", ""},
		{"volume full", func(m *Manager) { m.obs.Mount.Free = 10 }, "SCA-416", "1.0 % of space"},
		{"volume nearly full", func(m *Manager) { m.obs.Mount.Free = 90 }, "SCA-417", "9.0 %"},
		{"brick full", func(m *Manager) { m.obs.Processes[1].Free = 5 }, "SCA-418 node2:/b/cluster-1", "0.5 % space"},
		{"brick out of inodes", func(m *Manager) { m.obs.Processes[1].InodesFree = 1 },
			"SCA-418 node2:/b/cluster-1", "inodes"},
		{"volume stopped", func(m *Manager) { m.obs.Volume.State = cli.Stopped }, "SCA-413 cluster", "is stopped"},
		{"volume gone", func(m *Manager) { m.obs.Volume = nil }, "SCA-413 cluster", "does not exist"},
		{"glusterd down", func(m *Manager) { m.obs.Daemon = "Connection failed" }, "SCA-415", "does not answer"},
		{"mount hangs",
			func(m *Manager) { m.obs.Mount = &mount.Health{State: mount.Hung, Text: "no answer within 11s"} },
			"SCA-412", "no answer within"},
		{"mount lost", func(m *Manager) { m.obs.Mount = &mount.Health{State: mount.Absent} }, "SCA-411", "not mounted"},
		{"mount without its client",
			func(m *Manager) { m.obs.Mount = &mount.Health{State: mount.Stale, Text: "ENOTCONN"} },
			"SCA-411", "ENOTCONN"},
		{"one node away", func(m *Manager) {
			m.obs.Pool[1].Connected, m.obs.Reachable["10.0.0.2"] = false, false
			m.obs.Processes = slices.Delete(m.obs.Processes, 1, 2)
			m.obs.Heal[1] = cli.Heal{Brick: "node2:/b/cluster-1"}
		}, "SCA-426 node2", "node2 is away"},
		{"two nodes away", func(m *Manager) {
			for i, a := range []string{"10.0.0.2", "10.0.0.3"} {
				m.obs.Pool[i+1].Connected, m.obs.Reachable[a] = false, false
			}
			m.obs.Processes = m.obs.Processes[:1]
		}, "SCA-414, SCA-426 node2, SCA-426 node3", "1 of 3 bricks"},
		{"brick down", func(m *Manager) { m.obs.Processes[2].Online = false }, "SCA-419 node3:/b/cluster-1",
			"does not run"},
		{"split brain", func(m *Manager) { m.obs.Heal[0].SplitBrain.N = 2 }, "SCA-420", "2 entries"},
		{"healing", func(m *Manager) { m.obs.Heal[0].Total.N = 7 }, "SCA-421", "7 entries"},
		{"healing does not end", func(m *Manager) {
			m.stuck = []glusterctl.Stuck{{HealEntry: cli.HealEntry{Path: "/srv/x"}, Since: time.Unix(1e9-3600, 0)}}
		}, "SCA-422", "/srv/x"},
		{"a step failed", func(m *Manager) { m.fault = "add node3: refused" }, "SCA-423", "refused"},
		{"a step is not safe", func(m *Manager) {
			m.plan.Refused = []glusterctl.Finding{{
				Code: "storage.unsafe_removal",
				What: "it is the last",
				Next: "wait",
			}}
		}, "SCA-423 storage.unsafe_removal", "it is the last; next: wait"},
		{"open", func(m *Manager) { m.obs.Volume.Options["auth.allow"] = "*" }, "SCA-424", "any machine"},
		{"disowned", func(m *Manager) { m.obs.Disowned = []string{"node2", "node3"} }, "SCA-425 node1",
			"no longer count"},
		{"clock ahead", func(m *Manager) { m.ahead["node2"] = clockDiff{9 * time.Second, m.cfg.Now()} },
			"SCA-427 node2", "9s ahead"},
		{"clock behind", func(m *Manager) { m.ahead["node2"] = clockDiff{-time.Minute, m.cfg.Now()} },
			"SCA-427 node2", "1m0s behind"},
		{"an old stamp", func(m *Manager) { m.ahead["node2"] = clockDiff{-8 * time.Second, m.cfg.Now()} }, "", ""},
		{"an old copy",
			func(m *Manager) {
				m.mirror.completedAt = m.cfg.Now().Add(-5 * time.Minute)
				m.mirror.fault = "too many files"
			},
			"SCA-428", "too many files"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := good(t)
			tt.spoil(m)
			s := m.State()
			var got []string
			for _, p := range s.Problems {
				got = append(got, strings.TrimSpace(string(p.Code)+" "+p.Subject))
			}

			if strings.Join(got, ", ") != tt.codes {
				t.Fatalf("got %v, want %q", s.Problems, tt.codes)
			}

			if tt.word != "" && !strings.Contains(s.Problems[0].Cause, tt.word) {
				t.Errorf("cause %q does not say %q", s.Problems[0].Cause, tt.word)
			}

			var b strings.Builder
			WriteText(&b, s)
			if len(got) > 0 && !strings.Contains(b.String(), got[0][:7]) {
				t.Errorf("the text does not name it:\n%s", b.String())
			}
		})
	}
}

// Every code that glusterctl can lead to exists in the status.
func TestCodesExist(t *testing.T) {
	known := map[status.Code]bool{}
	for _, k := range status.Kinds() {
		known[k.Code] = true
	}
	for from, c := range statusCodes() {
		if !known[c] {
			t.Errorf("%s leads to %s, which does not exist", from, c)
		}
	}
}

func TestWaiting(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(m *Manager)
		want  string
	}{
		{"ready", func(*Manager) {}, ""},
		{"no table", func(m *Manager) { m.table = nodes.Table{} }, "the table of nodes"},
		{"no daemon", func(m *Manager) { m.obs.Daemon = "x" }, "glusterd on this node"},
		{"not taken in", func(m *Manager) { m.obs.Volume = nil }, "the shared volume"},
		{"a step under way", func(m *Manager) {
			m.obs.Volume = nil
			m.doing = "create volume cluster"
		}, "the shared volume; under way: create volume cluster"},
		{"not mounted", func(m *Manager) { m.obs.Mount.State = mount.Absent }, "mounted at /srv/cluster"},
		{"hangs", func(m *Manager) { m.obs.Mount.State = mount.Hung }, "to answer (hung)"},
		{"no tree", func(m *Manager) { m.obs.Mount.Layout = 0 }, "directories of the shared volume"},
		{"no own directories", func(m *Manager) { m.obs.Mount.Nodes = nil }, "this node's directories"},
		{"read-only", func(m *Manager) { m.obs.Mount.Writable = false }, "take writes"},
		{"an arbiter needs no copy", func(m *Manager) {
			m.mirror.completedAt = time.Time{}
			m.table.Nodes[0].Storage = nodes.ArbiterStorage
		}, ""},
		{"no copy", func(m *Manager) { m.mirror.completedAt = time.Time{} }, "first copy"},
		{"the first copy is being made", func(m *Manager) {
			m.mirror.completedAt = time.Time{}
			m.mirror.beganAt = time.Date(2026, 3, 1, 4, 5, 6, 0, time.UTC)
		}, "first copy of the files for minions (files are being copied since 04:05:06 UTC)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := good(t)
			tt.spoil(m)
			s := m.State()
			if s.Ready != (tt.want == "") || !strings.Contains(s.Waiting, tt.want) {
				t.Errorf("ready %v, waiting for %q, want %q", s.Ready, s.Waiting, tt.want)
			}
		})
	}
}

// Who changes the pool.
func TestLeads(t *testing.T) {
	stopped := func(m *Manager) { m.obs.Volume.State = cli.Stopped }
	for _, tt := range []struct {
		name      string
		spoil     func(m *Manager)
		ok, fence bool
	}{
		{"nobody holds the lease", func(*Manager) {}, false, false},
		{"holds the lease", func(m *Manager) { m.lease.heldUntil = time.Now().Add(time.Hour) }, true, true},
		{"held until just now", func(m *Manager) { m.lease.heldUntil = time.Now().Add(-time.Millisecond) }, false, false},
		{"another does", func(m *Manager) { m.lease.holder = "node2"; stopped(m) }, false, false},
		{"forms", func(m *Manager) {
			m.cfg.Form = true
			m.formed = false
			m.obs = nil
		}, true, true},
		{"formed once", func(m *Manager) { m.cfg.Form, m.obs = true, nil }, false, false},
		{"the first, and the volume is stopped", stopped, true, false},
		{"the second, and the volume is stopped", func(m *Manager) {
			stopped(m)
			m.cfg.Self = "node2"
			m.obs.Reachable["10.0.0.1"] = true
		}, false, false},
		{"the second, and the first has not done it for long", func(m *Manager) {
			stopped(m)
			m.cfg.Self, m.stoppedSince = "node2", m.cfg.Now().Add(-turnEvery)
			m.obs.Reachable["10.0.0.1"] = true
		}, true, false},
		{"the third then", func(m *Manager) {
			stopped(m)
			m.cfg.Self, m.stoppedSince = "node3", m.cfg.Now().Add(-turnEvery)
			m.obs.Reachable["10.0.0.1"] = true
		}, false, false},
		{"the second, and the first is away", func(m *Manager) {
			stopped(m)
			m.cfg.Self = "node2"
			m.obs.Reachable["10.0.0.1"] = false
		}, true, false},
		{"an arbiter, though it is the first", func(m *Manager) {
			stopped(m)
			m.table.Nodes[0].Storage = nodes.ArbiterStorage
		}, false, false},
		{"nobody waits for an arbiter", func(m *Manager) {
			stopped(m)
			m.table.Nodes[0].Storage = nodes.ArbiterStorage
			m.cfg.Self = "node2"
			m.obs.Reachable["10.0.0.1"] = true
		}, true, false},
		{"most are away", func(m *Manager) {
			stopped(m)
			m.obs.Pool[1].Connected, m.obs.Pool[2].Connected = false, false
		}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := good(t)
			tt.spoil(m)
			if ok, fence, why := m.leadership(); ok != tt.ok || fence != tt.fence {
				t.Errorf("leads %v, fenced %v (%s)", ok, fence, why)
			}
		})
	}
}

func TestDesired(t *testing.T) {
	m := good(t)
	m.table.Nodes[1].State = nodes.Leaving
	m.table.Nodes = append(m.table.Nodes, nodes.Node{Name: "old", Address: "10.0.0.3", State: nodes.Removed},
		nodes.Node{Name: "node5", Address: "10.0.0.5", State: nodes.Joining})
	d := m.Desired()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, x := range d.Members {
		names = append(names, x.Name+" "+string(x.Role))
	}

	if got := strings.Join(names, ", "); got != "node1 data, node3 data, node5 client" {
		t.Errorf("members: %s", got)
	}

	if got := strings.Join(d.Leaving, " "); got != "node2 old" {
		t.Errorf("leaving: %s", got)
	}

	if d.Form {
		t.Error("a volume that was made may be made again")
	}

	m.cfg.Self = "node2" // it looks on while it goes
	if d = m.Desired(); d.Validate() != nil || d.Members[1].Role != glusterctl.Client {
		t.Errorf("%v %+v", d.Validate(), d.Members)
	}
}

// An arbiter takes no lease.
func TestMayLead(t *testing.T) {
	m := good(t)
	if !m.mayLead() {
		t.Error("a node with a copy may not lead")
	}
	m.table.Nodes[0].Storage = nodes.ArbiterStorage
	if m.mayLead() || !m.decidesOnly() {
		t.Error("an arbiter may lead")
	}
}

func TestHosts(t *testing.T) {
	path := t.TempDir() + "/hosts"
	put(t, path, "127.0.0.1 localhost\n127.0.1.1 node1\n")
	for _, block := range []string{"10.0.0.1\tnode1\n", "10.0.0.1\tnode1\n10.0.0.2\tnode2\n", ""} {
		if err := setHosts(path, block); err != nil {
			t.Fatal(err)
		}
		got := content(path)
		if strings.Count(got, hostsBegin) != min(1, len(block)) || !strings.Contains(got, block) ||
			!strings.HasSuffix(got, "127.0.0.1 localhost\n127.0.1.1 node1\n") {
			t.Errorf("after %q: %q", block, got)
		}
	}
}

// What is said to be done is of the newest look and of the newest table, not of the plan
// before them.
func TestDoneFollows(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Manager, *glusterctl.Observation)
		plan   string
	}{
		{"the look", func(m *Manager, o *glusterctl.Observation) { m.setObservation(o, false) }, "they are not set"},
		{"the table", func(m *Manager, _ *glusterctl.Observation) {
			t := m.table
			t.Nodes = append(slices.Clone(t.Nodes),
				nodes.Node{
					Name:    "node4",
					Address: "10.0.0.4",
					State:   nodes.Member,
					Storage: "data",
					Brick:   "/b/cluster-1",
				})

			m.SetTable(t)
		}, "node4"},
	} {
		m := good(t)
		o := *m.obs
		m.plan = glusterctl.Plan{} // nothing to do for what was before
		if !m.State().Done {
			t.Fatalf("%s: not done before", c.name)
		}

		c.change(m, &o)
		if s := m.State(); s.Done || !strings.Contains(s.Plan, c.plan) {
			t.Errorf("%s: done is %v, plan %q", c.name, s.Done, s.Plan)
		}
	}
}
