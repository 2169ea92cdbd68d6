package keys_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/check"
)

var (
	stranger = netip.MustParseAddr("203.0.113.9")
	site     = netip.MustParseAddr("198.51.100.7")
	other    = netip.MustParseAddr("2001:db8::1")
)

func register(s *keys.Store, from netip.Addr, id string, n int) error {
	old, _ := s.Lookup(id)
	return s.SwapFrom(from, id, old, keys.Pending, pem(nil, n))
}

// waits reports whether all of these ids are pending.
func waits(t *testing.T, s *keys.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if st := state(s, id); st != keys.Pending {
			t.Errorf("%s is %s", id, st)
		}
	}
}

func few(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(prefix, i))
	}
	return ids
}

// TestFinding15OneStranger: a source that offers more keys than it may have loses its own oldest
// keys. No other source loses one, on a local disk as on a volume.
func TestFinding15OneStranger(t *testing.T) {
	for name, cfg := range map[string]keys.Config{
		"disk":   {},
		"volume": keys.OnVolume(keys.Config{Incoming: "10.0.0.1"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.PendingPerSource, cfg.NoNotify = 20, true
			dir := t.TempDir()
			s := open(t, dir, cfg)
			check.Must(t, s.Put("good", keys.Accepted, pem(t, 1)))
			check.Must(t, s.Put("bad", keys.Rejected, pem(t, 2)))

			for i, id := range few("site", 5) {
				check.Must(t, register(s, site, id, 10+i))
			}

			for i, id := range few("evil", 60) {
				check.Must(t, register(s, stranger, id, 100+i))
			}

			check.Must(t, register(s, other, "late", 3))
			waits(t, s, append(few("site", 5), "late", "evil59", "evil40")...)
			if n := s.Count(keys.Pending); n != 26 || state(s, "evil39") != keys.None {
				t.Errorf("%d wait; evil39 is %s", n, state(s, "evil39"))
			}

			if state(s, "good") != keys.Accepted || state(s, "bad") != keys.Rejected {
				t.Error("a key that was decided on is gone")
			}

			if st := s.Pendings(); st.Evicted != 40 || st.Worst != stranger.String() || st.Keys != 20 ||
				st.Sources != 3 {
				t.Errorf("%+v", st)
			}

			if again := open(t, dir, cfg); again.Count(keys.Pending) != 26 {
				t.Errorf("%d keys after a restart", again.Count(keys.Pending))
			}
		})
	}
}

// TestFinding15OneKey: one public key cannot be pending under any number of ids.
func TestFinding15OneKey(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), keys.Config{})
	for i, id := range few("evil", 100) {
		if err := register(s, stranger, id, 1); (err != nil) != (i >= keys.DefaultPendingPerKey) ||
			err != nil && !errors.Is(err, keys.ErrPendingFull) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	check.Must(t, register(s, site, "minion", 1)) // the minion whose public key he has seen
	check.Must(t, s.Move("evil0", keys.Accepted)) // an image with a key in it: accepted ones make room
	check.Must(t, register(s, stranger, "evil99", 1))
}

// TestFinding15Rate: a stranger cannot write more files than a volume can bear.
func TestFinding15Rate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(),
		keys.At(keys.Config{PendingRate: 2, PendingBurst: 10, MaxPending: 1000}, func() time.Time { return now }))
	n := 0
	try := func(store func(id string, n int) error) (in int) {
		for range 30 {
			n++
			switch err := store(fmt.Sprint("evil", n), n); {
			case err == nil:
				in++
			case !errors.Is(err, keys.ErrPendingFull) || !strings.Contains(err.Error(), "203.0.113.9"):
				t.Fatal(err)
			}
		}

		return in
	}

	pending := func(id string, n int) error { return register(s, stranger, id, n) }
	if in := try(pending); in != 10 {
		t.Errorf("%d at once", in)
	}

	now = now.Add(2 * time.Second)
	if in := try(pending); in != 4 {
		t.Errorf("%d after two seconds", in)
	}

	// Keys that autoreject_file rejects, and denied keys, also count against the rate limit.
	now = now.Add(2 * time.Second)
	if in := try(func(id string, n int) error {
		return s.SwapFrom(stranger, id, keys.Entry{}, keys.Rejected,
			pem(t, n))
	}); in != 4 {
		t.Errorf("%d rejected", in)
	}

	now = now.Add(2 * time.Second)
	if in := try(func(id string, n int) error { return s.DenyFrom(stranger, id, pem(t, n)) }); in != 4 {
		t.Errorf("%d denied", in)
	}

	check.Must(t, register(s, site, "minion", 9999))
}

