package cluster

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

const captures = "../testdata/cluster"

// testKeys are generated once, since key generation is slow.
var testKeys = sync.OnceValue(func() []*rsa.PrivateKey {
	var out []*rsa.PrivateKey
	for _, id := range []string{"10.27.12.13", "10.27.7.126", "10.27.3.73", "10.27.9.42"} {
		k, err := crypt.LoadPrivate(filepath.Join(captures, "keys", id+".pem"), "")
		if err != nil {
			panic(err)
		}
		out = append(out, k)
	}
	return out
})

// net127 gives each test addresses of its own.
var net127 struct {
	sync.Mutex
	n int
}

func hosts(t testing.TB, n int) (ids []string, port int) {
	net127.Lock()
	defer net127.Unlock()
	net127.n++
	for i := range n {
		ids = append(ids, fmt.Sprintf("127.%d.%d.%d", 40+os.Getpid()%200, net127.n, i+1))
	}
	ln, err := net.Listen("tcp", ids[0]+":0")
	check.Must(t, err)
	defer ln.Close()
	return ids, ln.Addr().(*net.TCPAddr).Port
}

// member is a master of a test.
type member struct {
	taken [][16]byte
	*Pool
	t   testing.TB
	log *lines

	mu      sync.Mutex
	keys    []string
	seeds   []string
	events  []string
	jobs    []string
	late    []string // jobs that came late, were sent late, or were never sent
	retold  []string // jobs that it had before, or was brought
	starts  []Start
	knowing []int // starts that were known as a job was sent late
	returns []string
	changed []string
	told    []string
	data    map[string]*value.Map
	makers  map[string]event.Origin
	heard   []string // data of minions, by sender and size; and who was connected
	removed bool
	refuse  int // so many returns fail first
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func (m *member) Keys(k crypt.Key, seed string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys, m.seeds = append(m.keys, k.String()), append(m.seeds, seed)
	return nil
}

func (m *member) Event(_ context.Context, peer string, e event.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, peer+" "+e.Tag)
	m.data[e.Tag] = e.Data
	m.makers[e.Tag] = e.Maker
	return nil
}

func (m *member) Publish(_ context.Context, _ string, load *value.Map, late Late) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if late.Retold {
		m.retold = append(m.retold, fmt.Sprint(load.Str("jid"), " ", late.Brought))
		return nil
	}
	m.jobs = append(m.jobs, load.Str("jid"))
	if late.Age > 0 {
		m.late = append(m.late, fmt.Sprint(load.Str("jid"), " ", late.Age.Round(time.Second), " ", late.Passed))
	}
	return nil
}

func (m *member) Return(_ context.Context, _, tag string, _ *value.Map) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse > 0 {
		m.refuse--
		return errors.New("disk is full")
	}
	m.returns = append(m.returns, tag)
	return nil
}

func (m *member) KeyChanged(id string, _ wire.KeyState, _ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = append(m.changed, id)
}

// hears makes a member a Handler: two of the Handler's methods have the names of methods of Pool.
type hears struct{ *member }

func (m hears) PeerSubscribed(peer string, _ netip.Addr, s Subs) { m.note("subs", peer, s) }
func (m hears) PeerCutOff(peer string, cuts []Cut) {
	for _, c := range cuts {
		now := time.Now()
		m.note(fmt.Sprint("cut ", now.Sub(c.Since).Round(time.Second), " ", c.Until.Sub(now).Round(time.Second)),
			peer, Subs{c.From: c.Crowd})
	}
}

func (m hears) LearnStarts(_ string, starts []Start) (fresh []Start) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range starts {
		if !slices.ContainsFunc(m.starts, func(o Start) bool { return o.ID == s.ID && o.Process == s.Process }) {
			m.starts = append(m.starts, s)
			fresh = append(fresh, s)
		}
	}
	return fresh
}

func (m hears) KnownStarts(int) []Start {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.starts)
}

