package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/check"
)

// recordMaster keeps the masters' record in its file, as masters do.
type recordMaster struct {
	asked
	path  string
	after func() // is called when a change is made
	fails error
}

func (r *recordMaster) RemoveMember(_ context.Context, c control.Removal) error {
	_ = r.note(strings.TrimSpace("remove " + c.ID + " " + strings.TrimLeft(c.Node, "0") + " " + c.Key))
	if r.fails != nil {
		return r.fails
	}

	rec, err := control.ReadRecord(r.path)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(rec.Members, func(m control.RecordMaster) bool {
		return m.ID == c.ID && (c.Key == "" || control.KeyFinger(m.Pub) == c.Key)
	})
	if c.Key != "" && c.Key != control.NoMaster ||
		!slices.ContainsFunc(rec.Removed, func(m control.RecordMaster) bool { return m.Node == c.Node }) {
		m := control.RecordMaster{ID: c.ID, Node: c.Node}
		if i >= 0 {
			m = rec.Members[i]
			m.Node = c.Node
			rec.Members = slices.Delete(rec.Members, i, i+1)
		}

		rec.Removed = append(rec.Removed, m)
		rec.Version++
		if err := writeRecord(r.path, rec); err != nil {
			return err
		}
	}

	if r.after != nil {
		r.after()
	}

	return nil
}

func writeRecord(path string, r control.Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(path, b, 0o600)
}

// pair is n1 and n2 of a cluster of three on one directory, and their masters.
func pair(t *testing.T, now func() time.Time) (members [2]*Member, masters [2]*recordMaster) {
	t.Helper()
	dir := t.TempDir()
	table := nodes.Table{Version: 1, Cluster: "c", KeyHash: fmt.Sprintf("%064d", 0)}
	var cfgs [2]settings.Settings
	for i := range 3 {
		n := nodes.Node{
			Name:        fmt.Sprintf("n%d", i+1),
			Address:     fmt.Sprintf("127.0.74.%d", i+1),
			State:       nodes.Member,
			Certificate: fmt.Sprintf("%064d", i+1),
		}

		if i < 2 {
			cfg := settings.Default(n.Name)
			cfg.DataDir = filepath.Join(dir, n.Name)
			cfg.RuntimeDir = filepath.Join(dir, n.Name, "run")
			cfg.Storage.Kind = settings.DirectoryStorage
			cfg.Storage.Path = filepath.Join(dir, "shared")
			cfg.Peering.Enabled = true

			for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), cfg.SharedNodesDir()} {
				check.Must(t, os.MkdirAll(d, 0o700))
			}

			id, err := nodeapi.LoadIdentity(cfg.NodeDir())
			check.Must(t, err)
			n.Certificate, cfgs[i] = id.Hash, cfg
		}

		table.Nodes = append(table.Nodes, n)
	}

	b, err := json.Marshal(table)
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join(cfgs[0].SharedNodesDir(), nodes.File), b, 0o600))
	var rec control.Record
	for _, n := range table.Nodes {
		rec.Members = append(rec.Members, control.RecordMaster{ID: n.Address, Pub: "pub " + n.Name, Own: true})
	}

	check.Must(t, writeRecord(cfgs[0].ClusterRecord(), rec))
	for i, cfg := range cfgs {
		check.Must(t, os.WriteFile(filepath.Join(cfg.DataDir, nodes.File), b, 0o600))
		masters[i] = &recordMaster{path: cfg.ClusterRecord()}
		m := newMember(t, Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: now}, masters[i])
		t.Cleanup(m.peers.close)
		members[i] = m
	}

	return members, masters
}

func stateOf(m *Member, name string) nodes.State { n, _ := find(m, name); return n.State }

// told gives the subject and cause of the finding about half a removal, if there is one.
func told(m *Member) string {
	for _, f := range m.State().Findings {
		if f.Code == status.RemovalHalf {
			return f.Subject + ": " + f.Cause
		}
	}
	return ""
}

