package web

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// processorTime returns the time that this process has used of processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fillHistory writes a run of states of each minion and day into the history of a master that does not run
// yet: of 40 states one in twenty changes something, and one in fifty fails.
func fillHistory(t *testing.T, dir string, minions []string, days int) {
	t.Helper()
	store, err := history.Open(history.Config{Dir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)
	for day := days; day > 0; day-- {
		at := time.Now().Add(-time.Duration(day)*24*time.Hour + time.Hour)
		for i, id := range minions {
			s := summary.Summary{Function: "state.apply", OK: 38, Changed: 1, Failed: 0, Result: summary.Changed}
			state := summary.State{ID: fmt.Sprint("state ", i%40), Function: "file.managed", Name: "/etc/x", Duration: time.Second}
			switch {
			case i%50 == 0:
				s.Failed, s.Result = 1, summary.Failed
				s.FailedStates = []summary.State{state}
			case i%20 == 0:
				s.ChangedStates = []summary.State{state}
			default:
				s.Changed, s.OK, s.Result = 0, 40, summary.OK
			}
			s.Slowest = []summary.State{state}
			check.Must(t, store.Append(history.Run{
				Minion:   id,
				JID:      jobs.FromTime(at),
				User:     "alice",
				Function: "state.apply",
				Time:     at.Add(time.Duration(i) * time.Millisecond),
				Summary:  s,
				Return:   []byte("\x83\xa6return\x80\xa7retcode\x00\xa7success\xc3"),
			}))
		}
	}
	check.Must(t, store.Close())
}

// TestPagesOfManyMinions opens each page of the console with a whole master behind it. SALTERN_PAGES=2000 has so many
// minions and 30 days of history, and tells the processor time of each page, which is that of a page on an
// idle machine.
func TestPagesOfManyMinions(t *testing.T) {
	n, days := 60, 2
	measured := os.Getenv("SALTERN_PAGES") != ""
	if measured {
		var err error
		n, err = strconv.Atoi(os.Getenv("SALTERN_PAGES"))
		check.Must(t, err)
		days = 30
	}

	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check.Must(t, os.MkdirAll(filepath.Join(dir, "pki", "minions"), 0o700))
	check.Must(t, os.MkdirAll(filepath.Join(dir, "static"), 0o755))
	key := []byte(mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7")))
	var minions []string
	for i := range n {
		minions = append(minions, fmt.Sprintf("web%04d.example.com", i))
		check.Must(t, os.WriteFile(filepath.Join(dir, "pki", "minions", minions[i]), key, 0o600))
	}
	fillHistory(t, filepath.Join(dir, "cache", "history"), minions, days)

	a := mastertest.ServeAPI(t, mastertest.StartIn(t, dir, mastertest.APIOptions+
		"rest_cherrypy: {host: 127.0.0.1, port: 1, disable_ssl: true, console: true}\n"))
	await.That(t, "the keys are read", func() bool { return len(a.Parts.Keys.Accepted()) == n })
	for i, id := range minions {
		grains := value.NewMap("os", "Debian", "osfinger", "Debian-12", "saltversion", "3008.3", "id", id, "ipv4", []any{"10.0.0.1"},
			"num_cpus", int64(i%16), "roles", []any{"web"})
		_, err := a.Parts.Cache.Set(cache.Grains, id, grains)
		check.Must(t, err)
	}
	newest := jobs.FromTime(time.Now())
	for i := range n / 4 {
		load := value.NewMap("fun", "state.apply", "arg", []any{}, "tgt", "*", "tgt_type", "glob", "user", "alice")
		jid := newest
		if i > 0 {
			jid = jobs.FromTime(time.Now().Add(-time.Duration(i) * time.Minute))
		}
		_, err := a.Parts.Jobs.Stage(t.Context(), jid, load, minions)
		check.Must(t, err)
	}

	b := a.OpenBrowser().LogIn("alice")
	for _, path := range []string{"/", "/fleet", "/minions", "/minions?result=failed&sort=-run", "/minions?tgt=os:Debian&type=grain",
		"/minions.csv", "/minion?id=" + minions[0], "/jobs", "/jobs?failed=1", "/jobs?minion=" + minions[0], "/job?jid=" + newest,
		"/run", "/run?look=1&tgt=*", "/keys?state=minions", "/schedule", "/saved", "/audit", "/tokens", "/files"} {
		const times = 5
		var first, total time.Duration
		for i := range times {
			before := processorTime(t)
			if code, text := b.Get(path); code != 200 {
				t.Fatalf("%s: %d %.500s", path, code, text)
			}
			took := processorTime(t) - before
			if i == 0 {
				first = took
			}
			total += took
		}
		if measured {
			t.Logf("%-45s %4d ms, the first time %4d ms", path, (total-first).Milliseconds()/(times-1), first.Milliseconds())
		}
	}
}
