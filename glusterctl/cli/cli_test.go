package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/command"
)

func load(t testing.TB, name string) command.Output {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return command.Output{Stdout: b}
}

// canned answers every command with one output.
type canned command.Output

func (c canned) Run(context.Context, []string) (command.Output, error) { return command.Output(c), nil }

func client(t *testing.T, name string) *Client {
	return &Client{Runner: canned(load(t, name))}
}

// The command is not to start Python, see withoutPython.
func TestWithoutPython(t *testing.T) {
	dir := t.TempDir()
	program, said := filepath.Join(dir, "gluster"), filepath.Join(dir, "said")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $PYTHON >"+said+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Client{Program: program}).PoolList(t.Context()); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(said); err != nil || string(got) != "true\n" {
		t.Errorf("PYTHON is %q, %v", got, err)
	}
}

// Every captured refusal is sorted into the right kind.
func TestKinds(t *testing.T) {
	for name, want := range map[string]Kind{
		"add-brick-existing.xml":         Refused,
		"another-transaction.xml":        Busy,
		"cli-no-glusterd.txt":            DaemonDown,
		"heal-count.txt":                 Refused,
		"heal-info-quorum-lost.xml":      Waiting,
		"heal-info-single.xml":           NotReplica,
		"peer-detach-unknown.xml":        Done,
		"peer-detach-with-brick.xml":     Refused,
		"peer-probe-daemon-down.xml":     Waiting,
		"peer-probe-has-volume.xml":      Conflict,
		"peer-probe-other-cluster.xml":   Conflict,
		"peer-probe-quorum-lost.xml":     Waiting,
		"peer-probe-same-uuid.xml":       Conflict,
		"peer-probe-unresolvable.xml":    Waiting,
		"volume-create-again.xml":        Refused,
		"volume-create-brick-reused.xml": BrickInUse,
		"volume-create-not-peer.xml":     Waiting,
		"volume-create-rootfs.xml":       RootDisk,
		"volume-delete-again.xml":        NoVolume,
		"volume-info-missing.xml":        NoVolume,
		"volume-set-quorum-lost.xml":     Waiting,
		"volume-start-again.xml":         Done,
		"volume-start-quorum-lost.xml":   Waiting,
		"volume-status-not-started.xml":  Refused,
		"volume-stop-again.xml":          Done,
	} {
		out := load(t, name)
		_, err := parseAnswer([]string{"gluster", "x"}, out)
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Errorf("%s: %v is no refusal", name, err)
			continue
		}

		if refusal.Kind != want {
			t.Errorf("%s: kind %d, want %d (%s)", name, refusal.Kind, want, refusal.Text)
		}

		if refusal.Text == "" || strings.ContainsAny(refusal.Text, "\n\t") {
			t.Errorf("%s: text %q", name, refusal.Text)
		}
	}

	for _, name := range []string{"peer-probe-again.xml", "peer-probe-self.xml", "volume-delete-ok.xml",
		"volume-stop-ok.xml", "volume-start-force.xml", "volume-get-all.xml", "volume-list.xml",
		"volume-list-none.xml"} {
		if err := client(t, name).Change(t.Context(), "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	if err := client(t, "volume-start-again.xml").Change(t.Context(), "volume", "start"); err != nil {
		t.Errorf("started again: %v", err)
	}
}

func TestPeers(t *testing.T) {
	for _, tt := range []struct {
		file             string
		n, connected, ok int
		self             bool
	}{
		{"pool-list-healthy.xml", 3, 3, 2, true},
		{"pool-list-alone.xml", 1, 1, 0, true},
		{"pool-list-one-down.xml", 3, 2, 2, true},
		{"peer-status-healthy.xml", 2, 2, 2, false},
		{"peer-status-one-down.xml", 2, 1, 2, false},
		{"peer-status-two-down.xml", 2, 0, 2, false},
		{"peer-status-on-evicted.xml", 2, 0, 2, false},
		{"peer-status-alone.xml", 0, 0, 0, false},
		{"peer-status-after-detach.xml", 0, 0, 0, false},
	} {
		ps, err := client(t, tt.file).PoolList(t.Context())
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}

		connected, ok, self := 0, 0, false
		for _, p := range ps {
			if p.Connected {
				connected++
			}
			if p.State == PeerInCluster {
				ok++
			}
			self = self || p.Self
		}

		if len(ps) != tt.n || connected != tt.connected || ok != tt.ok || self != tt.self {
			t.Errorf("%s: %+v", tt.file, ps)
		}
	}

	if _, err := client(t, "peer-status-half-known.xml").PoolList(t.Context()); KindOf(err) != PoolUnknown {
		t.Errorf("half known: %v", err)
	}
}

