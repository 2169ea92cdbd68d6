package member

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/test/await"
)

// keyed is a node whose cluster has a key, with a second node in the table of it.
func keyed(t *testing.T) (cfg *settings.Settings, start func() *Member, old *nodeapi.ClusterKey) {
	t.Helper()
	cfg, start = secretNode(t)
	old = newKey(t, cfg, "cluster")
	m := start()
	table := nodes.Table{Version: 1, Cluster: "lab", KeyHash: old.Hash, Nodes: []nodes.Node{
		{Name: "n1", Address: "127.0.0.1", State: nodes.Member, Certificate: m.id.Hash, Storage: "client"},
		{
			Name:        "n2",
			Address:     "127.0.0.2",
			State:       nodes.Member,
			Certificate: strings.Repeat("ab", 32),
			Storage:     "client",
		}}}

	if err := os.MkdirAll(cfg.SharedNodesDir(), 0o700); err != nil {
		t.Fatal(err)
	}

	if _, err := m.keeper.Offer(table); err != nil {
		t.Fatal(err)
	}

	if _, err := m.keeper.Change(t.Context(), func(*nodes.Table) error { return nil }); err != nil {
		t.Fatal(err)
	}

	return cfg, start, old
}

// newKey makes a key on the shared storage.
func newKey(t *testing.T, cfg *settings.Settings, name string) *nodeapi.ClusterKey {
	t.Helper()
	text, err := nodeapi.NewClusterKey()
	if err != nil {
		t.Fatal(err)
	}

	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		t.Fatal(err)
	}

	for half, b := range map[string]string{".pem": string(text), ".pub": key.Public} {
		path := filepath.Join(cfg.SharedPKIDir(), name+half)
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(b), 0o400)); err != nil {
			t.Fatal(err)
		}
	}

	return key
}

// onStorage is the hash of the cluster's key on the shared storage.
func onStorage(t *testing.T, cfg *settings.Settings) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cfg.SharedPKIDir(), "cluster.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key.Hash
}

// found has a node look for the key, as it does when it starts.
func found(t *testing.T, m *Member) (string, error) {
	t.Helper()
	key, err := m.shared.lookForKey(t.Context())
	if err != nil {
		return "", err
	}
	return key.Hash, nil
}

// TestKeyReplaced: whatever the step after which an import died, a node that starts has
// the key that the table of nodes names and no other, also one that knew that of before.
func TestKeyReplaced(t *testing.T) {
	cfg, start, old := keyed(t)
	next := newKey(t, cfg, setup.NextKey)
	if hash, err := found(t, start()); hash != old.Hash || err != nil {
		t.Fatalf("a key beside the cluster's: %s %v", hash, err)
	}

	driver := start()
	if _, err := driver.keeper.Change(t.Context(),
		func(t *nodes.Table) error { return t.SetKey(next.Hash) }); err != nil {
		t.Fatal(err)
	}

	away := start() // knows the table of now
	if onStorage(t, cfg) != old.Hash {
		t.Fatal("the test is wrong")
	}

	for range 2 { // the second finds it done
		if hash, err := found(t, away); hash != next.Hash || err != nil {
			t.Fatalf("named in the table: %s %v", hash, err)
		}
	}

	if onStorage(t, cfg) != next.Hash {
		t.Error("the key beside it has not taken the place")
	}

	if _, err := os.Stat(driver.shared.nextFile(".pem")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key is still beside: %v", err)
	}

	newKey(t, cfg, "cluster") // of another cluster
	if hash, err := found(t, start()); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("a key that the table does not name: %s %v", hash, err)
	}
}