func (m hears) JobReachedLate(load *value.Map, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = append(m.late, "sent "+load.Str("jid"))
	m.knowing = append(m.knowing, len(m.starts))
}

func (m hears) LostJob(peer string, load *value.Map) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = append(m.late, "lost "+load.Str("jid")+" "+peer)
}

func (m hears) Passed(time.Duration) int { return 7 }

func (m hears) PeerLost(peer string, _ time.Time) { m.note("lost", peer, nil) }

func (m hears) LearnNonces(list [][16]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = append(m.taken, list...)
}

func (m hears) PeerConnected(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, "connected "+peer)
}

func (m hears) PeerData(peer string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, fmt.Sprint(peer, " ", len(b)))
}

func (m hears) OwnNonces(int) [][16]byte { return [][16]byte{{1}, {2}} }

func (m *member) note(what, peer string, s Subs) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, k := range s {
		n += k
	}
	m.told = append(m.told, fmt.Sprint(what, " ", peer, " ", n))
}

func (m *member) Removed() { m.mu.Lock(); defer m.mu.Unlock(); m.removed = true }

func (m *member) has(list *[]string, want string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range *list {
		if s == want {
			return true
		}
	}
	return false
}

func (m *member) count(list *[]string) int { m.mu.Lock(); defer m.mu.Unlock(); return len(*list) }

// start opens the pool of a master and sets its handler.
func start(
	t testing.TB,
	ctx context.Context,
	id string,
	port, key int,
	dir string,
	change func(*Config),
) (*member, error) {
	t.Helper()
	m, err := open(t, ctx, id, port, key, dir, change)
	if err == nil {
		check.Must(t, m.Serve(hears{m}))
	}
	return m, err
}

func open(
	t testing.TB,
	ctx context.Context,
	id string,
	port, key int,
	dir string,
	change func(*Config),
) (*member, error) {
	t.Helper()
	m := &member{t: t, log: &lines{}, data: map[string]*value.Map{}, makers: map[string]event.Origin{}}
	cfg := Config{ID: id, Address: id, Port: port, Dir: dir, Key: testKeys()[key], Secret: "secret of the test",
		Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&cfg)
	}

	p, err := Open(ctx, cfg)
	if err != nil {
		return m, err
	}

	m.Pool = p
	t.Cleanup(sync.OnceFunc(p.Close))
	return m, nil
}

