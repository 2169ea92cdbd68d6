package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/internal/batch"
	"saltern/master/internal/source"
	"saltern/master/internal/syndics"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

func connect(t *testing.T, m *fakemaster.Master, change func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{
		Interface:  "0.0.0.0",
		RetPort:    m.Port,
		SockDir:    m.SockDir,
		CacheDir:   m.CacheDir,
		MasterUser: "root",
		User:       "root",
		Timeout:    300 * time.Millisecond,
		Gather:     400 * time.Millisecond,
		Publish:    2 * time.Second,
		Nodegroups: value.NewMap("g1", "a* or b", "g2", "N@g1 and not c", "names", []any{"a", "b"}, "re",
			"(a|b)", "loop", "N@loop"),
		ConfFile: "/etc/salt/master",
	}

	if change != nil {
		change(&cfg)
	}

	c := client.New(cfg)
	t.Cleanup(c.Close)
	return c
}

func request(tgt any, fun string) client.Request {
	typ := "glob"
	if _, ok := tgt.([]any); ok {
		typ = "list"
	}
	return client.Request{
		Target:     tgt,
		TargetType: typ,
		Fun:        fun,
		Arg:        []any{},
		Kwargs:     value.NewMap("show_timeout", true, "show_jid", false, "delimiter", ":"),
	}
}

// run gathers a job as "id=value" texts.
func run(t *testing.T, c *client.Client, r client.Request) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	var got []string
	err := c.Run(ctx, r, nil, func(ret client.Return) bool {
		s := ret.ID + "=" + value.Str(ret.Ret)
		if ret.Missing {
			s = ret.ID + "!"
		}
		got = append(got, s)
		return true
	})

	slices.Sort(got)
	return got, err
}

