package web

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// livePages are the pages that read themselves anew.
func livePages() []string {
	return []string{"/minions", "/minions?tgt=os:Debian&type=grain", "/minion?id=web1", "/fleet", "/jobs", "/"}
}

// jobsOf counts the jobs in a master's job cache.
func jobsOf(t *testing.T, a *mastertest.API) (n int) {
	t.Helper()
	check.Must(t, a.Parts.Jobs.Each(t.Context(), func(jobs.Job) error { n++; return nil }))
	return n
}

// TestLivePagesLeaveNoJobs: whatever live pages ask for, however often, is for them alone: neither
// the job cache nor events have it.
func TestLivePagesLeaveNoJobs(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	a.AcceptedMinion("web1", "min7").Pillar("grains", value.NewMap("os", "Debian", "hush", "opensesame"))
	heard := a.Parts.Bus.Subscribe("test", 10_000, event.Prefix("salt/run/"))
	defer heard.Close()
	b := a.OpenBrowser().LogIn("alice")

	before := jobsOf(t, a)
	for range 20 {
		for _, path := range livePages() {
			if code, text := b.Get(path); code != 200 {
				t.Fatalf("%s: %d %.500s", path, code, text)
			}
		}
	}
	if after := jobsOf(t, a); after != before {
		t.Errorf("%d jobs, and after the pages %d", before, after)
	}

	ends := 0
	for len(heard.C) > 0 {
		e := <-heard.C
		if !strings.HasSuffix(e.Tag, "/ret") {
			continue
		}
		ends++
		if e.Data.Value("return") != runner.NotForAll {
			t.Errorf("%s: %.500s", e.Data.Str("fun"), value.Repr(e.Data.Value("return")))
		}
	}
	if ends < 200 {
		t.Errorf("%d runs", ends)
	}
}

// slowFleet makes fleet.last slow, and returns how many calls were at work at once at most.
func slowFleet(a *mastertest.API) (most func() int) {
	var mu sync.Mutex
	now, peak := 0, 0
	a.Parts.Runs.Table.Add("fleet.last", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		mu.Lock()
		now++
		peak = max(peak, now)
		mu.Unlock()
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		return value.NewMap("minions", value.NewMap(), "next", ""), nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return peak
	}
}

// TestLivePagesAtOnce: 50 browsers that refresh at the same moment all get their page, and leave the places of
// runners to others.
func TestLivePagesAtOnce(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	a.AcceptedMinion("web1", "min7")
	most := slowFleet(a)
	b := a.OpenBrowser().LogIn("alice")
	var pages sync.WaitGroup
	for range 50 {
		pages.Go(func() {
			one := &mastertest.Browser{API: a, Cookies: map[string]string{"saltern_console": b.Cookies["saltern_console"]}}
			if code, text := one.Get("/minions"); code != 200 {
				t.Errorf("%d %.500s", code, text)
			}
		})
	}
	await.That(t, "pages at work", func() bool { return most() > 1 })
	for range 3 {
		code, text, _ := a.Do("POST", "/run", `[{"client": "runner_async", "fun": "test.arg", "username": "alice", "password": "right", "eauth": "sharedsecret"}]`)
		if code != 200 {
			t.Errorf("a runner meanwhile: %d %s", code, text)
		}
	}
	pages.Wait()
	if n := most(); n < 2 || n > 16 {
		t.Errorf("%d lists at once", n)
	}
}

// TestMarkOfPagesGivesNoRights: whoever claims to be a page gets lists inline, those that he may call, and nothing
// else.
func TestMarkOfPagesGivesNoRights(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "console: true\n")
	ask := func(user, fun string) *value.Map {
		got, _ := a.AskInClear("runner", "eauth", "sharedsecret", "username", user, "password", "right", "fun", fun,
			"arg", []any{}, "kwarg", value.NewMap(), client.PageField, true, client.AnswerField, true).(*value.Map)
		return got
	}
	if got := ask("vera", "presence.minions"); got.Map("data").Map("return") == nil {
		t.Errorf("a list: %s", value.Repr(got))
	}
	if got := ask("vera", "fleet.last"); got.Map("error") == nil || got.Map("data") != nil {
		t.Errorf("without the right: %s", value.Repr(got))
	}
	if got := ask("bob", "presence.minions"); got.Map("error") == nil || got.Map("data") != nil {
		t.Errorf("without any right: %s", value.Repr(got))
	}
	got := ask("alice", "test.arg")
	if got.Str("jid") == "" || got.Map("data") != nil {
		t.Errorf("no list: %s", value.Repr(got))
	}
	if r := a.AwaitRecords(3, "runner.call"); r[2].Function != "test.arg" || r[2].JID != got.Str("jid") { // two were refused
		t.Errorf("records: %+v", r)
	}
	code, text, _ := a.Do("POST", "/run", `[{"client": "runner", "fun": "presence.minions", "`+client.PageField+
		`": true, "username": "bob", "password": "right", "eauth": "sharedsecret"}]`)
	if code != 401 {
		t.Errorf("by the API: %d %s", code, text)
	}
}