// refusal opens the pool of a master whom its peers do not let in, and returns the error as soon as
// one of them has said why.
func refusal(t testing.TB, id string, port, key int, dir string, change func(*Config)) error {
	t.Helper()
	ctx, cancel := context.WithCancel(await.Context(t))
	defer cancel()

	log := &lines{}
	go func() {
		defer cancel()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !strings.Contains(log.String(), "does not let this master in") {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()

	_, err := start(t, ctx, id, port, key, dir, func(c *Config) {
		change(c)
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	return err
}

// three creates a cluster of three masters, each of which was configured with one other.
func three(t testing.TB, change func(*Config)) (ms [3]*member, dir string, port int) {
	t.Helper()
	dir = t.TempDir()
	ids, port := hosts(t, 3)
	for i := range ms {
		var err error
		ms[i], err = start(t, await.Context(t), ids[i], port, i, dir, func(c *Config) {
			if i > 0 {
				c.Peers = ids[i-1 : i]
			}
			if change != nil {
				change(c)
			}
		})

		check.Must(t, err)
	}

	await.That(t, "links", func() bool {
		for _, m := range ms {
			s := m.Status()
			if len(s.Peers) != 2 || !s.Peers[0].Alive || !s.Peers[1].Alive || !s.Peers[0].Connected ||
				!s.Peers[1].Connected {
				return false
			}
		}

		return true
	})

	return ms, dir, port
}

func TestPool(t *testing.T) {
	t.Parallel()
	ms, dir, _ := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	for _, m := range ms {
		if m.ClusterKey().String() != a.ClusterKey().String() || m.Seed() != a.Seed() ||
			m.Identity().Public != a.Identity().Public || !m.Serving() {
			t.Error("the masters do not share their keys")
		}
	}

	// The files that Salt needs exist.
	for name, mode := range map[string]os.FileMode{
		"cluster.pem":                0o400,
		"cluster.pub":                0o400,
		".aes":                       0o600,
		"peers/" + b.cfg.ID + ".pub": 0o400,
		recordFile:                   0o600,
	} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}

	// Events, jobs and returns reach the other masters once, in order, and with their origin.
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("test", 100, nil)
	for i := range 20 {
		check.Must(t, bus.Fire(fmt.Sprintf("my/tag/%d", i), value.NewMap("n", i)))
	}

	check.Must(t,
		bus.Fire("salt/job/20261121073619941881/publish",
			value.NewMap("jid", "20261121073619941881", "fun", "test.ping")))
	check.Must(t, bus.Fire("salt/key", value.NewMap("act", "accepted", "id", "m1", "result", true)))
	check.Must(t, bus.Fire("cluster/peer/discover", value.NewMap()))
	check.Must(t, bus.Relay(event.Event{Tag: "from/peer", Data: value.NewMap(), Origin: event.Peer}))

	for range 24 {
		b.Forward(<-sub.C)
	}

	for _, m := range []*member{a, c} {
		await.That(t, "events", func() bool { return m.count(&m.events) >= 22 })
		if !m.has(&m.jobs, "20261121073619941881") || !m.has(&m.changed, "m1") {
			t.Error("a job or a key is missing")
		}

		m.mu.Lock()
		events, third := slices.Clone(m.events), m.data["my/tag/3"]
		m.mu.Unlock()

		last := -1
		for _, e := range events {
			var n int
			if _, err := fmt.Sscanf(e, b.cfg.ID+" my/tag/%d", &n); err == nil {
				if n != last+1 {
					t.Errorf("%d after %d", n, last)
				}
				last = n
			}
		}

		if third.Str(wire.PeerField) != b.cfg.ID || third.Str("_stamp") == "" {
			t.Errorf("%v", third.Keys())
		}

		if len(events) != 22 || last != 19 {
			t.Errorf("%d events", len(events))
		}
	}

	if b.count(&b.events) != 0 {
		t.Error("events came back")
	}

	// A peer stores a return before it is acknowledged, also when the peer's first attempt fails.
	a.mu.Lock()
	a.refuse = 2
	a.mu.Unlock()

	c.mu.Lock()
	c.refuse = 2
	c.mu.Unlock()

	check.Must(t,
		b.Keep(await.Context(t), "salt/job/20261121073619941881/ret/m1", value.NewMap("return", strings.Repeat("x", 3<<20))))
	if a.count(&a.returns)+c.count(&c.returns) == 0 {
		t.Error("nobody has the return")
	}

	await.That(t, "returns", func() bool { return a.count(&a.returns) == 1 && c.count(&c.returns) == 1 })

	// Rotation: one change of the record, and all masters have the same key.
	before := a.ClusterKey().String()
	check.Must(t, c.Rotate(await.Context(t)))
	await.That(t, "rotation", func() bool {
		return a.ClusterKey().String() != before && a.ClusterKey().String() == b.ClusterKey().String() &&
			b.ClusterKey().String() == c.ClusterKey().String()
	})

	aes, err := os.ReadFile(filepath.Join(dir, ".aes"))
	if err != nil || string(aes) != a.ClusterKey().String() {
		t.Error("Salt's file has another key", err)
	}

	await.That(t, "handlers", func() bool { return a.count(&a.keys) == 2 && b.count(&b.keys) == 2 })

	// Exactly one master is the owner.
	await.That(t, "an owner", func() bool {
		n := 0
		for _, m := range ms {
			if _, ok := m.Own(); ok {
				n++
			}
		}
		return n == 1
	})

	s := a.Status()
	if s.Phase != "active" || s.KeyGen != 2 || s.Peers[0].Queues["jobs"].Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRemoveWithoutAMaster: the removal of a machine without a master replaces, once and on all
// masters, the secrets that the machine knew, and removes no member.
func TestRemoveWithoutAMaster(t *testing.T) {
	t.Parallel()
	ms, _, _ := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	seed, key := a.Seed(), a.ClusterKey().String()
	check.Must(t, a.Remove(await.Context(t), control.Removal{ID: "127.0.0.250", Key: control.NoMaster, Node: "c9"}))
	await.That(t, "the others have it", func() bool {
		return a.Seed() != seed && b.Seed() == a.Seed() && c.Seed() == a.Seed() && a.ClusterKey().String() != key &&
			b.ClusterKey().String() == a.ClusterKey().String() && b.Secret() == a.Secret() && c.Secret() == a.Secret()
	})

	if a.Secret() == a.cfg.Secret || len(a.Status().Peers) != 2 {
		t.Errorf("%+v", a.Status())
	}

	seed = a.Seed()
	check.Must(t, a.Remove(await.Context(t), control.Removal{ID: c.cfg.ID, Node: "c9"}))
	if a.Seed() != seed || len(a.Status().Peers) != 2 {
		t.Errorf("removed twice: %+v", a.Status())
	}
}

// TestAttack12Removal: a removed master can never come back with its key.
func TestAttack12Removal(t *testing.T) {
	t.Parallel()
	ms, dir, port := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	seed, key := a.Seed(), a.ClusterKey().String()

	for _, m := range []*member{a, b} {
		await.That(t, "a look at c",
			func() bool { m.Pool.mu.Lock(); defer m.Pool.mu.Unlock(); return m.aliveAtTick[c.cfg.ID] })
	}

	check.Must(t, a.Remove(await.Context(t), control.Removal{ID: c.cfg.ID}))
	await.That(t, "the end of c", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.removed && !c.Serving() })
	await.That(t, "b", func() bool { return len(b.Status().Peers) == 1 })
	for _, m := range []*member{a, b} {
		await.That(t, "its minions to be those of a master that is lost",
			func() bool { return m.has(&m.told, "lost "+c.cfg.ID+" 0") })
	}

	if a.Seed() == seed || b.Seed() != a.Seed() || a.ClusterKey().String() == key || a.Secret() == a.cfg.Secret {
		t.Error("secrets are as they were")
	}

	if _, err := os.Stat(filepath.Join(dir, "peers", c.cfg.ID+".pub")); !errors.Is(err, os.ErrNotExist) {
		t.Error("its key is still there", err)
	}

	if err := a.Remove(await.Context(t), control.Removal{ID: "127.0.0.250"}); !errors.Is(err, node.ErrNotMember) {
		t.Error(err)
	}

	c.Close()

	// It tries to join with its old key, with the old secret and with the new one.
	for _, secret := range []string{a.cfg.Secret, a.Secret()} {
		_, err := start(t, await.Context(t), c.cfg.ID, port, 2, dir, func(cfg *Config) {
			cfg.Secret = secret
			cfg.Peers = []string{a.cfg.ID}
		})
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("the removed master came back: %v", err)
		}
	}

	// It tries to join with another key and the old secret.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := start(t, ctx, c.cfg.ID, port, 3, dir, func(cfg *Config) { cfg.Peers = []string{a.cfg.ID} })
	if err == nil || !strings.Contains(err.Error(), "wrong cluster_secret") {
		t.Errorf("with the old secret: %v", err)
	}

	// With another key and the new secret it is admitted.
	d, err := start(t, await.Context(t), c.cfg.ID, port, 3, dir, func(cfg *Config) {
		cfg.Secret = a.Secret()
		cfg.Peers = []string{a.cfg.ID}
	})

	check.Must(t, err)
	if d.Seed() != a.Seed() {
		t.Error("another seed")
	}
}

// TestAttack11Joining: masters with a wrong, empty or missing secret, or with a wrong fingerprint,
// cannot join.
func TestAttack11Joining(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 3)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	short := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx
	}

	began := time.Now()
	b, err := start(t, short(4*time.Second), ids[1], port, 1, dir, func(c *Config) {
		c.Secret = "wrong"
		c.Peers = ids[:1]
	})
	if err == nil || !strings.Contains(err.Error(), "wrong cluster_secret") {
		t.Errorf("wrong secret: %v", err)
	}

	if !strings.Contains(b.log.String(), "wrong cluster_secret") ||
		!strings.Contains(a.log.String(), "wrong cluster_secret") {
		t.Errorf("not both sides say so: %v\n%s\n%s", time.Since(began), a.log, b.log)
	}

	if strings.Contains(a.log.String(), "secret of the test") {
		t.Error("the log tells the secret")
	}

	if _, err := os.Stat(filepath.Join(dir, "peers", ids[1]+".pub")); err == nil {
		t.Error("its key was stored")
	}

	err = refusal(t, ids[1], port, 1, dir, func(c *Config) {
		c.Secret = ""
		c.Peers = ids[:1]
	})
	if err == nil || !strings.Contains(err.Error(), "cluster_secret is not set on this master") {
		t.Errorf("no secret: %v", err)
	}

	_, err = start(t, short(time.Second), ids[1], port, 1, dir, func(c *Config) {
		c.Secret = ""
		c.PlainPeers = true
		c.StateDir = t.TempDir()
	})
	if err == nil || !strings.Contains(err.Error(), "cluster_secret is not set, and Salt's masters") {
		t.Errorf("no secret, with Salt's masters: %v", err)
	}

	if _, err := start(t, short(time.Second), ids[1], port, 1, dir,
		func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) }); err == nil ||
		!strings.Contains(err.Error(), "fingerprint") {
		t.Errorf("wrong fingerprint: %v", err)
	}

	for _, id := range []string{"../x", "", "a b", "join"} {
		if _, err := start(t, short(time.Second), id, port, 1, dir,
			func(c *Config) { c.Address = ids[1] }); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}

	// A master with another key tries to join under the id of a member.
	if _, err := start(t, short(2*time.Second), ids[0]+"", port, 1, dir,
		func(c *Config) { c.Address = ids[2]; c.Peers = ids[:1] }); err == nil {
		t.Error("an id was taken over")
	}
}