func expect(t *testing.T, got []string, err error, want ...string) {
	t.Helper()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestRun(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c")
	c := connect(t, m, nil)
	got, err := run(t, c, request("*", "test.ping"))
	expect(t, got, err, "a=True", "b=True", "c=True")
	got, err = run(t, c, request([]any{"a", "ghost"}, "test.ping"))
	expect(t, got, err, "a=True", "ghost!")

	// The request is that of Salt's own client.
	load := m.Loads()[0]
	if want := []string{"cmd", "tgt", "fun", "arg", "key", "tgt_type", "ret", "jid", "kwargs", "user"}; !slices.Equal(load.Keys(), want) {
		t.Errorf("fields %v, want %v", load.Keys(), want)
	}
}

func TestRunLateMinions(t *testing.T) {
	m := fakemaster.New(t, "dead", "ok", "slow")
	m.Minion = func(id, _ string, _ *value.Map) fakemaster.Answer {
		switch id {
		case "dead":
			return fakemaster.Answer{}
		case "slow": // longer than all time-outs together, but it says so
			return fakemaster.Answer{Reply: true, Return: "late", After: 1200 * time.Millisecond, Running: 99}
		}
		return fakemaster.Answer{Reply: true, Return: "ok"}
	}

	got, err := run(t, connect(t, m, nil), request("*", "test.sleep"))
	expect(t, got, err, "dead!", "ok=ok", "slow=late")
	for _, l := range m.Loads()[1:] {
		kwargs := l.Map("kwargs")
		if l.Str("fun") != "saltutil.find_job" || l.Str("tgt_type") != "list" ||
			slices.Contains(l.List("tgt"), any("ok")) || kwargs.Len() != 1 {
			t.Errorf("question %s", value.Repr(l))
		}
	}
}

// TestRunReconnects: the event bus closes the client's connection while minions return.
func TestRunReconnects(t *testing.T) {
	m := fakemaster.New(t, "a", "b")
	m.Reconnect = true
	m.Minion = func(id, _ string, load *value.Map) fakemaster.Answer {
		a := fakemaster.Answer{Reply: true, Return: id, Out: "txt"}
		if id == "b" {
			a.After, a.Running = 900*time.Millisecond, 99
		}
		return a
	}
	got, err := run(t, connect(t, m, nil), request("*", "test.ping"))
	expect(t, got, err, "a=a", "b=b")
}

// TestRunLostEvent: one return is only in the job cache, and only the answer to the job names a
// minion without a key.
func TestRunLostEvent(t *testing.T) {
	m := fakemaster.New(t, "a")
	m.Lose = true
	got, err := run(t, connect(t, m, nil), request([]any{"a", "ghost"}, "test.ping"))
	expect(t, got, err, "a=True", "ghost!")
}

// TestMinionsOfSyndics (F4): with order_masters, a job may target minions that the master does not
// know. The client waits for these minions, counts and asks them, and runs batches on them, as for
// others.
func TestMinionsOfSyndics(t *testing.T) {
	m := fakemaster.New(t, fakemaster.Syndic, "a")
	m.Lower = []string{"low1", "low2", "low3"}
	m.Minion = func(id, _ string, _ *value.Map) fakemaster.Answer {
		answer := fakemaster.Answer{Reply: id != fakemaster.Syndic, Return: id}
		switch id {
		case "low2":
			answer.After = 500 * time.Millisecond // it says that it runs
			answer.Running = 99
		case "low3":
			answer.Reply = false
		}

		return answer
	}

	if err := os.MkdirAll(filepath.Join(m.CacheDir, syndics.Folder), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(m.CacheDir, syndics.Folder, fakemaster.Syndic), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	below := func(cfg *client.Config) {
		cfg.LowerMasters = true
		cfg.SyndicWait = 200 * time.Millisecond
	}

	for _, c := range []struct {
		target any
		want   []string
	}{
		{"low1", []string{"low1=low1"}},
		{"low*", []string{"low1=low1", "low2=low2", "low3!"}},
		{[]any{"low1", "a"}, []string{"a=a", "low1=low1"}},
		{"*", []string{"a=a", "low1=low1", "low2=low2", "low3!"}}, // the syndic itself is no minion
		{"nobody", nil},
	} {
		t.Run(value.Repr(c.target), func(t *testing.T) {
			got, err := run(t, connect(t, m, below), request(c.target, "test.ping"))
			expect(t, got, err, c.want...)
		})
	}

	if to, _ := m.Loads()[0].Int("to"); len(m.Loads()) == 0 || to < 0 {
		t.Errorf("no time for syndics in %s", value.Repr(m.Loads()[0]))
	}

	t.Run("batch", func(t *testing.T) {
		var returned []string
		c := connect(t, m, below)
		q := client.BatchRequest{
			Request: request("low*", "test.ping"),
			Size:    "1",
			Gather:  400 * time.Millisecond,
			JID:     "20261121000000000099",
		}

		n, err := c.Batch(t.Context(), q,
			client.BatchOutput{Returned: func(r client.Return) { returned = append(returned, r.ID) }})
		slices.Sort(returned)
		if err != nil || n != 2 || !slices.Equal(returned, []string{"low1", "low2"}) {
			t.Errorf("%d minions, %v returned, %v", n, returned, err)
		}
	})

	t.Run("without order_masters", func(t *testing.T) {
		if _, err := run(t, connect(t, m, nil), request("low1", "test.ping")); err != client.ErrNoMinions {
			t.Errorf("got %v", err)
		}
	})
}

func TestErrors(t *testing.T) {
	m := fakemaster.New(t, "a")
	t.Run("no match", func(t *testing.T) {
		if _, err := run(t, connect(t, m, nil), request("nobody", "test.ping")); err != client.ErrNoMinions {
			t.Errorf("got %v", err)
		}
	})

	t.Run("wrong key", func(t *testing.T) {
		c := connect(t, m, func(cfg *client.Config) { cfg.CacheDir = t.TempDir() })
		_, err := run(t, c, request("*", "test.ping"))
		var e *client.Error
		if !errors.As(err, &e) || e.Kind != client.Authentication || e.Message != "Authentication error occurred." {
			t.Errorf("got %v", err)
		}
	})

	t.Run("no master", func(t *testing.T) {
		c := connect(t, m, func(cfg *client.Config) { cfg.SockDir = t.TempDir() })
		if _, err := c.Publish(t.Context(), request("*", "test.ping")); err == nil ||
			err.Error() != "The salt master could not be contacted. Is master running?" {
			t.Errorf("got %v", err)
		}
	})

	t.Run("silent master", func(t *testing.T) {
		m := fakemaster.New(t, "a")
		m.Clear = func(*value.Map) any { <-t.Context().Done(); return "x" }
		c := connect(t, m, func(cfg *client.Config) {
			cfg.Timeout = 20 * time.Millisecond
			cfg.Publish = 20 * time.Millisecond
		})

		if _, err := c.Publish(t.Context(), request("*", "test.ping")); err == nil ||
			!strings.HasPrefix(err.Error(), "Salt request timed out.") {
			t.Errorf("got %v", err)
		}

		if n := len(m.Loads()); n != 1 {
			t.Errorf("the request was sent %d times; a job must not run twice", n)
		}
	})

	t.Run("hostile answers", func(t *testing.T) {
		m := fakemaster.New(t, "a")
		for _, v := range []any{"bad load", "", int64(5), []any{}, value.NewMap(), value.NewMap("load", "x"),
			value.NewMap("load", value.NewMap("jid", int64(1), "minions", "a")),
			value.NewMap("error", "text"), value.NewMap("error", int64(3)), value.NewMap("load",
				value.NewMap("jid", "0", "minions", []any{"a"}))} {
			m.Clear = func(*value.Map) any { return v }
			if job, err := connect(t, m, nil).Publish(t.Context(), request("*", "test.ping")); err == nil {
				t.Errorf("%s gave job %v", value.Repr(v), job)
			}
		}
	})

	t.Run("cancelled", func(t *testing.T) {
		m := fakemaster.New(t, "a")
		m.Minion = func(string, string, *value.Map) fakemaster.Answer { return fakemaster.Answer{Running: 99} }
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()

		err := connect(t, m, nil).Run(ctx, request("*", "test.sleep"), nil, func(client.Return) bool { return true })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestNewKey: the master wrote new keys after the client had read its key.
func TestNewKey(t *testing.T) {
	m := fakemaster.New(t, "a")
	file := filepath.Join(m.CacheDir, ".root_key")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}

	c := connect(t, m, nil)
	if err := os.WriteFile(file, []byte(fakemaster.Key), 0o600); err != nil {
		t.Fatal(err)
	}

	m.Clear = func(l *value.Map) any {
		if l.Str("key") == "old" {
			return ""
		}
		return nil
	}

	got, err := run(t, c, request("*", "test.ping"))
	expect(t, got, err, "a=True")
}

func TestKeyUser(t *testing.T) {
	for _, c := range []struct{ user, master, want string }{
		{"root", "root", "root"}, {"root", "salt", "salt"}, {"root", "", "root"}, {"sudo_bob", "salt", "salt"}, {"sudo_bob", "root", "root"}, {"bob", "salt", "bob"},
	} {
		if got := client.KeyUser(c.user, c.master); got != c.want {
			t.Errorf("%v: got %s", c, got)
		}
	}
}

func TestNodegroups(t *testing.T) {
	m := fakemaster.New(t, "a")
	c := connect(t, m, nil)
	for _, x := range []struct{ typ, tgt, want string }{
		{"nodegroup", "g1", "a* or b"},
		{"nodegroup", "g2", "( ( a* or b ) and not c )"},
		{"nodegroup", "names", "L@a,b"},
		{"nodegroup", "re", "E@(a|b)"},
		{"nodegroup", "loop", ""},
		{"compound", "N@g1 and x", "a* or b and x"},
		{"compound", "G@a:b  or c", "G@a:b or c"},
	} {
		r := request(x.tgt, "test.ping")
		r.TargetType = x.typ
		_, err := c.Publish(t.Context(), r)
		if err != nil && err != client.ErrNoMinions {
			t.Errorf("%s: %v", x.tgt, err)
		}

		loads := m.Loads()
		load := loads[len(loads)-1]
		if load.Str("tgt") != x.want || load.Str("tgt_type") != "compound" {
			t.Errorf("%s: got %q", x.tgt, load.Str("tgt"))
		}
	}

	r := request("no such", "test.ping")
	r.TargetType = "nodegroup"
	if _, err := c.Publish(t.Context(), r); err == nil ||
		err.Error() != "Node group no such unavailable in /etc/salt/master" {
		t.Errorf("got %v", err)
	}

	// It may be a saved target: the master knows.
	r = request("nosuch", "test.ping")
	r.TargetType = "nodegroup"
	if _, err := c.Publish(t.Context(), r); err != nil && err != client.ErrNoMinions {
		t.Error(err)
	}
	loads := m.Loads()
	if load := loads[len(loads)-1]; load.Str("tgt") != "N@nosuch" || load.Str("tgt_type") != "compound" {
		t.Errorf("got %q", load.Str("tgt"))
	}

	r.TargetType = "range"
	if _, err := c.Publish(t.Context(), r); err == nil {
		t.Error("range targets must be refused")
	}
}

func TestBatch(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c", "dead", "mute")
	m.Minion = func(id, fun string, _ *value.Map) fakemaster.Answer {
		switch {
		case id == "dead", id == "mute" && fun != "test.ping":
			return fakemaster.Answer{}
		case id == "b" && fun != "test.ping":
			return fakemaster.Answer{Reply: true, Return: false, Retcode: int64(2)}
		}
		return fakemaster.Answer{Reply: true, Return: true, After: 20 * time.Millisecond}
	}

	batch := func(failhard bool) string {
		var log []string
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()

		q := client.BatchRequest{
			Request:  request("*", "test.ret"),
			Size:     "2",
			Failhard: failhard,
			Gather:   time.Second,
			JID:      "20261121000000999999",
		}

		n, err := connect(t, m, func(c *client.Config) { c.Timeout = 300 * time.Millisecond }).Batch(ctx, q,
			client.BatchOutput{
				Down:     func(id string) { log = append(log, "down "+id) },
				Start:    func(ids []string) { log = append(log, "start "+strings.Join(ids, ",")) },
				Returned: func(r client.Return) { log = append(log, fmt.Sprintf("%s:%d", r.ID, r.Code())) },
				TimedOut: func(id string) { log = append(log, "silent "+id) },
			})
		if err != nil || n != 4 {
			t.Fatalf("%d, %v", n, err)
		}

		slices.Sort(log)
		return strings.Join(log, "; ")
	}

	if got := batch(true); !strings.Contains(got, "b:2") || strings.Contains(got, "c:0; down dead; silent") {
		t.Errorf("failhard: %s", got)
	}

	if testing.Short() {
		return
	}

	if got, want := batch(false), "a:0; b:2; c:0; down dead; silent mute; start a,b; start c; start mute"; got != want {
		if alt := strings.ReplaceAll(want, "start c; start mute", "start c,mute"); got != alt {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestHandOver: a job of several functions is no job for the master's own command for batches: the client publishes
// the first part, and the master gets the state of the whole batch.
func TestHandOver(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c", "dead")
	jobs := make(chan string, 10)
	m.Minion = func(id, fun string, _ *value.Map) fakemaster.Answer {
		if fun != "test.ping" {
			jobs <- id
		}
		return fakemaster.Answer{Reply: id != "dead", Return: true}
	}

	sub := m.Bus.Subscribe("test", 100, func(tag string) bool { return strings.HasPrefix(tag, "salt/batch/") })
	defer sub.Close()
	q := client.BatchRequest{
		Request:  request("*", "test.ret"),
		Size:     "2",
		Failhard: true,
		Gather:   time.Second,
		JID:      "20261121000000999999",
	}

	q.Kwargs = value.NewMap("ret_kwargs", value.NewMap("password", "hunter2"))
	q.Fun = []any{"test.ret", "test.version"}
	var down []string
	_, n, err := connect(t, m, func(c *client.Config) { c.Timeout = 300 * time.Millisecond }).HandOver(t.Context(),
		q, func(id string) { down = append(down, id) })
	if err != nil || n != 3 || !slices.Equal(down, []string{"dead"}) {
		t.Fatalf("%d minions, down %v, %v", n, down, err)
	}

	e := <-sub.C
	s := e.Data.Map("state")
	if e.Tag != "salt/batch/"+q.JID+"/new" || s.Str("driver") != "master" || !s.Bool("failhard") ||
		!slices.Equal(s.Texts("pending"), []string{"c"}) || s.Map("active").Len() != 2 {
		t.Errorf("%s %v", e.Tag, e.Data)
	}

	key := func() (string, error) { return fakemaster.Key, nil }
	if ok, err := event.MayOrderBy(e, event.BatchDrive, key); !ok || err != nil {
		t.Errorf("the master does not take it: %v", err)
	}

	if _, shown := e.Data.Get(event.KeyField); shown {
		t.Error("the key is on the bus")
	}
	if strings.Contains(value.Repr(e.Data), "hunter2") {
		t.Errorf("the settings of a returner are on the bus: %v", e.Data)
	}
	if e.Withheld().Map("ret_kwargs").Str("password") != "hunter2" {
		t.Errorf("the master does not get the settings of the returner: %v", e.Withheld())
	}

	ran := []string{<-jobs, <-jobs} // the minions are at work when HandOver returns
	slices.Sort(ran)
	if !slices.Equal(ran, []string{"a", "b"}) || len(jobs) > 0 {
		t.Errorf("the job ran on %v and %d more", ran, len(jobs))
	}

	ofNobody := request("nobody", "test.ret")
	ofNobody.Fun = q.Fun
	if _, n, err := connect(t, m, nil).HandOver(t.Context(),
		client.BatchRequest{Request: ofNobody, Size: "2", JID: q.JID}, nil); n != 0 || err != nil {
		t.Errorf("nobody: %d, %v", n, err)
	}

	// What the master would not understand is said before anybody has the job.
	large := q
	large.Arg = []any{strings.Repeat("x", 1<<20)}
	if _, _, err := connect(t, m, nil).HandOver(t.Context(), large, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), "too large") || len(jobs) > 0 {
		t.Errorf("a state that is too large: %v; the job ran on %d", err, len(jobs))
	}

	// A master that is not ours would show the key to all readers. It has no confirming socket: here
	// nobody listens at its path, which our master leaves alone because the file is not its own.
	nobody := filepath.Join(m.SockDir, "nobody")
	err = os.WriteFile(nobody, nil, 0o600)
	if err == nil {
		err = os.Rename(nobody, filepath.Join(m.SockDir, "master_event_ack.ipc"))
	}
	if err != nil {
		t.Fatal(err)
	}

	c := connect(t, m, func(c *client.Config) { c.Timeout = 300 * time.Millisecond })
	if _, _, err := c.HandOver(t.Context(), q, func(string) {}); err != nil {
		t.Fatal(err)
	}

	if ok, _ := event.MayOrderBy(<-sub.C, event.BatchDrive, key); ok {
		t.Error("another master than ours got the key")
	}
}

// TestHandOverByCommand: our master gets the whole batch at once, with the fields of the job and no others, and the
// client tries again while it is busy.
func TestHandOverByCommand(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c")
	busy := failureOf("SaltInvocationError", "later")
	busy.Set(source.BusyField, true)
	answers := []any{
		busy,
		value.NewMap("enc", "clear", "load", value.NewMap("jid", "20261121000000000042", "minions", []any{"a", "b"},
			"down", []any{"c"})),
		value.NewMap("enc", "clear", "load", value.NewMap("jid", "20261121000000000043", "minions", []any{"a"})),
		failureOf("SaltInvocationError", "None of the 3 minions answers a ping"),
	}
	m.Clear = func(load *value.Map) any {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}

	q := client.BatchRequest{
		Request:  request("*", "test.ret"),
		Size:     "150%",
		Failhard: true,
		Gather:   10 * time.Second,
		JID:      "20261121000000999999",
	}
	q.Timeout = 5 * time.Second
	q.Kwargs = value.NewMap("ret_kwargs", value.NewMap("password", "hunter2"), "delimiter", "|", "token", "t", "show_jid", true)
	var down []string
	c := connect(t, m, nil)
	jid, n, err := c.HandOver(t.Context(), q, func(id string) { down = append(down, id) })
	if jid != "20261121000000000042" || n != 2 || !slices.Equal(down, []string{"c"}) || err != nil {
		t.Errorf("%s, %d minions, down %v, %v", jid, n, down, err)
	}

	loads := m.Loads()
	if len(loads) != 2 {
		t.Fatalf("%d requests", len(loads))
	}
	const wantKwargs = "{'ret_kwargs': {'password': 'hunter2'}, 'token': 't', 'delimiter': '|'}"
	const wantSpec = "{'size': '100%', 'wait': 0.0, 'failhard': True, 'timeout': 15.0, 'late_goes_on': True, 'ping': 5.0}"
	load := loads[1]
	kwargs, spec := value.Repr(load.Map("kwargs")), value.Repr(load.Map("batch"))
	if load.Str("jid") != "" || kwargs != wantKwargs || spec != wantSpec {
		t.Errorf("job id %q, fields %s, batch %s", load.Str("jid"), kwargs, spec)
	}

	q.Size = "10 %"
	q.Timeout = 1000 * time.Hour
	q.Gather = math.MaxInt64
	if _, _, err := c.HandOver(t.Context(), q, nil); err != nil {
		t.Error(err)
	}
	asked := m.Loads()
	long, err := batch.ReadSpec(asked[len(asked)-1].Map("batch"))
	if err != nil || long.Size != "10%" || long.Timeout != batch.LongestWait || long.Ping != batch.LongestWait {
		t.Errorf("with long times the batch is %+v, %v", long, err)
	}

	q.Size = "ten"
	if _, _, err := c.HandOver(t.Context(), q, nil); err == nil || !strings.Contains(err.Error(), "Invalid batch specification") {
		t.Errorf("a size that is none: %v", err)
	}
	q.Size = "-1"
	if _, _, err := c.HandOver(t.Context(), q, nil); err == nil || !strings.Contains(err.Error(), "answers a ping") {
		t.Errorf("a refusal: %v", err)
	}
}

// failureOf returns the answer of a master that refuses a command.
func failureOf(name, text string) *value.Map {
	return value.NewMap("error", value.NewMap("name", name, "message", text))
}

func TestSubset(t *testing.T) {
	m := fakemaster.New(t, "a", "b", "c")
	m.Minion = func(id, _ string, _ *value.Map) fakemaster.Answer {
		if id == "b" {
			return fakemaster.Answer{Reply: true, Return: "error"}
		}
		return fakemaster.Answer{Reply: true, Return: []any{"test.ping", "test.x"}}
	}
	ids, err := connect(t, m, nil).Subset(t.Context(), request("*", "test.x"), 5,
		func(n int, swap func(int, int)) { swap(0, n-1) })
	slices.Sort(ids)
	expect(t, ids, err, "a", "c")
}

func TestRunner(t *testing.T) {
	m := fakemaster.New(t, "a")
	const jid = "20261121000000000077"
	m.Clear = func(l *value.Map) any {
		switch {
		case l.Str("cmd") != "runner":
			return nil
		case l.Str("fun") == "refused.me":
			return value.NewMap("error", value.NewMap("name", "UserAuthenticationError", "message", "no"))
		}

		m.Bus.Fire("salt/run/"+jid+"/new", value.NewMap())
		m.Bus.Fire("salt/run/999/ret", value.NewMap("return", "of another"))
		m.Bus.Fire("salt/run/"+jid+"/progress", value.NewMap("n", 1))
		m.Bus.Fire("salt/run/"+jid+"/ret", value.NewMap("return", "done"))

		return value.NewMap("tag", "salt/run/"+jid, "jid", jid)
	}

	var seen []string
	c := connect(t, m, nil)
	d, err := c.Runner(t.Context(), "jobs.active", []any{}, value.NewMap(), nil,
		func(s string, _ *value.Map) { seen = append(seen, s) })
	if err != nil || d.Str("return") != "done" || !slices.Equal(seen, []string{"progress"}) {
		t.Errorf("got %v, %v, %v", d, seen, err)
	}

	got, err := run(t, c, request("a", "test.ping"))
	expect(t, got, err, "a=True")
	_, err = connect(t, m, nil).Runner(t.Context(), "refused.me", []any{}, value.NewMap(), nil, nil)
	var refused *client.RunnerError
	if !errors.As(err, &refused) || refused.Error() != "no" {
		t.Errorf("got %v", err)
	}
}

// TestOneClient: the filter of a client's earlier job hides no event of its next call, not even an
// event that is fired before the master has answered.
func TestOneClient(t *testing.T) {
	m := fakemaster.New(t, "a", "b")
	m.Uncached = true
	c := connect(t, m, func(c *client.Config) { c.Timeout = time.Second })
	for range 2 {
		got, err := run(t, c, request("*", "test.ping"))
		expect(t, got, err, "a=True", "b=True")
		var back, silent []string
		q := client.BatchRequest{
			Request: request("*", "test.ret"),
			Size:    "1",
			Gather:  time.Second,
			JID:     "20261121000000999999",
		}

		n, err := c.Batch(t.Context(), q, client.BatchOutput{
			Returned: func(r client.Return) { back = append(back, r.ID) },
			TimedOut: func(id string) { silent = append(silent, id) },
		})

		slices.Sort(back)
		if err != nil || n != 2 || !slices.Equal(back, []string{"a", "b"}) || silent != nil {
			t.Errorf("batch of %d: %v, silent %v, %v", n, back, silent, err)
		}
	}
}