// TestKeyWhileAway: a node whose own table is of before takes the key of now, and never
// says that it is ready with another.
func TestKeyWhileAway(t *testing.T) {
	cfg, start, old := keyed(t)
	own := filepath.Join(cfg.DataDir, nodes.File)
	before, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}

	next := newKey(t, cfg, setup.NextKey)
	if _, err := start().keeper.Change(t.Context(),
		func(t *nodes.Table) error { return t.SetKey(next.Hash) }); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(own, before, 0o600); err != nil {
		t.Fatal(err)
	}

	m := start()
	if table := m.keeper.Table(); table.KeyHash != old.Hash {
		t.Fatal("the test is wrong")
	}

	m.shared.mu.Lock()
	m.shared.founded = true
	m.shared.mu.Unlock()

	m.shared.placeKey(t.Context(), nil)
	m.shared.look.Wait(10 * time.Second)
	if ok, waits := m.shared.holdsKey(); !ok {
		t.Fatalf("it waits for %s", waits)
	}

	if key, _ := m.shared.foundKey(); key.Hash != next.Hash {
		t.Errorf("it has the key %s, want %s", key.Hash, next.Hash)
	}
}

// TestTakeKey: the key counts at once, the turn stays with the node that has masters take
// it, and a second administrator elsewhere is told who that is.
func TestTakeKey(t *testing.T) {
	cfg, start, old := keyed(t)
	m := start()
	m.shared.founded = true
	if err := (Verbs{m}).TakeKey(t.Context(), old.Hash); !errors.Is(err, api.ErrState) {
		t.Errorf("without a key: %v", err)
	}

	next := newKey(t, cfg, setup.NextKey)
	if _, err := m.keeper.Change(t.Context(), func(t *nodes.Table) error {
		return t.TakeTurn(nodes.Turn{Node: "n2", Life: "x", Since: time.Now(), Options: true}, false)
	}); err != nil {
		t.Fatal(err)
	}

	if err := (Verbs{m}).TakeKey(t.Context(), next.Hash); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "n2 has the turn") || onStorage(t, cfg) != old.Hash {
		t.Errorf("while another one has the turn: %v", err)
	}

	if _, err := m.keeper.Change(t.Context(), func(t *nodes.Table) error { t.GiveTurn("n2"); return nil }); err != nil {
		t.Fatal(err)
	}

	if err := (Verbs{m}).TakeKey(t.Context(), next.Hash); err != nil {
		t.Fatal(err)
	}

	table := m.keeper.Table()
	if now, ok := table.HasTurn(time.Now()); !ok || now.Node != "n1" || !now.Key ||
		table.KeyHash != next.Hash || onStorage(t, cfg) != next.Hash {
		t.Errorf("the turn %+v, the table %s, the key %s", table.Turn, table.KeyHash, onStorage(t, cfg))
	}
}