// Masters without cluster_secret join by the record in the folder that they share, and no master
// joins that shows another secret, or has not read the record. Each logs, in Salt's words, who the
// owner is.
func TestJoinByTheSharedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 3)
	bare := func(c *Config) {
		c.Secret = ""
		c.Peers = ids[:1]
	}

	a, err := start(t, await.Context(t), ids[0], port, 0, dir, func(c *Config) { c.Secret = "" })
	check.Must(t, err)
	b, err := start(t, await.Context(t), ids[1], port, 1, dir, bare)
	check.Must(t, err)

	await.That(t, "owner in the logs", func() bool {
		return strings.Contains(a.log.String(), "Node "+ids[0]+" BECOMING LEADER for term 1") &&
			strings.Contains(b.log.String(), "Node "+ids[1]+" BECOMING FOLLOWER for term 1")
	})

	err = refusal(t, ids[2], port, 2, dir, func(c *Config) {
		c.Secret = "a guess"
		c.Peers = ids[:1]
	})
	if err == nil || !strings.Contains(err.Error(), "it is not set here") {
		t.Errorf("another secret: %v", err)
	}

	// The cluster's key alone, without the record, does not suffice.
	keyOnly := t.TempDir()
	for _, name := range []string{clusterPEM, clusterPub} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		check.Must(t, err)
		check.Must(t, os.WriteFile(filepath.Join(keyOnly, name), text, 0o400))
	}

	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := start(t, short, ids[2], port, 2, keyOnly, bare); err == nil {
		t.Error("a master joined that has not read the record")
	}
}

