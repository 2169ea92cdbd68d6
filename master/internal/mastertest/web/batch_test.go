package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// crew are scripted minions web1 to web4 that return what they get at once, and web5, which answers
// nothing.
type crew struct {
	a *mastertest.Master
	// fails are the minions that return an error. A minion that is busy answers pings alone.
	fails map[string]bool
	busy  string

	asking  sync.Mutex // held while a minion asks
	minions map[string]*mastertest.Minion

	mu  sync.Mutex
	got []string // the minions of each slice of the job, in order
}

func hireCrew(t *testing.T, a *mastertest.API, fails ...string) *crew {
	t.Helper()
	return hireCrewOf(t, a.Master, "", fails...)
}

func hireCrewOf(t *testing.T, a *mastertest.Master, busy string, fails ...string) *crew {
	t.Helper()
	c := &crew{a: a, fails: map[string]bool{}, busy: busy, minions: map[string]*mastertest.Minion{}}
	for _, id := range fails {
		c.fails[id] = true
	}

	for i := 1; i <= 5; i++ {
		id := fmt.Sprint("web", i)
		c.minions[id] = a.AcceptedMinion(id, "min7")
	}
	sub := a.Parts.Bus.Subscribe("crew", 1000, func(tag string) bool {
		return strings.HasPrefix(tag, "salt/job/") && strings.HasSuffix(tag, "/new")
	})

	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { c.work(ctx, sub) })
	t.Cleanup(func() { cancel(); work.Wait(); sub.Close() })
	return c
}

func (c *crew) work(ctx context.Context, sub *event.Subscription) {
	for {
		var e event.Event
		select {
		case e = <-sub.C:
		case <-ctx.Done():
			return
		}

		fun := e.Data.Str("fun")
		ids, _ := e.Data.Value("minions").([]string)
		if fun == "test.arg" {
			c.mu.Lock()
			c.got = append(c.got, strings.Join(ids, " "))
			c.mu.Unlock()
		}
		if fun == "saltutil.find_job" {
			continue
		}
		for _, id := range ids {
			code := 0
			if c.fails[id] && fun == "test.arg" {
				code = 1
			}
			if id != "web5" && (id != c.busy || fun == "test.ping") {
				c.ret(id, e.Data.Str("jid"), fun, code)
			}
		}
	}
}

// ret has a minion return a job.
func (c *crew) ret(id, jid, fun string, code int) {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.minions[id].Ask("_return", "jid", jid, "fun", fun, "fun_args", []any{}, "return", true, "retcode", int64(code),
		"success", code == 0)
}

func (c *crew) slices() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

const batchOptions = `timeout: 1
gather_job_timeout: 1
saltern_audit: true
`

// TestBatchOfAPI: a batch gets to as many minions at a time as it says, to those that answer; a wrong
// one is refused, as is one of a user who may not run the function there, and one whose caller has left.
func TestBatchOfAPI(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, batchOptions, "console: true\n")
	c := hireCrew(t, a)

	start := func(user, more string) (int, string) {
		code, body, _ := a.Do("POST", "/run", `[{"client": "local_async", "tgt": "*", "fun": "test.arg", "username": "`+user+
			`", "password": "right", "eauth": "sharedsecret", `+more+`}]`)
		return code, body
	}
	for user, mores := range map[string][]string{
		"bob": {`"batch": 2`},
		"alice": {`"batch": 0`, `"batch": "200%"`, `"batch": []`, `"batch": 1, "batch_wait": -1`, `"batch": 1, "timeout": "soon"`,
			`"batch": 1, "failhard": "yes"`, `"batch": 1, "jid": "20261124155900000001"`, `"batch": 1, "ret_kwargs": {"a": 1}`, `"batch": 1, "show_jid": true`,
			`"batch": 1, "fun": ["test.arg", "test.ping"]`, `"batch": 1, "tgt": "web5"`,
			`"batch": 1, "client": "local"`, `"batch": "10%", "client": "local_subset"`,
			`"batch": 1, "client": "local_batch", "batch_wait": "soon"`, `"batch": 1, "client": "local_batch", "batch_wait": -1`,
			`"batch": 1, "client": "local_batch", "jid": "20261124155900000001"`},
	} {
		for _, more := range mores {
			if code, body := start(user, more); code < 400 || code > 401 {
				t.Errorf("%s, %s: %d %s", user, more, code, body)
			}
		}
	}
	if got := c.slices(); len(got) > 0 {
		t.Errorf("refused, and begun: %q", got)
	}
	if _, body := start("alice", `"batch": 1, "client": "local_batch", "batch_wait": "soon"`); !strings.Contains(body, "at most 3600") {
		t.Errorf("the bound of max_timeout is not named: %s", body)
	}

	code, body := start("alice", `"batch": "50%", "batch_wait": 0, "timeout": 30, "metadata": {"why": "audit"}`)
	var answer struct {
		Return []struct {
			JID     string
			Minions []string
		}
	}
	check.Must(t, json.Unmarshal([]byte(body), &answer))
	if code != 200 || len(answer.Return) != 1 || fmt.Sprint(answer.Return[0].Minions) != "[web1 web2 web3 web4]" {
		t.Fatalf("%d %s", code, body)
	}
	await.That(t, "all have it", func() bool { return len(strings.Fields(strings.Join(c.slices(), " "))) == 4 })
	got := c.slices()
	if got[0] != "web1 web2" || slices.ContainsFunc(got, func(s string) bool { return len(strings.Fields(s)) > 2 }) {
		t.Errorf("the slices: %q", got)
	}
	records := a.AwaitRecords(4, "job.publish") // of bob, of alice's ret_kwargs, of her target that does not answer, and of the batch
	if r := records[len(records)-1]; r.User != "alice" || r.JID != answer.Return[0].JID || r.Minions != 4 {
		t.Errorf("the record: %+v", r)
	}
	wantMetadataOfBatchOnly(t, a)
}

