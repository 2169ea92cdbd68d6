package supervisor

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// survivor is a node of a cluster of three whose other nodes do not answer.
// Its tools are a script that notes how it was called.
func survivor(t *testing.T, kind string) (s *Supervisor, n *node, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	noted := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$(basename $0) $*\" >> " + noted + "\n"
	if err := os.WriteFile(filepath.Join(dir, "salt-run"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := settings.Default("n1")
	cfg.Cluster, cfg.DataDir, cfg.RuntimeDir = "c", filepath.Join(dir, "data"), filepath.Join(dir, "run")
	cfg.Storage.Kind, cfg.Storage.Path, cfg.Storage.Bricks = kind, filepath.Join(dir, "shared"), filepath.Join(dir, "bricks")
	cfg.Peering.Enabled, cfg.Programs.Master = true, filepath.Join(dir, "salt-master")
	for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), cfg.SharedNodesDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n, err := newNode(Options{Log: slog.New(slog.DiscardHandler), Now: time.Now, Executable: filepath.Join(dir, "applianced")}, &cfg, now, status.NewBoard())
	if err != nil {
		t.Fatal(err)
	}
	table := nodes.Table{Version: 5, Cluster: "c", KeyHash: strings.Repeat("ab", 32)}
	for i, name := range []string{"n1", "n2", "n3"} {
		cert := strings.Repeat(string(rune('1'+i)), 64)
		if i == 0 {
			cert = n.member.id.Hash
		}
		table.Nodes = append(table.Nodes, nodes.Node{Name: name, Address: "10.0.0." + string(rune('1'+i)), State: nodes.Member, Certificate: cert, Storage: "data", Brick: "/brick/cluster-1"})
	}
	if _, err := n.member.keeper.Offer(table); err != nil {
		t.Fatal(err)
	}
	return &Supervisor{node: n}, n, func() string { b, _ := os.ReadFile(noted); return string(b) }
}

// With a directory that is there, the lost nodes are taken out at once.
func TestRecoverOnADirectory(t *testing.T) {
	s, n, calls := survivor(t, settings.DirectoryStorage)
	n.member.peers["n2"] = &peerView{seen: time.Now()}
	if err := s.Recover(t.Context(), false); !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "n2 still answers") {
		t.Fatalf("a node that answers: %v", err)
	}
	delete(n.member.peers, "n2")
	if err := s.Recover(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	table := n.member.keeper.Table()
	if p := table.Present(); len(p) != 1 || p[0].Name != "n1" || !table.WasRemoved(strings.Repeat("3", 64)) {
		t.Errorf("%+v", table)
	}
	for _, want := range []string{"cluster.remove 10.0.0.2", "cluster.remove 10.0.0.3"} {
		if !strings.Contains(calls(), want) {
			t.Errorf("no %s in %q", want, calls())
		}
	}
	if err := s.Recover(t.Context(), false); !errors.Is(err, api.ErrState) {
		t.Errorf("a second time: %v", err)
	}
}

// What fails once a second is logged once.
func TestRecoverLogsAFaultOnce(t *testing.T) {
	var log bytes.Buffer
	s := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, text := range []string{"the master is away", "the master is away", strings.Repeat("long ", 100), strings.Repeat("long ", 100), "the master is away"} {
		s.recoverFailed(errors.New(text))
	}
	if n := strings.Count(log.String(), "\n"); n != 3 || s.recoverFault(nil, false) != "the master is away" {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

// On a volume it goes step by step, and each may fail or be interrupted.
func TestRecoverOnAVolume(t *testing.T) {
	s, n, calls := survivor(t, settings.VolumeStorage)
	stage := func(want string) {
		t.Helper()
		if r, err := s.Recovering(); err != nil || r.Stage != want {
			t.Fatalf("%+v %v, want %q", r, err, want)
		}
	}
	step := func() (left bool) {
		t.Helper()
		r, err := readRecovery(n.cfg)
		if err != nil || r == nil {
			t.Fatalf("%+v %v", r, err)
		}
		err = s.recoverStep(t.Context(), n, r, func() { left = true })
		s.recoverFault(err, err != nil)
		return left
	}
	helper := func(script string) {
		t.Helper()
		if err := os.WriteFile(n.opt.Executable, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stage("")
	if err := s.Recover(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	stage(recoverCopy)
	helper("echo 'no room' >&2; exit 1\n")
	if step() {
		t.Error("it was left although the copy has failed")
	}
	stage("") // nothing was changed
	table := n.member.keeper.Table()
	if r, _ := s.Recovering(); !strings.Contains(r.Fault, "no room") || len(table.Present()) != 3 {
		t.Errorf("%+v", r)
	}
	helper("dest=$(echo \"$4\" | sed 's/.*\"dest\":\"\\([^\"]*\\)\".*/\\1/'); mkdir -p \"$dest/pki\"\n")
	for range 2 {
		if err := s.Recover(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if !step() {
		t.Error("the node is to start anew")
	}
	stage(recoverSwitch)
	if _, err := os.Stat(filepath.Join(n.cfg.DataDir, "cluster", "pki")); err != nil {
		t.Error(err)
	}
	r, _ := readRecovery(n.cfg)
	if r.Stage = recoverMasters; r.Brick != "/brick/cluster-1" || len(r.Lost) != 2 {
		t.Errorf("%+v", r)
	}
	if err := r.write(n.cfg); err != nil {
		t.Fatal(err)
	}
	step()
	stage(recoverMasters) // until it serves
	n.doc.Store(&status.Document{ServingSince: &now})
	step()
	stage("")
	if !strings.Contains(calls(), "cluster.remove 10.0.0.3") {
		t.Errorf("calls: %q", calls())
	}
}