// A restarted master needs no peer and no secret. A return that a peer has not handled is sent
// again after the peer's restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	ms, dir, port := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	c.Close()
	await.That(t, "c to be gone", func() bool { s := b.Status(); return !s.Peers[1].Connected })

	for i := range 50 {
		if err := b.Keep(await.Context(t), fmt.Sprintf("salt/job/20261121073619941881/ret/m%d", i),
			value.NewMap("return", i)); err != nil {
			t.Fatal(err)
		}
	}

	if s := b.Status().Peers[1].Queues["returns"]; s.Waiting != 50 || s.Lag == 0 {
		t.Errorf("%+v", s)
	}

	began := time.Now()
	c2, err := start(t, await.Context(t), c.cfg.ID, port, 2, dir, nil)
	check.Must(t, err)
	t.Logf("back after %v", time.Since(began))
	await.That(t, "returns", func() bool { return c2.count(&c2.returns) == 50 })

	if a.count(&a.returns) != 50 {
		t.Errorf("%d returns", a.count(&a.returns))
	}

	b.Close()
	c2.Close()
	if err := a.Keep(await.Context(t), "salt/job/20261121073619941881/ret/last", value.NewMap()); !errors.Is(err, ErrNoPeer) {
		t.Errorf("%v", err)
	}
}

