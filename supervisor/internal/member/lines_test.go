package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Only what cannot be the way's doing is a difference of clocks.
func TestAhead(t *testing.T) {
	const round = 100 * time.Millisecond
	for _, c := range []struct {
		theirs time.Time
		want   time.Duration
	}{
		{now, 0}, {now.Add(round), 0}, {now.Add(round / 2), 0}, {time.Time{}, 0},
		{now.Add(10*time.Minute + round), 10 * time.Minute}, {now.Add(-10 * time.Minute), -10 * time.Minute},
	} {
		if got := clockLead(c.theirs, now, round); got != c.want {
			t.Errorf("%s: %s, want %s", c.theirs, got, c.want)
		}
	}
}

// TestNodeLines: the table tells of other nodes what they are, where, and which
// version they run; a node of a version that does not say has none.
func TestNodeLines(t *testing.T) {
	dir := t.TempDir()
	hash := func(i int) string { return fmt.Sprintf("%064d", i) }
	table := nodes.Table{Version: 1, Cluster: "c", KeyHash: hash(0)}
	for i, storage := range []string{"data", "arbiter", "client", "data"} {
		n := nodes.Node{
			Name:        fmt.Sprintf("n%d", i+1),
			Address:     fmt.Sprintf("10.0.0.%d", i+1),
			State:       nodes.Member,
			Certificate: hash(i + 1),
			Storage:     storage,
		}

		if storage != "client" {
			n.Brick = "/b"
		}

		table.Nodes = append(table.Nodes, n)
	}

	b, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, nodes.File), b, 0o600); err != nil {
		t.Fatal(err)
	}

	k, err := nodes.OpenKeeper(dir, dir)
	if err != nil {
		t.Fatal(err)
	}

	cfg := settings.Default("n1")
	cfg.Storage.Kind = settings.VolumeStorage
	ready := status.Node{State: "ready", Master: "ok", Proxy: "ok", Storage: "ok", Clock: "synced"}
	p := &peers{env: Env{Settings: &cfg}, keeper: k, views: map[string]*peerView{
		"n2": {seen: now, summary: nodeapi.Summary{Version: "1.1.0", Node: ready}},
		"n3": {seen: now, summary: nodeapi.Summary{Version: "1.0.0\x1b[2J", Node: ready}, err: errors.New("timeout")},
		"n4": {seen: now, summary: nodeapi.Summary{Node: ready}},
	}}

	lines, _ := p.statusLines()
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %q %s %s", l.Name, l.Address, l.Version, l.Role, l.State))
	}

	want := []string{`n2 10.0.0.2 "1.1.0" arbiter ready`, `n3 10.0.0.3 "1.0.02J" client unreachable`,
		`n4 10.0.0.4 "" voter ready`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	// A node restarts only while the masters of all others answer, and not while others answer for one.
	turns := &turns{env: Env{Settings: &cfg}, peers: p}
	p.views["n3"].err = nil
	for _, c := range []struct{ master, storage, refusal string }{
		{"ok", "ok", ""},
		{"?", "ok", ""}, // not known
		{"down", "ok", "the master of node n4 is down, and others serve its minions"},
		{"failing", "ok", "the master of node n4 is failing"},
		{"starting", "ok", "the master of node n4 is starting"},
		{"ok", "waiting", "the storage of node n4 is waiting"},
	} {
		of4 := ready
		of4.Master, of4.Storage = c.master, c.storage
		p.views["n4"].summary.Node = of4
		if got := fmt.Sprint(turns.refused()); c.refusal == "" && got != "<nil>" || !strings.Contains(got, c.refusal) {
			t.Errorf("master %s, storage %s: %s", c.master, c.storage, got)
		}
	}

	if role := roleOf(&cfg, table.Nodes[0]); role != status.RoleVoter {
		t.Errorf("n1 is %s", role)
	}
}
