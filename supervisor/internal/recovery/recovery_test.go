package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// world is a node of a cluster of three whose other nodes do not answer, but
// for those that are said to be alive.
type world struct {
	*member.Member
	Worker
	cfg     *settings.Settings
	alive   map[string]bool
	serving bool
	calls   []string // of the master
	refuses error    // what the master answers
}

// RemoveMember and the others implement member.Master.
func (w *world) RemoveMember(_ context.Context, r control.Removal) error {
	w.calls = append(w.calls, "remove "+r.ID)
	if w.refuses != nil || r.Node == "" {
		return w.refuses
	}

	rec, err := control.ReadRecord(w.cfg.ClusterRecord())
	if err != nil {
		return err
	}

	rec.Members = slices.DeleteFunc(rec.Members, func(m control.RecordMaster) bool { return m.ID == r.ID })
	rec.Removed = append(rec.Removed, control.RecordMaster{ID: r.ID, Node: r.Node})
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}

	return os.WriteFile(w.cfg.ClusterRecord(), b, 0o600)
}
func (w *world) StageSecret(context.Context) error          { return nil }
func (w *world) CommitSecret(context.Context, string) error { return nil }

func (w *world) Answers(node string) bool { return w.alive[node] }

func survivor(t *testing.T, kind string) *world {
	t.Helper()
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.Cluster = "c"
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.RuntimeDir = filepath.Join(dir, "run")
	cfg.Storage.Kind = kind
	cfg.Storage.Path = filepath.Join(dir, "shared")
	cfg.Storage.Bricks = filepath.Join(dir, "bricks")
	cfg.Peering.Enabled = true

	for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), cfg.SharedNodesDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	w := &world{cfg: &cfg, alive: map[string]bool{}}
	id, err := nodeapi.LoadIdentity(cfg.NodeDir())
	if err != nil {
		t.Fatal(err)
	}

	table := nodes.Table{Version: 5, Cluster: "c", KeyHash: strings.Repeat("ab", 32)}
	for i, name := range []string{"n1", "n2", "n3"} {
		cert := strings.Repeat(string(rune('1'+i)), 64)
		if i == 0 {
			cert = id.Hash
		}

		table.Nodes = append(table.Nodes,
			nodes.Node{
				Name:        name,
				Address:     "127.0.74." + string(rune('1'+i)),
				State:       nodes.Member,
				Certificate: cert,
				Storage:     "data",
				Brick:       "/brick/cluster-1",
			})
	}

	k, err := nodes.OpenKeeper(cfg.DataDir, cfg.SharedNodesDir())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := k.Offer(table); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(cfg.ClusterRecord(),
		[]byte(`{"version": 1, "members": [{"id": "127.0.74.2"}, {"id": "127.0.74.3"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}

	log := slog.New(slog.DiscardHandler)
	own, err := member.Open(member.Env{Settings: &cfg, Log: log, Now: time.Now}, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}

	w.Member = member.New(own, member.Config{Master: w})

	w.Worker = Worker{
		Recovery: New(filepath.Join(dir, "applianced"), log),
		Settings: &cfg,
		Member:   w,
		Ready:    func() bool { return false },
		Serving:  func() bool { return w.serving },
	}

	return w
}

// With a directory that is there, the lost nodes are taken out at once.
func TestRecoverOnADirectory(t *testing.T) {
	w := survivor(t, settings.DirectoryStorage)
	w.alive["n2"] = true
	if err := w.Recover(t.Context(), false); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "n2 still answers") {
		t.Fatalf("a node that answers: %v", err)
	}

	delete(w.alive, "n2")
	if err := w.Recover(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	table := w.Table()
	if p := table.Present(); len(p) != 1 || p[0].Name != "n1" || !table.WasRemoved(strings.Repeat("3", 64)) {
		t.Errorf("%+v", table)
	}

	for _, want := range []string{"remove 127.0.74.2", "remove 127.0.74.3"} {
		if !slices.Contains(w.calls, want) {
			t.Errorf("no %s in %q", want, w.calls)
		}
	}

	if err := w.Recover(t.Context(), false); !errors.Is(err, api.ErrState) {
		t.Errorf("a second time: %v", err)
	}
}

// A master that refuses holds a recovery up.
func TestRecoverBesideAMasterThatRefuses(t *testing.T) {
	w := survivor(t, settings.DirectoryStorage)
	w.refuses = &rpc.Error{Code: rpc.CodeFailed, Text: "no such member of the disk"}
	if err := w.Recover(t.Context(), false); !errors.Is(err, w.refuses) {
		t.Errorf("%v", err)
	}
}

// What fails once a second is logged once.
func TestRecoverLogsAFaultOnce(t *testing.T) {
	var log bytes.Buffer
	s := New("/x", slog.New(slog.NewTextHandler(&log, nil)))
	for _, text := range []string{"the master is away", "the master is away", strings.Repeat("long ", 100),
		strings.Repeat("long ", 100), "the master is away"} {
		s.failed(errors.New(text))
	}
	if n := strings.Count(log.String(), "\n"); n != 3 || s.lastFault() != "the master is away" {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

// On a volume it goes step by step, and each may fail or be interrupted.
func TestRecoverOnAVolume(t *testing.T) {
	w := survivor(t, settings.VolumeStorage)
	stage := func(want string) {
		t.Helper()
		if r, err := w.Recovering(); err != nil || r.Stage != want {
			t.Fatalf("%+v %v, want %q", r, err, want)
		}
	}

	step := func() (left bool) {
		t.Helper()
		r, err := readRecord(w.cfg)
		if err != nil || r == nil {
			t.Fatalf("%+v %v", r, err)
		}

		err = w.doStep(t.Context(), r, func() { left = true })
		if err != nil {
			w.setFault(err)
		}

		return left
	}

	helper := func(script string) {
		t.Helper()
		if err := os.WriteFile(w.executable, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	stage("")
	if err := w.Recover(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	stage(stageCopy)
	helper("echo '{\"error\":\"no room\"}'\n")
	if step() {
		t.Error("it was left although the copy has failed")
	}

	stage("") // nothing was changed
	table := w.Table()
	if r, _ := w.Recovering(); !strings.Contains(r.Fault, "no room") || len(table.Present()) != 3 {
		t.Errorf("%+v", r)
	}

	helper("dest=$(echo \"$4\" | sed 's/.*\"dest\":\"\\([^\"]*\\)\".*/\\1/'); mkdir -p \"$dest/pki\"\necho '{}'\n")
	for range 2 {
		if err := w.Recover(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}

	if !step() {
		t.Error("the node is to start anew")
	}

	stage(stageSwitch)
	if _, err := os.Stat(filepath.Join(w.cfg.DataDir, "cluster", "pki")); err != nil {
		t.Error(err)
	}

	r, _ := readRecord(w.cfg)
	r.Stage = stageMasters
	if r.Brick != "/brick/cluster-1" || len(r.Lost) != 2 {
		t.Errorf("%+v", r)
	}

	if err := r.write(w.cfg); err != nil {
		t.Fatal(err)
	}

	step()
	stage(stageMasters) // until it serves
	w.serving = true
	step()
	stage("")

	if !slices.Contains(w.calls, "remove 127.0.74.3") {
		t.Errorf("calls: %q", w.calls)
	}
}