// TestData: data about minions that one master sends reaches all masters, or one. The waiting data
// is bounded.
func TestData(t *testing.T) {
	t.Parallel()
	ms, _, _ := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	for _, m := range ms {
		await.That(t, "connections", func() bool { return m.count(&m.heard) == 2 })
	}

	if !a.SendData("", make([]byte, 5)) || !a.SendData(b.cfg.ID, make([]byte, 1<<20)) || !a.SendData("nobody", nil) {
		t.Error("no room")
	}

	await.That(t, "data", func() bool {
		return b.has(&b.heard, a.cfg.ID+" 5") && b.has(&b.heard, fmt.Sprint(a.cfg.ID, " ", 1<<20)) &&
			c.has(&c.heard, a.cfg.ID+" 5")
	})

	if a.count(&a.heard) != 2 || c.count(&c.heard) != 3 {
		t.Errorf("a has %v, c %v", a.heard, c.heard)
	}

	l := &link{wake: make(chan struct{}, 1)}
	if !l.putData(make([]byte, maxData+1)) || l.putData([]byte{1}) || l.lostControl != 1 {
		t.Errorf("the bound does not hold: %d lost", l.lostControl)
	}

	if buf, err := l.packData(nil); err != nil || len(buf) <= maxData || l.data.bytes != 0 || !l.putData([]byte{1}) {
		t.Errorf("%d bytes, %d left, %v", len(buf), l.data.bytes, err)
	}
}