func TestVolumes(t *testing.T) {
	for _, tt := range []struct {
		file      string
		state     VolumeState
		typ       string
		bricks    int
		replica   int
		arbiters  int
		lastBrick string
	}{
		{"volume-info-replica3.xml", Started, "Replicate", 3, 3, 0, "node3:/data/brick/cluster"},
		{"volume-info-on-evicted.xml", Started, "Replicate", 3, 3, 0, "node3:/data/brick/cluster2"},
		{"volume-info-arbiter.xml", Started, "Replicate", 3, 3, 1, "node3:/data/brick/arb"},
		{"volume-info-created.xml", Created, "Distribute", 1, 1, 0, "node1:/data/brick/cluster"},
		{"volume-info-single.xml", Started, "Distribute", 1, 1, 0, "node1:/data/brick/cluster"},
		{"volume-info-thin-arbiter.xml", Started, "Replicate", 2, 2, 0, "node2:/data/brick/ta"},
	} {
		vs, err := client(t, tt.file).Volumes(t.Context())
		if err != nil || len(vs) != 1 {
			t.Errorf("%s: %v %v", tt.file, vs, err)
			continue
		}

		v := vs[0]
		if v.State != tt.state || v.Type != tt.typ || len(v.Bricks) != tt.bricks || v.Replica != tt.replica ||
			v.Arbiters != tt.arbiters || v.Dist != 1 {
			t.Errorf("%s: %+v", tt.file, v)
		}

		last := v.Bricks[len(v.Bricks)-1]
		if last.Name != tt.lastBrick || last.HostUUID == "" || last.Arbiter != (tt.arbiters > 0) {
			t.Errorf("%s: last brick %+v", tt.file, last)
		}

		if v.Options["nfs.disable"] != "on" {
			t.Errorf("%s: options %v", tt.file, v.Options)
		}
	}

	if vs, err := client(t, "volume-info-none.xml").Volumes(t.Context()); err != nil || len(vs) != 0 {
		t.Errorf("none: %v %v", vs, err)
	}
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		file, volume       string
		bricks, up, daemon int
		sized              bool
	}{
		{"volume-status-replica3-shd.xml", "cluster", 3, 3, 3, false},
		{"volume-status-replica3.xml", "cluster", 3, 3, 3, false},
		{"volume-status-one-down.xml", "cluster", 2, 2, 2, false},
		{"volume-status-brick-down.xml", "cluster", 4, 3, 4, false},
		{"volume-status-detail-replica3.xml", "cluster", 3, 3, 0, true},
		{"volume-status-detail-one-down.xml", "cluster", 2, 2, 0, true},
		{"volume-status-single.xml", "cluster", 1, 1, 0, true},
		{"volume-status-clients.xml", "cluster", 3, 3, 0, false},
	} {
		ps, err := client(t, tt.file).Status(t.Context(), tt.volume)
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}

		bricks, up, daemon := 0, 0, 0
		for _, p := range ps {
			switch {
			case p.Name == "":
				daemon++
			default:
				bricks++
				if p.Online {
					up++
					if p.Port == 0 || p.PID == 0 {
						t.Errorf("%s: %+v", tt.file, p)
					}
				}

				if p.Sized != tt.sized || tt.sized && (p.Total != 469762048 || p.Free == 0 || p.InodesFree == 0) {
					t.Errorf("%s: sizes of %+v", tt.file, p)
				}
			}
		}

		if bricks != tt.bricks || up != tt.up || daemon != tt.daemon {
			t.Errorf("%s: %d bricks, %d up, %d daemons", tt.file, bricks, up, daemon)
		}
	}

	// Two that were captured in other states have to be read, too.
	for file, vol := range map[string]string{
		"volume-status-quorum-lost.xml":       "cluster",
		"volume-status-thin-arbiter.xml":      "ta",
		"volume-status-detail-brick-down.xml": "cluster",
	} {
		if _, err := client(t, file).Status(t.Context(), vol); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}

	if _, err := client(t, "volume-status-none.xml").Status(t.Context(), "cluster"); err == nil {
		t.Error("a volume that is not there has a status")
	}
}

func TestHeal(t *testing.T) {
	for _, tt := range []struct {
		file                string
		bricks, known, away int
		total, entries      int
	}{
		{"heal-info-healthy.xml", 3, 3, 0, 0, 0},
		{"heal-info-split-brain-healthy.xml", 3, 3, 0, 0, 0},
		{"heal-info-summary-healthy.xml", 3, 3, 0, 0, 0},
		{"heal-info-summary-one-down.xml", 3, 2, 1, 374, 0},
		{"heal-info-summary-brick-down.xml", 4, 3, 1, 12, 0},
		{"heal-info-dir-split-brain.xml", 3, 3, 0, 3, 3},
		{"heal-info-split-brain-dir.xml", 3, 3, 0, 3, 3},
		{"heal-info-summary-dir-split-brain.xml", 3, 3, 0, 4, 0},
	} {
		hs, err := client(t, tt.file).HealEntries(t.Context(), "cluster")
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}

		known, away, total, entries := 0, 0, 0, 0
		for _, h := range hs {
			if h.Total.Known {
				known++
			}

			if !h.Connected {
				away++
			}

			total += h.Total.N
			entries += len(h.Entries)
			for _, e := range h.Entries {
				if e.GFID == "" || e.Path == "" {
					t.Errorf("%s: entry %+v", tt.file, e)
				}
			}
		}

		if len(hs) != tt.bricks || known != tt.known || away != tt.away || total != tt.total || entries != tt.entries {
			t.Errorf("%s: %d bricks, %d known, %d away, total %d, entries %d", tt.file, len(hs), known, away,
				total, entries)
		}
	}

	for _, file := range []string{"heal-info-one-down.xml", "heal-info-brick-down.xml"} {
		hs, err := client(t, file).HealEntries(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}

		for _, h := range hs {
			if h.Connected == (h.Total == Count{}) && h.Total.N == 0 && h.Connected {
				t.Errorf("%s: %+v", file, h)
			}

			if h.Connected && h.Total.N != len(h.Entries) {
				t.Errorf("%s: %d entries announced, %d listed", file, h.Total.N, len(h.Entries))
			}

			if !h.Connected && h.Total.Known {
				t.Errorf("%s: the count of a brick that is away is known", file)
			}
		}
	}

	if _, err := client(t, "heal-info-single.xml").HealSummary(t.Context(), "cluster"); KindOf(err) != NotReplica {
		t.Errorf("one copy: %v", err)
	}
}

