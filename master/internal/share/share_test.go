package share

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/value"
)

// net carries messages between masters, and loses some.
type net struct {
	mu    sync.Mutex
	peers map[string]*Share
	loss  float64
	cut   map[string]bool
	mute  string // "from>to": a connection that is not there yet
	bytes int
}

func (n *net) send(from, to string, b []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, p := range n.peers {
		if id == from || to != "" && to != id || n.cut[from] || n.cut[id] || from+">"+id == n.mute ||
			rand.Float64() < n.loss {
			continue
		}
		n.bytes += len(b)
		p.Receive(from, b)
	}
	return true
}

func (n *net) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

type master struct {
	name, dir string
	net       *net
	store     *cache.Store
	stop      func()
}

func (m *master) start(t testing.TB) {
	t.Helper()
	var err error
	if m.store, err = cache.Open(m.dir, 1<<20, keys.ValidID); err != nil {
		t.Fatal(err)
	}

	s, err := New(Config{
		Store: m.store,
		Send:  func(to string, b []byte) bool { return m.net.send(m.name, to, b) },
		Log:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	m.stop = func() { cancel(); wg.Wait() }
	m.net.mu.Lock()
	m.net.peers[m.name] = s
	others := map[string]*Share{}
	for id, p := range m.net.peers {
		others[id] = p
	}
	m.net.mu.Unlock()

	for id, p := range others {
		if id != m.name {
			p.Connected(m.name)
			s.Connected(id)
		}
	}
}

func cluster(t *testing.T, names ...string) (*net, []*master) {
	n := &net{peers: map[string]*Share{}, cut: map[string]bool{}}
	var all []*master
	for _, name := range names {
		m := &master{name: name, dir: filepath.Join(t.TempDir(), name), net: n}
		m.start(t)
		all = append(all, m)
	}
	t.Cleanup(func() {
		for _, m := range all {
			m.stop()
		}
	})
	return n, all
}

func same(all []*master) bool {
	for _, m := range all {
		if m.store.Sums() != all[0].store.Sums() {
			return false
		}
	}
	return true
}

// differences tells of entries that masters have in different versions.
func differences(all []*master) string {
	every, out := map[int]bool{}, ""
	for i := range cache.Buckets {
		every[i] = true
	}

	known := map[entryKey][]string{}
	for _, m := range all {
		for _, e := range m.store.Entries(every) {
			k := entryKey{e.Bank, e.ID}
			known[k] = append(known[k], fmt.Sprintf("%s %d base %d gone %t", m.name, e.At, e.Base, e.Gone))
		}
	}

	for k, v := range known {
		at := map[string]bool{}
		for _, x := range v {
			at[strings.Fields(x)[1]] = true
		}
		if len(v) != len(all) || len(at) > 1 {
			out += fmt.Sprintf("\n%v %v", k, v)
		}
	}

	return out
}

// A change is at all masters at once.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := cluster(t, "a", "b", "c")
		defer func() {
			for _, m := range all {
				m.stop()
			}
		}()

		if _, err := all[0].store.Set(cache.Grains, "min", value.NewMap("role", "web")); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		for _, m := range all {
			if g, ok := m.store.Get(cache.Grains, "min"); !ok || g.Str("role") != "web" {
				t.Errorf("%s does not have it", m.name)
			}
		}

		if err := all[2].store.Forget("min"); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		for _, m := range all {
			if _, ok := m.store.Get(cache.Grains, "min"); ok {
				t.Errorf("%s still has it", m.name)
			}
		}
	})
}

// What a master was told while nobody heard it is fetched when it is back, also when the
// others cannot ask it in the moment in which it greets them.
func TestMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := cluster(t, "a", "b")
		defer func() {
			for _, m := range all {
				m.stop()
			}
		}()

		synctest.Wait()
		n.change(func() { n.cut["b"] = true })
		if _, err := all[1].store.Set(cache.Grains, "min", value.NewMap("role", "web")); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		n.change(func() { n.cut["b"], n.mute = false, "a>b" })
		n.peers["b"].Connected("a")
		synctest.Wait()
		n.change(func() { n.mute = "" })
		n.peers["a"].Connected("b")
		synctest.Wait()

		if _, ok := all[0].store.Get(cache.Grains, "min"); !ok {
			t.Error("a does not have what b was told")
		}
	})
}

// A master that stops tells the others what it was told in the last moment.
func TestLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := cluster(t, "a", "b")
		defer all[0].stop()
		all[1].stop()
		if _, err := all[1].store.Set(cache.Grains, "min", value.NewMap("role", "web")); err != nil {
			t.Fatal(err)
		}
		n.peers["b"].SendLast()
		synctest.Wait()
		if _, ok := all[0].store.Get(cache.Grains, "min"); !ok {
			t.Error("a does not have what b was told")
		}
	})
}