// TestSubscriptionsAreToldEarly: reports of peers wait for a master that has no handler yet, and so
// does the report that one of the peers is lost.
func TestSubscriptionsAreToldEarly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	addr := netip.MustParseAddr("10.0.0.1")
	a.Subscribed(Subs{addr: 2})
	b, err := open(t, await.Context(t), ids[1], port, 1, dir, func(c *Config) { c.Peers = ids[:1] })
	check.Must(t, err)
	waits := func(like any) func() bool {
		return func() bool {
			b.news.mu.Lock()
			defer b.news.mu.Unlock()
			return slices.ContainsFunc(b.news.waiting,
				func(n news) bool { return fmt.Sprintf("%T", n.msg) == fmt.Sprintf("%T", like) })
		}
	}

	await.That(t, "the first report", waits(subsMsg{}))
	await.That(t, "a look at a", func() bool { b.Pool.mu.Lock(); defer b.Pool.mu.Unlock(); return b.aliveAtTick[a.cfg.ID] })
	cut := time.Now()
	a.CutOff([]Cut{{From: addr, Since: cut.Add(-20 * time.Second), Until: cut.Add(40 * time.Second), Crowd: 1}})
	await.That(t, "a cut", waits(cutMsg{}))
	a.Subscribed(Subs{addr: 9})
	await.That(t, "the last report", func() bool {
		b.news.mu.Lock()
		defer b.news.mu.Unlock()
		m, _ := b.news.waiting[len(b.news.waiting)-1].msg.(subsMsg)
		return m.subs[addr] == 9
	})

	a.Close()
	await.That(t, "the loss", waits(nil))
	if b.count(&b.told) != 0 {
		t.Errorf("told before it serves: %v", b.told)
	}

	check.Must(t, b.Serve(hears{b}))
	id := ids[0]
	if len(b.told) != 3 || b.told[1] != "subs "+id+" 9" || b.told[2] != "lost "+id+" 0" {
		t.Fatalf("told %v", b.told)
	}

	f := strings.Fields(b.told[0]) // cut, its age, what is left of it, by whom, how many
	age, err1 := time.ParseDuration(f[1])
	left, err2 := time.ParseDuration(f[2])
	waited := time.Since(cut) + time.Second // they are rounded
	if err1 != nil || err2 != nil || f[0] != "cut" || f[3] != id || f[4] != "1" ||
		age < 20*time.Second || age > 20*time.Second+waited || left > 40*time.Second || left < 40*time.Second-waited {
		t.Errorf("told %q, %s after the cut", b.told[0], time.Since(cut))
	}

	var d newsDesk // the bound
	p := &Pool{}
	for i := range 2 * maxNews {
		d.deliver(p, news{peer: id, msg: cutMsg{}})
		d.deliver(p, news{peer: id, msg: subsMsg{Subs{addr: i}}})
	}

	if last := d.waiting[len(d.waiting)-1]; len(d.waiting) > maxNews+1 || last.msg.(subsMsg).subs[addr] != 2*maxNews-1 {
		t.Errorf("%d wait, the last is %+v", len(d.waiting), last)
	}
}

// TestSubscriptionsAreTold: peers know which minions subscribe where, also a peer that connects
// later, and learn when a peer is lost.
func TestSubscriptionsAreTold(t *testing.T) {
	t.Parallel()
	ms, _, _ := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	s := Subs{netip.MustParseAddr("10.0.0.1"): 2, netip.MustParseAddr("2001:db8::1"): 5}
	a.Subscribed(s)
	now := time.Now()
	a.CutOff([]Cut{{
		From:  netip.MustParseAddr("10.0.0.1"),
		Since: now.Add(-7 * time.Second),
		Until: now.Add(50 * time.Second),
		Crowd: 4,
	}})

	for _, m := range []*member{b, c} {
		await.That(t, "what a tells", func() bool {
			return m.has(&m.told, "subs "+a.cfg.ID+" 7") && m.has(&m.told, "cut 7s 50s "+a.cfg.ID+" 4")
		})
	}

	if a.count(&a.told) != 0 {
		t.Errorf("a was told %v", a.told)
	}

	for _, m := range []*member{b, c} {
		await.That(t, "a look at a",
			func() bool { m.Pool.mu.Lock(); defer m.Pool.mu.Unlock(); return m.aliveAtTick[a.cfg.ID] })
	}

	a.Close()
	for _, m := range []*member{b, c} {
		await.That(t, "the loss of a", func() bool { return m.has(&m.told, "lost "+a.cfg.ID+" 0") })
	}

	for _, bad := range []any{value.NewMap("subs", make([]byte, 19)), value.NewMap(), []any{},
		value.NewMap("subs", append(make([]byte, 16), 0xff, 0xff, 0xff, 0xff))} {
		packed, err := msgpack.Marshal(bad, msgpack.Modern)
		check.Must(t, err)
		if s, err := parseSubs(packed); err == nil {
			t.Errorf("%v gave %v", bad, s)
		}

		if cuts, err := parseCuts(packed, time.Now()); err == nil {
			t.Errorf("%v gave %v", bad, cuts)
		}
	}
}