// TestFinding15Full: when there is no room for a new key, the largest source loses a key. A source
// with few keys never does.
func TestFinding15Full(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), keys.Config{MaxPending: 60})
	for i, id := range few("site", 10) {
		check.Must(t, register(s, site, id, i))
	}

	for i, id := range few("evil", 80) {
		check.Must(t, register(s, stranger, id, 100+i))
	}

	for i, id := range few("new", 34) {
		check.Must(t, register(s, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), id, 300+i))
	}

	waits(t, s, append(few("site", 10), few("new", 34)...)...)
	if n := s.Count(keys.Pending); n != 60 {
		t.Errorf("%d wait", n)
	}

	if err := register(s, other, "late", 9999); !errors.Is(err, keys.ErrPendingFull) {
		t.Errorf("all have few keys: %v", err)
	}
}

// TestFinding15LookedAt: a key whose fingerprint an administrator has read is not evicted for some
// time.
func TestFinding15LookedAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := open(t, t.TempDir(), keys.At(keys.Config{PendingPerSource: 5}, func() time.Time { return now }))
	for i, id := range few("m", 5) {
		check.Must(t, register(s, site, id, i))
	}

	_, err := s.Finger("m0", "sha256")
	check.Must(t, err)
	for i, id := range few("n", 20) {
		check.Must(t, register(s, site, id, 100+i))
	}

	waits(t, s, "m0", "n19")
	now = now.Add(time.Hour)
	check.Must(t, register(s, site, "last", 999))
	if st := state(s, "m0"); st != keys.None {
		t.Errorf("m0 is %s", st)
	}
}

// TestFinding15Gateway: more new minions sign in from one address than may be pending. Each signs
// in again until an administrator has accepted it.
func TestFinding15Gateway(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := open(t, t.TempDir(),
		keys.At(keys.Config{PendingPerSource: 60, PendingRate: 5, PendingBurst: 50}, func() time.Time { return now }))
	ids := few("m", 300)
	for round := 0; s.Count(keys.Accepted) < len(ids); round++ {
		if round > 100 {
			t.Fatalf("%d accepted after %d rounds", s.Count(keys.Accepted), round)
		}

		for i, id := range ids {
			if state(s, id) != keys.None {
				continue
			}
			if err := register(s, site, id, i); err != nil && !errors.Is(err, keys.ErrPendingFull) {
				t.Fatal(err)
			}
		}

		for _, id := range s.List(keys.Pending) {
			check.Must(t, s.Move(id, keys.Accepted))
		}

		now = now.Add(10 * time.Second) // acceptance_wait_time
	}
}

// TestFinding15ThreeMasters: a stranger who uses all masters of a cluster at once has a share at
// each of them, and the keys of minions stay.
func TestFinding15ThreeMasters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var stores []*keys.Store
	for i := range 3 {
		s := open(t, dir,
			keys.OnVolume(keys.Config{
				Incoming:         fmt.Sprint("10.0.0.", i),
				NoNotify:         true,
				ScanEvery:        10 * time.Millisecond,
				PendingPerSource: 20,
			}))

		s.FileAfter(10*time.Millisecond, time.Hour, time.Hour)
		stores = append(stores, s)
		run(t, s)
	}

	for i, id := range few("site", 9) {
		check.Must(t, register(stores[i%3], site, id, i))
	}

	var wg sync.WaitGroup
	for m, s := range stores {
		wg.Go(func() {
			for i := range 60 {
				if err := register(s, stranger, fmt.Sprintf("evil%d-%d", m, i), 1000*(m+1)+
					i); err != nil && !errors.Is(err, keys.ErrPendingFull) {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	for _, s := range stores {
		within(t, 30*time.Second, "all is seen", func() bool { return s.Count(keys.Pending) == 3*20+9 })
		waits(t, s, few("site", 9)...)
	}
}

// TestFinding15Decided: a decision that was made while a key was being evicted stays in force.
func TestFinding15Decided(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, keys.Config{PendingPerSource: 5, NoNotify: true})
	admin := open(t, dir, keys.Config{NoNotify: true})
	for i, id := range few("m", 5) {
		check.Must(t, register(s, site, id, i))
	}
	check.Must(t, admin.Rescan())
	check.Must(t, admin.Move("m0", keys.Accepted)) // the store does not know of it yet
	check.Must(t, register(s, site, "n", 100))
	if got := where(t, dir, "m0"); got != "accepted " {
		t.Errorf("m0 is in %q", got)
	}
}
