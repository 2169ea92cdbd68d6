package launch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/jobs"
	"saltern/master/target"
	"saltern/master/value"
	"saltern/test/check"
)

// launcher makes one above a job cache on the disk, whose jobs go to nobody.
func launcher(t *testing.T) *Launcher {
	t.Helper()
	return launcherOn(t, filepath.Join(t.TempDir(), "jobs"))
}

// launcherOn makes one above the job cache of a folder.
func launcherOn(t *testing.T, folder string) *Launcher {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cache, err := jobs.Open(jobs.Config{Dir: folder}, log)
	check.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		check.Must(t, cache.Close(ctx))
	})

	return New(Config{
		Targets:   &Targets{Accepted: func() []string { return []string{"web1"} }},
		Jobs:      cache,
		Fire:      func(string, *value.Map) {},
		Publish:   func(context.Context, *value.Map, []string) error { return nil },
		Problems:  untold{},
		QuotaFile: filepath.Join(t.TempDir(), "quotas.json"),
		Now:       time.Now,
		Log:       log,
		Quiet:     log,
	})
}

// untold is problems that nobody is told of.
type untold struct{}

func (untold) Report(control.Fault, error) {}

const aJID = "20261123011500123456"

// plain is a load of a user.
func plain(user, fun, jid string) *value.Map {
	return value.NewMap("fun", fun, "arg", []any{}, "tgt", "web1", "tgt_type", "glob", "ret", "", "jid", jid,
		"user", user)
}

// start starts a job of somebody with all rights, or without (limited).
func (l *Launcher) begin(t *testing.T, user, fun, jid string, limited bool) error {
	t.Helper()
	j, err := l.New(t.Context(), plain(user, fun, jid))
	check.Must(t, err)
	if limited {
		check.Must(t,
			l.Permit(target.NewEffort(t.Context()), j,
				Caller{User: user, Account: "ldap/" + user, Permissions: []any{".*"}}))
	}
	return l.Start(t.Context(), j)
}

func (l *Launcher) kept(t *testing.T, jid string) string {
	t.Helper()
	load, err := l.cfg.Jobs.Load(t.Context(), jid)
	check.Must(t, err)
	return load.Str("fun") + " of " + load.Str("user")
}

// TestLearnKeepsTheHigherRank: of jobs with one id, that of the higher rank is kept,
// whether it was started here or at another master, before or after.
func TestLearnKeepsTheHigherRank(t *testing.T) {
	marks := map[string][]any{
		"alice": {jobs.ChosenField, true, jobs.AccountField, "ldap/alice"},
		"bob":   {jobs.ChosenField, true, jobs.AccountField, "ldap/bob"},
		"root":  {jobs.ChosenField, true},
		"other": nil, // its master has made the id
	}

	for _, c := range []struct{ here, there, want string }{
		{"alice", "root", "b.b of root"}, {"alice", "other", "b.b of other"}, {"root", "other", "b.b of other"},
		{"root", "alice", "a.a of root"}, {"alice", "bob", "a.a of alice"}, {"root", "root", "a.a of root"},
	} {
		t.Run(c.here+" here, "+c.there+" there", func(t *testing.T) {
			l := launcher(t)
			check.Must(t, l.begin(t, c.here, "a.a", aJID, c.here != "root"))
			event := plain(c.there, "b.b", aJID)
			event.Update(value.NewMap(marks[c.there]...))
			event.Set("minions", []string{"web1"})
			check.Must(t, l.Learn(t.Context(), aJID, event, func() error {
				_, err := l.cfg.Jobs.Stage(t.Context(), aJID, event, []string{"web1"})
				return err
			}))

			if got := l.kept(t, aJID); got != c.want {
				t.Errorf("kept is %s, want %s", got, c.want)
			}

			if err := l.begin(t, "eve", "c.c", aJID, true); err == nil {
				t.Error("a third one takes the id")
			}
		})
	}
}

// TestClaimsOfManyAtOnce: however many choose an id at once, here and at other masters, one
// of them has it, all parts of his job are started, and nothing is left of the claims.
func TestClaimsOfManyAtOnce(t *testing.T) {
	l := launcher(t)
	users := []string{"alice", "bob", "carl"}
	for round := range 10 {
		jid := fmt.Sprintf("2026112301150012340%d", round)
		var wg sync.WaitGroup
		errs := make([]error, 30)
		for i := range errs {
			wg.Go(func() { errs[i] = l.begin(t, users[i%3], "a.a", jid, true) })
		}

		wg.Wait()
		kept := l.kept(t, jid)
		for i, err := range errs {
			if mine := kept == "a.a of "+users[i%3]; mine != (err == nil) {
				t.Errorf("%s, and %s: %v", kept, users[i%3], err)
			}
		}
	}

	if len(l.claims.open) != 0 {
		t.Errorf("%d claims are left", len(l.claims.open))
	}
}

// TestClaimThatIsRefused takes nothing from who has the id: his next part is started while
// others ask for it all the time.
func TestClaimThatIsRefused(t *testing.T) {
	l := launcher(t)
	check.Must(t, l.begin(t, "alice", "a.a", aJID, true))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if l.begin(t, "bob", "a.a", aJID, true) == nil {
						t.Error("bob has alice's id")
						return
					}
				}
			}
		})
	}

	for range 20 {
		if err := l.begin(t, "alice", "a.a", aJID, true); err != nil {
			t.Error(err)
		}
	}

	close(stop)
	wg.Wait()
}

// TestIDOfABrokenLoad: a job whose load a power cut has left broken keeps its id. Who could
// take that would have the returns for his own.
func TestIDOfABrokenLoad(t *testing.T) {
	for name, text := range map[string]string{
		"empty":  "",
		"torn":   "\x83\xa3fun\xa9test.",
		"no map": "\x93\x01\x02\x03",
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			folder, err := jobs.Folder(cache, "", aJID)
			check.Must(t, err)
			check.Must(t, os.MkdirAll(folder, 0o700))
			check.Must(t, os.WriteFile(filepath.Join(folder, ".load.p"), []byte(text), 0o600))
			l := launcherOn(t, cache)
			if l.begin(t, "bob", "a.a", aJID, true) == nil {
				t.Error("bob has the id of a job that may be alice's")
			}

			if l.IsFreeJID(t.Context(), aJID) {
				t.Error("the id counts as free")
			}

			if !l.MayReturn(t.Context(), aJID, "web1") {
				t.Error("a return is refused")
			}
		})
	}
}

// TestNoCacheOfAnothersJob: who may have no record of his own job cannot take that of
// another one away.
func TestNoCacheOfAnothersJob(t *testing.T) {
	l := launcher(t)
	l.cfg.Limits.Fields = []string{"nocache"}
	check.Must(t, l.begin(t, "root", "a.a", aJID, false))
	load := plain("alice", "b.b", aJID)
	load.Set("kwargs", value.NewMap("nocache", true))
	j, err := l.New(t.Context(), load)
	check.Must(t, err)
	check.Must(t, l.Permit(nil, j, Caller{User: "alice", Account: "ldap/alice", Permissions: []any{".*"}}))

	if l.Start(t.Context(), j) == nil {
		t.Error("alice has root's id")
	}

	if stored, err := l.cfg.Jobs.SaveReturn(t.Context(),
		jobs.Return{JID: aJID, ID: "web1", Data: value.NewMap("return", true)}); !stored || err != nil {
		t.Errorf("a return of root's job is not kept: %v, %v", stored, err)
	}
}