// TestRemovalStopsHalfWay: the node that removes ends when the master is out. The
// other one finds that, tells of it until the storage takes writes, and finishes.
func TestRemovalStopsHalfWay(t *testing.T) {
	ms, masters := pair(t, time.Now)
	ctx, die := context.WithCancel(t.Context())
	masters[0].after = die
	if err := ms[0].Drop(ctx, "n3"); err == nil || stateOf(ms[0], "n3") != nodes.Member {
		t.Fatalf("the driver did not end between: %v, %s", err, stateOf(ms[0], "n3"))
	}

	// The first look cannot write: all that changes the table is refused.
	change := ms[1].removals.change
	ms[1].removals.change = func(context.Context, func(*nodes.Table) error) error { return errors.New("no space left on device") }
	for range 2 {
		ms[1].removals.finishFound(t.Context())
	}

	if got := told(ms[1]); got != "n3: its master is out; the table of nodes still has it as member; last try: no space left on device" {
		t.Errorf("told: %q", got)
	}

	ms[1].removals.change = change
	ms[1].removals.finishFound(t.Context())
	if s := stateOf(ms[1], "n3"); s != nodes.Removed {
		t.Fatalf("n3 is %s", s)
	}

	version := ms[1].Table().Version
	for range 2 { // whoever comes later, and the driver when it is back, change nothing
		ms[1].removals.finishFound(t.Context())
		ms[0].removals.finishFound(t.Context())
	}

	if got := told(ms[0]) + told(ms[1]); got != "" || ms[0].Table().Version != version ||
		ms[1].Table().Version != version {
		t.Errorf("afterwards: %q, version %d", got, ms[0].Table().Version)
	}

	masters[0].after = nil
	if err := ms[0].Drop(t.Context(), "n3"); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestRecordIsBehind: a node that is removed in the table and whose master is one of
// the cluster's is taken out of the record, unless its address is another node's.
func TestRecordIsBehind(t *testing.T) {
	ms, masters := pair(t, time.Now)
	third, _ := find(ms[0], "n3")
	check.Must(t, ms[0].Change(t.Context(), func(t *nodes.Table) error { return t.Remove(third.Certificate) }))
	masters[1].fails = errors.New("the master hangs")

	for range 2 {
		ms[1].removals.finishFound(t.Context())
	}

	if got := told(ms[1]); !strings.HasPrefix(got,
		"n3: the table of nodes has it as removed; the secrets that it knows") || !strings.HasSuffix(got,
		"the master hangs") {
		t.Errorf("told: %q", got)
	}

	list, ok := ms[1].removals.compare(t.Context())
	if !ok || len(list) != 1 {
		t.Fatalf("%+v", list)
	}

	// A new machine has the address when the master is asked.
	masters[1].fails = nil
	fresh := third
	fresh.Name, fresh.State, fresh.Certificate = "n4", nodes.Joining, strings.Repeat("4", 64)
	if _, err := (host{ms[0]}).Admit(t.Context(), fresh); !errors.Is(err, nodeapi.ErrStorage) ||
		!strings.Contains(err.Error(), "not finished yet") {
		t.Errorf("let in beside it: %v", err)
	}

	check.Must(t, ms[0].Change(t.Context(), func(t *nodes.Table) error { return nodes.Admit(t, fresh) }))
	if err := ms[1].removals.finish(t.Context(), list[0]); !errors.Is(err, errWhole) {
		t.Errorf("the master of another machine: %v", err)
	}

	check.Must(t, ms[0].Change(t.Context(), func(t *nodes.Table) error { return t.Remove(fresh.Certificate) }))
	for range 3 {
		ms[1].removals.finishFound(t.Context())
	}

	r, err := control.ReadRecord(masters[0].path)
	if _, still := r.Member("127.0.74.3"); err != nil || still || told(ms[1]) != "" {
		t.Errorf("%+v %v %q", r, err, told(ms[1]))
	}

	fresh.Certificate = strings.Repeat("5", 64)
	for range 2 {
		if _, err := (host{ms[0]}).Admit(t.Context(), fresh); err != nil {
			t.Errorf("once it is finished: %v", err)
		}
	}

	fresh.Certificate = strings.Repeat("6", 64)
	if _, err := (host{ms[0]}).Admit(t.Context(), fresh); !errors.Is(err, nodeapi.ErrName) {
		t.Errorf("an address that is taken: %v", err)
	}
}

// TestMasterTakenOutByHand: without the name of a machine the address must do, for a
// while, and a record that is damaged, older or not there changes nothing.
func TestMasterTakenOutByHand(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ms, masters := pair(t, func() time.Time { return now })
	whole, err := control.ReadRecord(masters[0].path)
	check.Must(t, err)
	without := whole
	without.Version = 7
	without.Members = whole.Members[:2]
	without.Removed = []control.RecordMaster{{ID: "127.0.74.3", Pub: "pub n3"}}
	look := func(after time.Duration, want nodes.State, tells bool) {
		t.Helper()
		now = now.Add(after)
		ms[1].removals.finishFound(t.Context())
		if s := stateOf(ms[1], "n3"); s != want || (told(ms[1]) != "") != tells {
			t.Errorf("n3 is %s, told %q", s, told(ms[1]))
		}
	}

	check.Must(t, writeRecord(masters[0].path, without))
	look(0, nodes.Member, true)
	check.Must(t, os.WriteFile(masters[0].path, []byte(`{"version": 8, "members": [`), 0o600))
	look(guessFor, nodes.Member, true)
	check.Must(t, writeRecord(masters[0].path, whole)) // older than what was seen: it says nothing
	look(guessFor, nodes.Member, true)
	whole.Version = 8
	check.Must(t, writeRecord(masters[0].path, whole))
	look(guessFor, nodes.Member, false)
	without.Version = 9
	check.Must(t, writeRecord(masters[0].path, without))
	look(guessFor, nodes.Member, true)
	look(guessFor-time.Second, nodes.Member, true)
	look(time.Second, nodes.Removed, true)
	look(0, nodes.Removed, false)
}
