package resources

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/target"
	"saltern/master/value"
	"saltern/test/check"
)

// registry returns a Registry on the folder dir. Its clock advances by a second with each reading.
func registry(t testing.TB, dir string, accepted ...string) *Registry {
	t.Helper()
	c, err := cache.Open(dir, 1<<20, keys.ValidID)
	check.Must(t, err)
	now := time.Unix(1e9, 0)
	var mu sync.Mutex
	return New(Config{
		Cache:      c,
		Accepted:   func() []string { return accepted },
		KeepGrains: true,
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Second)
			return now
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// types returns the resources of one type.
func types(typ string, ids ...string) *value.Map { return value.NewMap(typ, value.List(ids)) }

// managers returns ID=MINION of all resources.
func managers(r *Registry) string {
	var out []string
	for _, x := range r.All() {
		out = append(out, x.ID+"="+x.Minion)
	}
	return strings.Join(out, " ")
}

func wantManagers(t *testing.T, r *Registry, want string) {
	t.Helper()
	if got := managers(r); got != want {
		t.Errorf("resources %q, want %q", got, want)
	}
}

// TestClockThatIsBehindTakesNoResource: a minion that registers the id of another one at a master
// whose clock is behind does not get it, there or at any other master.
func TestClockThatIsBehindTakesNoResource(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, registry(t, dir, "a", "b").Register("b", types("dummy", "d1"), nil))

	behind := registry(t, dir, "a", "b")
	behind.cfg.Now = func() time.Time { return time.Unix(0, 0) }
	check.Must(t, behind.Register("a", types("dummy", "d1", "d2"), nil))
	wantManagers(t, behind, "d1=b d2=a")
	wantManagers(t, registry(t, dir, "a", "b"), "d1=b d2=a")
}

// TestFirstMinionKeepsAResource: an id belongs to the minion that registered it first, also after it
// has registered again and after a restart, until it no longer registers the id.
func TestFirstMinionKeepsAResource(t *testing.T) {
	dir := t.TempDir()
	r := registry(t, dir, "a", "b")
	check.Must(t, r.Register("b", types("dummy", "d1"), nil))
	check.Must(t, r.Register("a", types("dummy", "d1", "d2"), nil))
	check.Must(t, r.Register("b", types("ssh", "d1"), nil))
	wantManagers(t, r, "d1=b d2=a")
	if got := r.Managed("a"); !slices.Equal(got, []string{"d2"}) {
		t.Errorf("a manages %v", got)
	}

	r = registry(t, dir, "a", "b")
	wantManagers(t, r, "d1=b d2=a")
	check.Must(t, r.Register("b", nil, nil))
	wantManagers(t, r, "d1=a d2=a")
	wantManagers(t, registry(t, dir, "b"), "")
	wantManagers(t, registry(t, dir, "a", "d2"), "d1=a")
	if got := registry(t, dir, "a").Manager("nosuch"); got != "" {
		t.Errorf("a resource that nobody has is managed by %q", got)
	}
}

// TestForgottenMinionHasNoResources: with the cache of a minion go its resources.
func TestForgottenMinionHasNoResources(t *testing.T) {
	r := registry(t, t.TempDir(), "a")
	check.Must(t, r.Register("a", types("dummy", "d1"), nil))
	wantManagers(t, r, "d1=a")
	check.Must(t, r.cfg.Cache.Forget("a"))
	wantManagers(t, r, "")
}

// TestTooManyResourcesAreRefused: the registration before stays.
func TestTooManyResourcesAreRefused(t *testing.T) {
	r := registry(t, t.TempDir(), "a")
	check.Must(t, r.Register("a", types("dummy", "d1"), nil))
	many := make([]string, maxPerMinion+1)
	for i := range many {
		many[i] = fmt.Sprintf("r%d", i)
	}
	if err := r.Register("a", types("dummy", many...), nil); !errors.Is(err, errTooMany) {
		t.Errorf("%d resources: %v", len(many), err)
	}
	wantManagers(t, r, "d1=a")
	check.Must(t, r.Register("a", types("dummy", many[1:]...), nil))
	if n := r.Stats().Resources; n != maxPerMinion {
		t.Errorf("%d resources are known", n)
	}
}

// TestLargeGrainsAreNotKept, and the resource is.
func TestLargeGrainsAreNotKept(t *testing.T) {
	r := registry(t, t.TempDir(), "a")
	small := value.NewMap("dummy:d1", value.NewMap("os", "x"), "dummy:other", value.NewMap("os", "y"), "ssh:d1", "text")
	check.Must(t, r.Register("a", types("dummy", "d1"), small))
	res := target.Resource{ID: "d1", Minion: "a"}
	if g, ok := r.Grains(res, "dummy"); !ok || g.Str("os") != "x" {
		t.Errorf("grains %v", g)
	}
	for _, typ := range []string{"ssh", "", "nosuch"} {
		if g, ok := r.Grains(res, typ); ok {
			t.Errorf("grains of type %q: %v", typ, g)
		}
	}

	large := value.NewMap("dummy:d1", value.NewMap("x", strings.Repeat("x", maxGrains)))
	check.Must(t, r.Register("a", types("dummy", "d1"), large))
	if _, ok := r.Grains(res, "dummy"); ok {
		t.Error("grains above the bound are kept")
	}
	wantManagers(t, r, "d1=a")
}

// TestMalformedRegistrationsNameNoResource: whatever a minion sends, only valid ids are resources.
func TestMalformedRegistrationsNameNoResource(t *testing.T) {
	r := registry(t, t.TempDir(), "a")
	bad := value.NewMap("list", []any{"", "..", "a/b", "a,b", "*", int64(1), nil, value.NewMap(), strings.Repeat("x", 300), "ok", "ok"},
		"text", "d1", "map", value.NewMap("d1", true), "", []any{"d2"}, "with:colon", []any{"d3"}, "with space", []any{"d4"})
	bad.Set(int64(5), []any{"d5"})
	check.Must(t, r.Register("a", bad, value.NewMap("list:ok", value.NewMap("a", int64(1)))))
	wantManagers(t, r, "ok=a")
	if r.Stats().Refused == 0 {
		t.Error("nothing counts as refused")
	}
}

// TestManyMinionsRegisterAtOnce: each id has one owner, and nothing is lost.
func TestManyMinionsRegisterAtOnce(t *testing.T) {
	minions := make([]string, 40)
	for i := range minions {
		minions[i] = fmt.Sprintf("m%02d", i)
	}
	r := registry(t, t.TempDir(), minions...)
	var wg sync.WaitGroup
	for _, id := range minions {
		wg.Go(func() {
			for range 5 {
				if err := r.Register(id, types("dummy", "shared", "of-"+id), nil); err != nil {
					t.Error(err)
				}
				_ = r.Managed(id)
			}
		})
	}
	wg.Wait()
	if n := len(r.All()); n != len(minions)+1 {
		t.Errorf("%d resources", n)
	}
}

// TestIndexIsThatOfARestart: whatever minions register, forget and are accepted, in whatever order,
// and whatever another master of the cluster has taken, the index is the one that a master reads
// from the same bank at its start.
func TestIndexIsThatOfARestart(t *testing.T) {
	for run := range 40 {
		random := rand.New(rand.NewPCG(45, uint64(run)))
		dir := t.TempDir()
		accepted := []string{"a", "b", "c"}
		r := registry(t, dir)
		r.cfg.Accepted = func() []string { return accepted }

		for range 60 {
			minion := string(rune('a' + random.IntN(6)))
			switch random.IntN(8) {
			case 0: // keys are accepted and deleted; some minions have the id of a resource
				accepted = nil
				for _, id := range []string{"a", "b", "c", "d", "e", "f", "r3", "r5"} {
					if random.IntN(3) > 0 {
						accepted = append(accepted, id)
					}
				}
			case 1:
				check.Must(t, r.cfg.Cache.Forget(minion))
			case 2:
				check.Must(t, r.Register(minion, nil, nil))
			default:
				var ids []string
				for range random.IntN(5) {
					ids = append(ids, fmt.Sprint("r", random.IntN(8)))
				}
				check.Must(t, r.Register(minion, value.NewMap("x", value.List(ids), "y", []any{"r1"}), nil))
			}

			if random.IntN(3) > 0 {
				continue
			}
			fresh := registry(t, dir, accepted...)
			if got, want := fmt.Sprint(r.All(), r.claimCount()), fmt.Sprint(fresh.All(), fresh.claimCount()); got != want {
				t.Fatalf("run %d: resources %s, after a restart %s", run, got, want)
			}
			for _, id := range append(accepted, "g") {
				if got, want := r.Managed(id), fresh.Managed(id); !slices.Equal(got, want) {
					t.Fatalf("run %d: %s manages %v, after a restart %v", run, id, got, want)
				}
			}
		}
	}
}

// TestMastersOfAClusterKnowTheSameResources, in whatever order the entries of minions reach them.
func TestMastersOfAClusterKnowTheSameResources(t *testing.T) {
	minions := []string{"a", "b", "c", "d"}
	for run := range 30 {
		random := rand.New(rand.NewPCG(46, uint64(run)))
		here := registry(t, t.TempDir(), minions...)
		there := registry(t, t.TempDir(), minions...)
		for range 20 {
			check.Must(t, here.Register(minions[random.IntN(4)], types("x", fmt.Sprint("r", random.IntN(4)), fmt.Sprint("r", random.IntN(4))), nil))
			for _, i := range random.Perm(4)[:random.IntN(4)] {
				if entry, ok := here.cfg.Cache.Get(cache.Resources, minions[i]); ok {
					_, err := there.cfg.Cache.Set(cache.Resources, minions[i], entry)
					check.Must(t, err)
					_ = there.All()
				}
			}
		}

		for _, i := range random.Perm(4) {
			if entry, ok := here.cfg.Cache.Get(cache.Resources, minions[i]); ok {
				_, err := there.cfg.Cache.Set(cache.Resources, minions[i], entry)
				check.Must(t, err)
			}
		}
		wantManagers(t, there, managers(here))
	}
}
