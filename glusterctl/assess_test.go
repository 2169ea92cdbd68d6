package glusterctl_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
)

func TestAssess(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(r *rig)
		edit  func(o *glusterctl.Observation)
		want  string // codes, "!" before critical ones
	}{
		{"healthy", nil, nil, ""},
		{"node lost", func(r *rig) { r.pool.Kill("node3", false) }, nil, "peer_down no_spare"},
		{"node silent", func(r *rig) { r.pool.Kill("node3", true) }, nil, "peer_silent status_unknown"},
		{"two lost", func(r *rig) { r.pool.Kill("node3", false); r.pool.Kill("node2", false) }, nil,
			"peer_down peer_down !no_quorum"},
		{"brick dead", func(r *rig) { r.pool.KillBrick("node2") }, nil, "no_spare brick_down"},
		{"daemon dead", func(r *rig) { r.pool.Kill("node1", false) }, nil, "!mount_absent !daemon_down"},
		{"stopped", nil, func(o *glusterctl.Observation) { o.Volume.State = cli.Stopped }, "!volume_stopped"},
		{"no volume", nil, func(o *glusterctl.Observation) { o.Volume = nil }, "!no_volume"},
		{"disowned", nil, func(o *glusterctl.Observation) { o.Disowned = []string{"node2"} }, "!disowned"},
		{"hung", nil, func(o *glusterctl.Observation) { o.Mount.State = mount.Hung }, "!mount_hung"},
		{"stale", nil, func(o *glusterctl.Observation) { o.Mount.State = mount.Stale }, "!mount_stale"},
		{"full", nil, func(o *glusterctl.Observation) { o.Mount.Total, o.Mount.Free = 1000, 10 }, "!volume_full"},
		{"refuses data", nil, func(o *glusterctl.Observation) {
			o.Mount.Writable, o.Mount.Text = false, "write: no space left on device"
		}, "!volume_full"},
		{"low", nil, func(o *glusterctl.Observation) { o.Mount.Total, o.Mount.Free = 1000, 90 }, "volume_low"},
		{"brick full of inodes", nil, func(o *glusterctl.Observation) { o.Processes[1].InodesFree = 10 },
			"!brick_full"},
		{"brick low", nil,
			func(o *glusterctl.Observation) { o.Processes[1].Free = o.Processes[1].Total / 20 },
			"brick_low"},
		{"split-brain", nil, func(o *glusterctl.Observation) { o.Heal[0].SplitBrain.N = 2 }, "!split_brain"},
		{"no self-heal daemon", nil, func(o *glusterctl.Observation) { o.Processes[4].Online = false }, "healing_off"},
		{"open", nil, func(o *glusterctl.Observation) { delete(o.Volume.Options, "auth.allow") }, "auth_open"},
		{"rejected", nil, func(o *glusterctl.Observation) { o.Pool[0].State = cli.PeerRejected }, "!peer_rejected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := form(t, 3)
			if tt.setup != nil {
				tt.setup(r)
			}

			d := want("node1", "1", "2", "3")
			o, err := r.Observe(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}

			if tt.edit != nil {
				tt.edit(o)
			}

			var got []string
			for _, p := range glusterctl.Assess(o, d) {
				s := strings.TrimPrefix(p.Code, "storage.")
				if p.Severity == glusterctl.Critical {
					s = "!" + s
				}

				if p.What == "" || p.Next == "" {
					t.Errorf("%+v", p)
				}

				got = append(got, s)
			}

			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

func TestQuorum(t *testing.T) {
	r := form(t, 1)
	quorum := func(r *rig, d glusterctl.Desired) glusterctl.Quorum {
		t.Helper()
		o, err := r.Observe(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return o.Quorum()
	}

	d := want("node1", "1", "2")
	d.TwoCopies = true
	if q := quorum(r, d); q.Up != 1 || q.Spare != 0 {
		t.Errorf("alone: %+v", q)
	}

	r.reach(t, d)
	if q := quorum(r, d); q.Up != 2 || q.Spare != 0 {
		t.Errorf("two: %+v", q)
	}

	r.pool.Kill("node2", false)
	if q := quorum(r, d); q.Up != 1 || q.Spare != 0 {
		t.Errorf("the second of two is lost: %+v", q)
	}

	r.pool.Revive("node2")
	r.pool.Kill("node1", false)
	d.Self = "node2"
	if q := quorum(newRig(r.pool, "node2"), d); q.Up != 1 || q.Spare >= 0 {
		t.Errorf("the first of two is lost: %+v", q)
	}

	if q := quorum(form(t, 3), want("node1", "1", "2", "3")); q.Up != 3 || q.Spare != 1 {
		t.Errorf("three: %+v", q)
	}
}

func TestHealTracker(t *testing.T) {
	now := time.Unix(1e9, 0)
	entry := func(p string) cli.HealEntry { return cli.HealEntry{Path: p, GFID: p} }
	list := func(up bool, paths ...string) []cli.Heal {
		h := cli.Heal{Brick: "a:/b", Connected: true}
		for _, p := range paths {
			h.Entries = append(h.Entries, entry(p))
		}
		return []cli.Heal{h, {Brick: "b:/b", Connected: up}}
	}

	var tr glusterctl.HealTracker
	for _, tt := range []struct {
		after time.Duration
		list  []cli.Heal
		want  string
	}{
		{0, list(true, "/x", "/y"), ""},
		{9 * time.Minute, list(true, "/x", "/z"), ""},
		{time.Minute, list(true, "/x", "/z", "/y"), "/x"},
		{9 * time.Minute, list(true, "/x", "/z", "/y"), "/x /z"},
		{time.Minute, list(false, "/x", "/z", "/y"), ""},
		{time.Hour, list(true, "/x"), ""},
		{11 * time.Minute, list(true, "/x"), "/x"},
	} {
		now = now.Add(tt.after)
		var got []string
		for _, s := range tr.Update(now, tt.list) {
			got = append(got, s.Path)
		}

		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("at %v: %q, want %q", now, s, tt.want)
		}
	}
}

func TestSplitBrains(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"/a/b", "latest-mtime /a/b"},
		{"/it's", `latest-mtime '/it'\''s'`},
		{"/a;rm -rf", `latest-mtime '/a;rm -rf'`},
		{"<gfid:935cfe90-017a-4bad-9633-aded37a67c99>", "latest-mtime gfid:G1"},
		{"/ü\x1b", "latest-mtime $'/\\xc3\\xbc\\xef\\xbf\\xbd'"},
	} {
		c := glusterctl.New(glusterctl.Config{Runner: splitBrain(tt.path)})
		got, err := c.SplitBrains(t.Context(), "cluster")
		if err != nil || len(got) != 1 || len(got[0].Bricks) != 2 || len(got[0].Resolve) != 3 {
			t.Errorf("%q: %+v %v", tt.path, got, err)
			continue
		}

		if !strings.HasSuffix(got[0].Resolve[0], tt.want) {
			t.Errorf("%q: %q, want %q", tt.path, got[0].Resolve[0], tt.want)
		}

		for _, s := range got[0].Resolve {
			if strings.ContainsAny(s, "\x1b\n") {
				t.Errorf("%q", s)
			}
		}
	}
}

// splitBrain answers with one entry that two bricks disagree on.
type splitBrain string

func (s splitBrain) Run(context.Context, []string) (command.Output, error) {
	path := strings.NewReplacer("<", "&lt;", "&", "&amp;").Replace(string(s))
	brick := func(n string) string {
		return "<brick><name>" + n + ":/b</name><file gfid=\"G1\">" + path +
			"</file><status>Connected</status><numberOfEntries>1</numberOfEntries></brick>"
	}
	return command.Output{Stdout: []byte("<cliOutput><healInfo><bricks>" + brick("node1") + brick("node2") +
		"</bricks></healInfo><opRet>0</opRet></cliOutput>")}, nil
}