// Masters change entries at random while messages are lost, one is cut off, and one
// starts again. A comparison later all have the same, which a fourth gets as well.
func TestSameAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := cluster(t, "a", "b", "c")
		defer func() {
			for _, m := range all {
				m.stop()
			}
		}()

		for round := range 4 {
			n.mu.Lock()
			n.loss, n.cut = 0.3, map[string]bool{all[round%3].name: true}
			n.mu.Unlock()

			for i := range 400 {
				time.Sleep(time.Millisecond)
				m := all[rand.IntN(3)]
				id := fmt.Sprint("min", rand.IntN(300))
				b := []cache.Bank{cache.Grains, cache.Pillar, cache.Mine}[rand.IntN(3)]
				var err error
				switch rand.IntN(6) {
				case 0:
					err = m.store.Flush(b, id)
				case 1:
					err = m.store.Forget(id)
				case 2:
					err = m.store.Update(cache.Mine, id,
						value.NewMap(fmt.Sprint("f", rand.IntN(5)), int64(i)), rand.IntN(3) == 0)
				default:
					_, err = m.store.Set(b, id, value.NewMap("n", int64(i), "by", m.name))
				}

				if err != nil {
					t.Fatal(err)
				}
			}

			all[(round+1)%3].stop()
			all[(round+1)%3].start(t)
			n.mu.Lock()
			n.loss, n.cut = 0, map[string]bool{}
			n.mu.Unlock()

			time.Sleep(3 * compareEvery)
			if !same(all) {
				t.Fatalf("round %d: the masters differ:%s", round, differences(all))
			}
		}

		d := &master{name: "d", dir: t.TempDir(), net: n}
		d.start(t)
		all = append(all, d)
		time.Sleep(time.Second)

		if !same(all) {
			t.Error("a fourth master has not got all")
		}

		for _, id := range []string{"min1", "min2", "min3"} {
			for _, b := range []cache.Bank{cache.Grains, cache.Pillar, cache.Mine} {
				want, ok := all[0].store.Get(b, id)
				got, has := d.store.Get(b, id)
				if ok != has || ok && fmt.Sprint(want.Keys()) != fmt.Sprint(got.Keys()) {
					t.Errorf("%s of %s: %v, not %v", b, id, got, want)
				}
			}
		}
	})
}

func TestAttack16Messages(t *testing.T) {
	store, err := cache.Open(t.TempDir(), 1<<20, keys.ValidID)
	if err != nil {
		t.Fatal(err)
	}

	s, err := New(Config{
		Store: store,
		Send:  func(string, []byte) bool { return true },
		Log:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, b := range [][]byte{nil, {0xc0}, packMessage(9), packMessage(kindSum, []byte("short")),
		packMessage(kindList, make([]byte, 300)), packMessage(kindHave, "x"), packMessage(kindWant, int64(1), int64(2)),
		packMessage(kindHave, []any{"grains", "a", "b", int64(0), false, nil})} {
		if m, err := parseMessage(b); err == nil {
			t.Errorf("%x was read as %+v", b, m)
		}
		s.handle(incoming{"b", b})
	}

	if n := s.Status().Bad; n != 8 {
		t.Errorf("%d messages were refused", n)
	}

	for range 2 * cap(s.in) {
		s.Receive("b", make([]byte, 1<<20))
	}

	if s.bytes.Load() > maxIncoming || s.Status().Lost == 0 {
		t.Errorf("%d bytes wait, %+v", s.bytes.Load(), s.Status())
	}
}

func FuzzParse(f *testing.F) {
	f.Add(haveMessage([]cache.Entry{
		{Bank: cache.Mine, ID: "min", At: 5, Base: 3, Packed: []byte{0x80}},
		{Bank: cache.Grains, ID: "x", At: 1, Gone: true},
	}))

	f.Add(wantMessage([]entryKey{{cache.Grains, "min"}}))
	f.Add(sumMessage(kindSum, [cache.Buckets]uint64{1, 2}))
	f.Add(bytesMessage(kindList, []byte{1, 2}))
	f.Add(bytesMessage(kindDone, nil))
	f.Add(sumMessage(kindMeet, [cache.Buckets]uint64{1, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err == nil && (m.kind < kindHave || m.kind > kindMeet || len(m.buckets) > 8*cache.Buckets) {
			t.Errorf("%+v", m)
		}
	})
}