// wantMetadataOfBatchOnly checks that one job has the metadata {why: audit}, that of the batch, and not the ping before
// it.
func wantMetadataOfBatchOnly(t *testing.T, a *mastertest.API) {
	t.Helper()
	found, err := a.Parts.Runs.Call(await.Context(t), "jobs.list_jobs", nil,
		value.NewMap("search_metadata", value.NewMap("why", "audit"), "search_function", "test.*"))
	check.Must(t, err)
	jobs := found.(*value.Map)
	for jid := range jobs.All() {
		if fun := jobs.Map(fmt.Sprint(jid)).Str("Function"); fun != "test.arg" {
			t.Errorf("%s has the metadata", fun)
		}
	}
	if jobs.Len() != 1 {
		t.Errorf("found %s", mastertest.PlainText(jobs))
	}
}

// TestBatchWhileCallerWaits: the fields of a command reach each slice of local_batch, and its time between
// two slices may be a fraction of a second. Salt ignores the fields, and waits for whole seconds.
func TestBatchWhileCallerWaits(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, batchOptions, "console: true\n")
	hireCrew(t, a)
	began := time.Now()
	code, body, _ := a.Do("POST", "/run", `[{"client": "local_batch", "tgt": "web1|web2|web3", "tgt_type": "pcre", "fun": "test.arg",
		"username": "alice", "password": "right", "eauth": "sharedsecret", "batch": 2, "batch_wait": 0.4, "full_return": true,
		"metadata": {"why": "audit"}}]`)
	if code != 200 || strings.Count(body, `"retcode": 0`) != 3 {
		t.Errorf("%d %s", code, body)
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("the batch took %s", took)
	}
	wantMetadataOfBatchOnly(t, a)
}

// TestBatchOfConsole: the page of a batch that stops at a failure says so.
func TestBatchOfConsole(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, batchOptions, "console: true\n")
	c := hireCrew(t, a, "web2")
	b := a.OpenBrowser().LogIn("alice")
	code, text, h := b.Send("POST", "/run", url.Values{"form": {b.FormToken("/run")}, "tgt": {"web*"}, "fun": {"test.arg"},
		"batch": {"1"}, "failhard": {"1"}, "timeout": {"20"}})
	if code != 303 {
		t.Fatalf("%d %s", code, text)
	}
	page := strings.TrimPrefix(h.Get("Location"), "/console")
	await.That(t, "the page says that it was stopped", func() bool {
		_, text = b.Get(page)
		return strings.Contains(text, "The batch was stopped: a minion failed")
	})
	for _, want := range []string{"1 at a time: 2 of 5 minions have the job, 2 do not get it any more, 1 did not answer a ping"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	if got := fmt.Sprint(c.slices()); got != "[web1 web2]" {
		t.Errorf("the slices: %s", got)
	}
}

// TestBatchOfGoneCaller: a caller who leaves before the ping has ended starts nothing.
func TestBatchOfGoneCaller(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, strings.Replace(batchOptions, "timeout: 1\n", "timeout: 5\n", 1), "console: true\n")
	c := hireCrew(t, a)
	pings := a.Parts.Bus.Subscribe("test", 1000, func(tag string) bool { return strings.Contains(tag, "/ret/web1") })
	defer pings.Close()

	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		body := strings.NewReader(`[{"client": "local_async", "tgt": "*", "fun": "test.arg", "batch": 1,
			"username": "alice", "password": "right", "eauth": "sharedsecret"}]`)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/run", body)
		check.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
			t.Errorf("it was answered: %s", res.Status)
		}
	}()
	select {
	case <-pings.C: // web5 has not answered yet
	case <-time.After(10 * time.Second):
		t.Fatal("no ping")
	}
	leave()
	<-ended
	if r := a.AwaitRecords(1, "job.publish")[0]; r.JID != "" || r.Result == "started" {
		t.Errorf("the record: %+v", r)
	}
	if got := c.slices(); len(got) > 0 {
		t.Errorf("begun: %q", got)
	}
}