// TestAttack66KeyBeside: whoever may write to the folder of keys lays a key of his own
// beside the cluster's, or a table that names it on the storage. No node takes it.
func TestAttack66KeyBeside(t *testing.T) {
	cfg, start, old := keyed(t)
	mine, his := newKey(t, cfg, "imported"), newKey(t, cfg, setup.NextKey)
	m := start()
	m.shared.founded = true

	if hash, err := found(t, m); hash != old.Hash || err != nil {
		t.Errorf("a key that nobody has named: %s %v", hash, err)
	}

	if err := (Verbs{m}).TakeKey(t.Context(), mine.Hash); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "is not the one that was imported") {
		t.Errorf("another key than was imported: %v", err)
	}

	table := m.keeper.Table()
	table.Version, table.KeyHash = 99, his.Hash // and not what it was before
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(cfg.SharedNodesDir(), nodes.File), text, 0o600); err != nil {
		t.Fatal(err)
	}

	if hash, err := found(t, m); hash != old.Hash || err != nil || onStorage(t, cfg) != old.Hash {
		t.Errorf("a table of another cluster: %s %v", hash, err)
	}

	for _, bad := range []string{"", "no key", strings.Repeat("x", maxKey+1)} {
		if err := errors.Join(os.Remove(m.shared.nextFile(".pem")),
			os.WriteFile(m.shared.nextFile(".pem"), []byte(bad), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := (Verbs{m}).TakeKey(t.Context(), his.Hash); err == nil {
			t.Errorf("%.20q was taken for a key", bad)
		}
	}
}

// TestFollowKey: a master that runs with a key of before is restarted by its own node once
// nobody has the turn, and the turn is given back.
func TestFollowKey(t *testing.T) {
	_, start, _ := keyed(t)
	m := start()
	if hash, err := found(t, m); err != nil {
		t.Fatal(err)
	} else {
		key, err := m.shared.lookForKey(t.Context())
		m.shared.key = key
		m.shared.founded = true
		m.shared.replaced = true
		if err != nil || key.Hash != hash {
			t.Fatal(err)
		}
	}

	var master oldMaster
	master.old.Store(true)
	restarts := &master.restarts
	m.keys.master = &master
	m.keys.observer = serving{}
	turn := func(f func(*nodes.Table) error) {
		t.Helper()
		if _, err := m.keeper.Change(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}

	taken := func() bool {
		table := m.keeper.Table()
		return turnOf(&table, time.Now())
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turn(func(t *nodes.Table) error {
		return t.TakeTurn(nodes.Turn{Node: "n2", Life: "x", Since: time.Now(), Options: true}, false)
	})
	m.keys.reconcile(ctx)
	await.Holds(t, 50*time.Millisecond, "another node has the turn", func() bool { return restarts.Load() == 0 })
	turn(func(t *nodes.Table) error { t.GiveTurn("n2"); return nil })
	await.That(t, "the master is restarted, and the turn given back", func() bool {
		m.keys.reconcile(ctx)
		return restarts.Load() > 0 && !taken()
	})

	await.That(t, "it has nothing to do any more",
		func() bool { m.keys.reconcile(ctx); return !m.shared.wasReplaced() })
	if n := restarts.Load(); n != 1 {
		t.Errorf("restarted %d times", n)
	}

	stop()
	m.keys.worker.Wait(10 * time.Second)
}

// oldMaster is a [MasterService] whose master has a key of before until it restarts.
type oldMaster struct {
	old      atomic.Bool
	restarts atomic.Int32
}

func (o *oldMaster) OldKey() bool { return o.old.Load() }

func (o *oldMaster) Restart() error {
	o.old.Store(false)
	o.restarts.Add(1)
	return nil
}

// A new key is made once, counts when it is taken, and only then.
func TestNewKey(t *testing.T) {
	cfg, start, old := keyed(t)
	m := start()
	await.That(t, "the key is found", func() bool {
		m.shared.placeKey(t.Context(), nil)
		ok, _ := m.shared.holdsKey()
		return ok
	})

	keys, err := Verbs{m}.Keys()
	if err != nil || keys.Key.Hash != old.Hash || keys.Next != nil {
		t.Fatalf("%+v %v", keys, err)
	}

	for range 2 {
		again, err := Verbs{m}.NewKey(t.Context())
		if err != nil || again.Next == nil || keys.Next != nil && again.Next.Hash != keys.Next.Hash {
			t.Fatalf("%+v %v", again, err)
		}
		keys = again
	}

	if keys.Next.Hash == old.Hash || onStorage(t, cfg) != old.Hash {
		t.Errorf("%+v", keys)
	}

	public, err := os.ReadFile(keys.Next.Path)
	if err != nil || nodeapi.KeyHash(string(public)) != keys.Next.Hash {
		t.Errorf("%s: %v", keys.Next.Path, err)
	}

	if st, err := os.Stat(filepath.Join(cfg.SharedPKIDir(), setup.NextKey+
		".pem")); err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("%v %v", st, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := (Verbs{m}).TakeKey(ctx, keys.Next.Hash); err != nil {
		t.Fatal(err)
	}

	now, err := Verbs{m}.Keys()
	if err != nil || now.Key.Hash != keys.Next.Hash || now.Next != nil || onStorage(t, cfg) != now.Key.Hash {
		t.Errorf("%+v %v", now, err)
	}
}