// Every sample, cut at every place, gives an error and no panic.
func TestTruncated(t *testing.T) {
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d samples, %v", len(files), err)
	}

	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		b = []byte(strings.TrimSpace(string(b)))
		for n := 0; n < len(b); n += 1 + n/50 {
			out := command.Output{Stdout: b[:n]}
			if _, err := parseAnswer([]string{"gluster"}, out); err == nil {
				t.Fatalf("%s cut at %d is accepted", f, n)
			}
		}
	}
}

func TestHostile(t *testing.T) {
	for name, doc := range map[string]string{
		"empty":          "",
		"other document": "<html><opRet>0</opRet></html>",
		"no opRet":       "<cliOutput></cliOutput>",
		"two documents":  "<cliOutput><opRet>0</opRet></cliOutput><cliOutput><opRet>0</opRet></cliOutput>",
		"text after":     "<cliOutput><opRet>0</opRet></cliOutput> done",
		"deep":           strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100),
		"many":           "<cliOutput>" + strings.Repeat("<a/>", maxNodes+1) + "<opRet>0</opRet></cliOutput>",
		"long text": "<cliOutput><opRet>0</opRet><output>" + strings.Repeat("x", maxText+1) +
			"</output></cliOutput>",
		"entity":   `<!DOCTYPE a [<!ENTITY x "y">]><cliOutput><opRet>0</opRet></cliOutput>`,
		"crossed":  "<cliOutput><a><b></a></b><opRet>0</opRet></cliOutput>",
		"encoding": `<?xml version="1.0" encoding="utf-16"?><cliOutput><opRet>0</opRet></cliOutput>`,
		"large":    "<cliOutput><opRet>0</opRet>" + strings.Repeat(" ", maxAnswer) + "</cliOutput>",
	} {
		if _, err := parseAnswer([]string{"gluster"}, command.Output{Stdout: []byte(doc)}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	// File names are bytes that clients chose.
	a, err := parseAnswer(nil,
		command.Output{Stdout: []byte("<cliOutput><healInfo><bricks><brick><name>n:/b</name><file gfid=\"1\">/a\xff\x1b[31m</file><status>Connected</status><numberOfEntries>1</numberOfEntries></brick></bricks></healInfo><opRet>0</opRet></cliOutput>")})
	if err != nil {
		t.Fatal(err)
	}

	hs, err := readHeal(a)
	if err != nil || len(hs) != 1 || hs[0].Entries[0].Path != "/a\ufffd\ufffd[31m" {
		t.Errorf("%+v %v", hs, err)
	}

	_, err = parseAnswer(nil, command.Output{Stdout: []byte("bad\x1b]0;x\x07\nthing")})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\n") {
		t.Errorf("%q", err)
	}
}

// A command that did not end in time may have left the lock of the pool behind.
func TestTimeoutIsTriedAgain(t *testing.T) {
	if KindOf(fmt.Errorf("run gluster: %w", command.ErrTimeout)) != Waiting {
		t.Error("a timeout is no reason to try again")
	}
}

func FuzzAnswer(f *testing.F) {
	files, _ := filepath.Glob("testdata/*")
	for _, name := range files {
		f.Add(load(f, filepath.Base(name)).Stdout)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer([]string{"gluster"}, command.Output{Stdout: b})
		if err != nil {
			if strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("control characters in %q", err)
			}
			return
		}

		_, _ = readPeers(a)
		if vs, err := readVolumes(a); err == nil {
			for _, v := range vs {
				if v.Name == "" || len(v.Bricks) == 0 {
					t.Errorf("volume %+v", v)
				}
			}
		}

		_, _ = readStatus(a, "cluster")
		if hs, err := readHeal(a); err == nil {
			for _, h := range hs {
				if !h.Total.Known && h.Total.N != 0 || h.Total.N < 0 {
					t.Errorf("count %+v", h.Total)
				}
			}
		}
	})
}
