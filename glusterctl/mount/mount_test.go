package mount

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/glusterctl/layout"
	"saltern/internal/command"
)

const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /srv/with\040space rw shared:9 master:2 - tmpfs tmp rw
50 22 0:44 / /srv/cluster rw,relatime shared:3 - fuse.glusterfs node1:/cluster rw,user_id=0
broken
60 22 0:45 / /srv/other rw - ext4 /dev/sdb rw
70 60 0:46 / /srv/other rw - fuse.glusterfs node1:cluster rw
`

func TestFind(t *testing.T) {
	for point, want := range map[string]Entry{
		"/srv/cluster":    {"/srv/cluster", FSType, "node1:/cluster", 44},
		"/srv/with space": {"/srv/with space", "tmpfs", "tmp", 40},
		"/srv/other":      {"/srv/other", FSType, "node1:cluster", 46},
		"/srv":            {},
	} {
		got, ok, err := findMount(strings.NewReader(table), point)
		if err != nil || got != want || ok != (want.Point != "") {
			t.Errorf("%s: %+v %v %v", point, got, ok, err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte(table))
	f.Add([]byte("1 2 0:x / /srv/\\04 - - "))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok, err := findMount(bytes.NewReader(b), "/srv/cluster")
		if ok && (err != nil || e.Point != "/srv/cluster") {
			t.Errorf("%+v %v", e, err)
		}
	})
}

// system is a machine on which mount and umount change the table.
type system struct {
	mounts []string
	calls  []string
	broken bool
}

func (s *system) Run(_ context.Context, argv []string) (command.Output, error) {
	s.calls = append(s.calls, strings.Join(argv, " "))
	switch argv[0] {
	case "mount":
		if s.broken {
			return command.Output{Exit: 1, Stderr: []byte("Mount failed.\n")}, nil
		}
		point := argv[len(argv)-1]
		s.mounts = append(s.mounts,
			fmt.Sprintf("50 22 0:44 / %s rw - fuse.glusterfs %s rw\n", point, argv[len(argv)-2]))
	case "umount":
		s.mounts = s.mounts[:len(s.mounts)-1]
	}
	return command.Output{}, nil
}

func (s *system) mounter(dir string) *Mounter {
	return &Mounter{
		Runner:      s,
		Volume:      "cluster",
		Point:       filepath.Join(dir, "cluster"),
		Server:      "node1",
		Others:      []string{"node2", "node3"},
		Connections: filepath.Join(dir, "conn"),
		Options:     []string{"log-level=WARNING"},
		Table:       func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(strings.Join(s.mounts, ""))), nil },
	}
}

func TestMountAndUnmount(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "conn/44"), 0o755); err != nil {
		t.Fatal(err)
	}

	s := &system{}
	m := s.mounter(dir)
	m.Point = filepath.Join(dir, "srv") // exists: no immutable directory is left in the test's folder
	if err := os.Mkdir(m.Point, 0o755); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := m.Mount(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	want := "mount -t glusterfs -o log-level=WARNING,backup-volfile-servers=node2:node3 node1:/cluster " + m.Point
	if len(s.calls) != 1 || s.calls[0] != want {
		t.Errorf("calls %q", s.calls)
	}

	if err := m.Unmount(t.Context(), true); err != nil {
		t.Fatal(err)
	}

	if b, err := os.ReadFile(filepath.Join(dir, "conn/44/abort")); err != nil || string(b) != "1" {
		t.Errorf("abort: %q %v", b, err)
	}

	if err := m.Unmount(t.Context(), true); err != nil {
		t.Errorf("nothing mounted: %v", err)
	}

	s.broken = true
	if err := m.Mount(t.Context()); err == nil || !strings.Contains(err.Error(), "Mount failed.") {
		t.Errorf("mount fails: %v", err)
	}

	s.mounts = []string{"60 22 8:3 / " + m.Point + " rw - ext4 /dev/sdb rw\n"}
	if err := m.Mount(t.Context()); !errors.Is(err, errForeign) {
		t.Errorf("foreign: %v", err)
	}

	if err := m.Unmount(t.Context(), true); !errors.Is(err, errForeign) {
		t.Errorf("foreign: %v", err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	h := Check(dir, "probe")
	if h.State != OK || h.Writable || h.Total == 0 || h.Layout != 0 {
		t.Errorf("%+v", h)
	}

	if err := layout.Make(dir,
		layout.Tree{
			Version: 3,
			Dirs:    []layout.Dir{{Path: "probe", Mode: 0o700, UID: -1, GID: -1}},
			Nodes:   []string{"a"},
		}); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if code := Main([]string{dir, "probe"}, &out); code != 0 {
		t.Fatal(code)
	}

	if err := json.Unmarshal(out.Bytes(), &h); err != nil || h.State != OK || !h.Writable || h.Layout != 3 ||
		!slices.Equal(h.Nodes, []string{"a"}) || h.Latency <= 0 {
		t.Errorf("%+v %v", h, err)
	}

	if left, _ := os.ReadDir(filepath.Join(dir, "probe")); len(left) > 0 {
		t.Errorf("the probe left %v", left)
	}

	if h := Check(filepath.Join(dir, "none"), ""); h.State != Failed {
		t.Errorf("%+v", h)
	}

	if code := Main(nil, &out); code != 2 {
		t.Errorf("no arguments: %d", code)
	}
}

type hang struct{}

func (hang) Run(ctx context.Context, _ []string) (command.Output, error) {
	<-ctx.Done()
	return command.Output{}, fmt.Errorf("run probe: %w", command.ErrTimeout)
}

func TestProbe(t *testing.T) {
	s := &system{}
	m := s.mounter("/x")
	p := &Prober{Mounter: m, Command: []string{"probe"}, Runner: s, Timeout: time.Second}
	if h := p.Probe(t.Context()); h.State != Absent {
		t.Errorf("%+v", h)
	}

	s.mounts = []string{"60 22 8:3 / " + m.Point + " rw - fuse.glusterfs node1:/another rw\n"}
	if h := p.Probe(t.Context()); h.State != Foreign {
		t.Errorf("%+v", h)
	}

	s.mounts = []string{"60 22 0:3 / " + m.Point + " rw - fuse.glusterfs node1:/cluster rw\n"}
	if h := p.Probe(t.Context()); h.State != Failed || !strings.Contains(h.Text, "nothing of use") {
		t.Errorf("%+v", h)
	}

	m.Processes = t.TempDir() // nobody serves it
	for state, ended := range map[State]bool{OK: false, Failed: false, Stale: true} {
		p.Ask = func(context.Context, time.Duration) (Health, error) { return Health{State: state}, nil }
		if h := p.Probe(t.Context()); h.State != state || h.Ended != ended {
			t.Errorf("%s: %+v", state, h)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		p := &Prober{Mounter: m, Command: []string{"probe"}, Runner: hang{}, Timeout: 4 * time.Second}
		start := time.Now()
		if h := p.Probe(t.Context()); h.State != Hung || time.Since(start) != 4*time.Second {
			t.Errorf("%+v after %v", h, time.Since(start))
		}
	})

	// A child that hangs for ever: the process is given up, not waited for.
	real := &Prober{Mounter: m, Command: []string{"sh", "-c", "sleep 30"}, Timeout: 200 * time.Millisecond}
	start := time.Now()
	if h := real.Probe(t.Context()); h.State != Hung || time.Since(start) > 5*time.Second {
		t.Errorf("%+v after %v", h, time.Since(start))
	}
}

// A mount that is lost is made again at once; one that hangs only after some
// patience, and only while the volume could serve it.
func TestKeeper(t *testing.T) {
	for _, tt := range []struct {
		name    string
		states  []State // one for each probe, the last one repeated
		healthy bool
		want    string // actions with the second in which they happened
		ended   bool   // the client of a stale mount
	}{
		{"fine", []State{OK}, true, "", false},
		{"lost", []State{OK, Absent, OK}, true, "5 mount", false},
		{"stale for a moment", []State{OK, Stale, Stale, OK}, true, "", false},
		{"stale", []State{OK, Stale}, true,
			"35 unmount, 35 mount, 40 unmount, 40 mount, 50 unmount, 50 mount, 70 unmount, 70 mount, 110 unmount, 110 mount",
			false},
		{"hung, no quorum", []State{OK, Hung}, false, "", false},
		{"hung", []State{Hung, Hung, Hung, Hung, Hung, Hung, Hung, OK}, true, "30 unmount, 30 mount", false},
		{"hung, and each new one", []State{Hung}, true, "30 unmount, 30 mount, 95 unmount, 95 mount", false},
		{"hung, good for a moment", []State{Hung, Hung, Hung, Hung, Hung, Hung, Hung, OK, OK, Hung}, true,
			"30 unmount, 30 mount, 105 unmount, 105 mount", false},
		{"foreign", []State{Foreign}, true, "", false},
		{"its client ended", []State{OK, Stale, OK}, true, "5 unmount, 5 mount", true},
		{"its client ended, no quorum", []State{OK, Stale, OK}, false, "5 unmount, 5 mount", true},
		{"its client ends again and again", []State{OK, Stale}, true,
			"5 unmount, 5 mount, 10 unmount, 10 mount, 20 unmount, 20 mount, 40 unmount, 40 mount, 80 unmount, 80 mount",
			true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var did []string
				act := func(what string) {
					did = append(did,
						fmt.Sprintf("%.0f %s", time.Since(start).Seconds(), what))
				}

				n := 0
				k := &Keeper{
					Log: slog.New(slog.DiscardHandler),
					Probe: func(context.Context) Health {
						s := tt.states[min(n, len(tt.states)-1)]
						n++
						return Health{State: s, Ended: tt.ended && s == Stale}
					},
					Mount:   func(context.Context) error { act("mount"); return nil },
					Unmount: func(context.Context, bool) error { act("unmount"); return nil },
					Healthy: func() bool { return tt.healthy },
				}

				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				k.Run(ctx)
				if got := strings.Join(did, ", "); got != tt.want {
					t.Errorf("did %q, want %q", got, tt.want)
				}

				if h, at := k.Last(); h.State != tt.states[len(tt.states)-1] || at.IsZero() {
					t.Errorf("last %+v %v", h, at)
				}
			})
		})
	}
}

func TestClients(t *testing.T) {
	proc := t.TempDir()
	for pid, args := range map[string]string{
		"10": "/usr/sbin/glusterfs\x00--process-name\x00fuse\x00--volfile-id=/cluster\x00/srv/cluster\x00",
		"11": "/usr/sbin/glusterfs\x00--process-name\x00fuse\x00--volfile-id=/cluster\x00/srv/other\x00",
		"12": "/usr/sbin/glusterfsd\x00-s\x00node1\x00/srv/cluster\x00",
		"13": "vi\x00-n\x00/srv/cluster\x00",
		"14": "",
		"x":  "/usr/sbin/glusterfs\x00a\x00/srv/cluster\x00",
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(args), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if got, err := clients(proc, "/srv/cluster"); err != nil || len(got) != 1 || got[0] != 10 {
		t.Errorf("clients %v, %v", got, err)
	}

	for name, test := range map[string]struct {
		processes, point string
		want             bool
	}{
		"served":                    {proc, "/srv/cluster", false},
		"served elsewhere":          {proc, "/srv/third", true},
		"below another":             {proc, "/srv/cluster/srv", true},
		"processes cannot be known": {filepath.Join(proc, "none"), "/srv/third", false},
	} {
		m := &Mounter{Processes: test.processes, Point: test.point}
		if got := m.clientEnded(); got != test.want {
			t.Errorf("%s: the client has ended: %v", name, got)
		}
	}
}
