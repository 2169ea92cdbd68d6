package users

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/batch"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/syndics"
	"saltern/master/pattern"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// belowUsers grants alice the right to a ping on one minion of this master.
const belowUsers = `order_masters: True
syndic_wait: 1
timeout: 2
gather_job_timeout: 1
external_auth:
  sharedsecret:
    alice: [{'L@real1': [test.ping]}]
    bob: [test.ping]
sharedsecret: right
`

// lower plays the syndic mid with the minions low1 and low.two, and the minion real1 of this master.
type lower struct {
	*caller
	mid, real *mastertest.Minion
	silent    string // a minion that answers nothing
	names     []any  // what mid says of each job beside its own minions
	sent      []sentJob
	last      event.Event
}

// sentJob is a job that was sent to minions, and those who have it.
type sentJob struct {
	fun     string
	target  any
	test    bool
	minions []string
}

func startLower(t *testing.T) *lower {
	r := mastertest.Start(t, belowUsers)
	return startLowerAt(t, r, r)
}

// startLowerAt plays minions that are connected to one master, while saved jobs run at another one.
func startLowerAt(t *testing.T, r, theirs *mastertest.Master) *lower {
	l := &lower{
		caller: &caller{r, r.Parts.Bus.Subscribe("test", 10_000, event.Prefix("salt/"))},
		mid:    theirs.AcceptedMinion("mid", "min6"),
		real:   theirs.AcceptedMinion("real1", "min7"),
	}
	await.That(t, "the master knows both keys", func() bool { return len(r.Parts.Keys.Accepted()) == 2 })
	t.Cleanup(l.sub.Close)
	l.must("saved.set_target", "name", "lrm", "expression", "[lrm]*")
	l.must("saved.set_target", "name", "low", "expression", "low*")
	return l
}

// run runs a saved job, while the minions answer. It returns what saved.run has returned, and "" or its error.
func (l *lower) run(user, name string) (result *value.Map, failure string) {
	l.r.T.Helper()
	l.sent = nil
	fields := []any{"fun", "saved.run", "kwarg", value.NewMap("arg", []any{}, "kwarg", value.NewMap("name", name))}
	if user == "root" {
		fields = append(fields, "user", local.CurrentUser(), "key", l.r.Key)
	} else {
		fields = append(fields, "eauth", "sharedsecret", "username", user, "password", "right")
	}
	answer, _ := l.r.AskInClear("runner", fields...).(*value.Map)
	tag := answer.Str("tag")
	l.play(func() bool { return l.last.Tag == tag+"/ret" })
	result, _ = l.last.Data.Value("return").(*value.Map)
	if !l.last.Data.Bool("success") {
		failure = value.Str(l.last.Data.Value("return"))
	}
	return result, failure
}

// play has the minions answer jobs until it is over.
func (l *lower) play(over func() bool) {
	l.r.T.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !over() {
		select {
		case l.last = <-l.sub.C:
			if strings.HasSuffix(l.last.Tag, "/publish") {
				l.answer(l.last.Data)
			}
		case <-look.C:
		case <-await.Context(l.r.T).Done():
			l.r.T.Fatalf("it does not end; sent: %v", l.sent)
		}
	}
}

// answer has the minions of a job return, as a syndic of 3007 passes that on.
func (l *lower) answer(load *value.Map) {
	job := sentJob{fun: load.Str("fun"), target: load.Value("tgt")}
	for _, arg := range load.List("arg") {
		named, _ := arg.(*value.Map)
		job.test = job.test || named.Bool("test")
	}

	has := func(id string) bool {
		if ids := load.Texts("tgt"); len(ids) > 0 {
			return slices.Contains(ids, id)
		}
		return pattern.Glob(load.Str("tgt"), id)
	}
	jid := load.Str("jid")
	returns := value.NewMap()
	told := slices.Clone(l.names)
	for _, id := range []string{"low1", "low.two"} {
		if !has(id) {
			continue
		}
		job.minions = append(job.minions, id)
		told = append(told, id)
		if id != l.silent {
			returns.Set(id, value.NewMap("return", true, "retcode", int64(0), "success", true, "fun_args", []any{}))
		}
	}
	if has("real1") {
		job.minions = append(job.minions, "real1")
		l.real.Ask("_return", "jid", jid, "fun", job.fun, "fun_args", []any{}, "return", true, "retcode", int64(0), "success", true)
	}
	if len(told) > 0 {
		l.mid.Ask("_minion_event", "events", []any{value.NewMap("tag", jid, "data", value.NewMap("minions", told))}, "pretag", "syndic/mid")
	}
	if returns.Len() > 0 {
		l.mid.Ask("_syndic_return", "load", []any{value.NewMap("id", "mid", "jid", jid, "fun", job.fun, "arg", []any{},
			"load", value.NewMap(), "return", returns)})
	}
	if job.fun != "saltutil.find_job" {
		l.sent = append(l.sent, job)
	}
}

// TestSavedJobsBelowASyndic: with order_masters a saved job gets to the minions below a syndic as to others: after
// a test run, in a batch, and if no other minion is meant. The syndic itself answers nothing, and counts as
// nobody: stop_above is 0 here.
func TestSavedJobsBelowASyndic(t *testing.T) {
	t.Parallel()
	l := startLower(t)
	mayRun := value.NewMap("sharedsecret", []any{"bob"})
	job := func(name string, settings ...any) {
		l.must("saved.set_job", append([]any{"name", name, "function", "state.apply", "args", []any{"ok"}, "may_run", mayRun},
			settings...)...)
	}
	job("tested", "target", "lrm", "test_first", true, "stop_above", int64(0))
	job("batch", "target", "lrm", "batch", "2", "stop_above", int64(0))
	job("both", "target", "lrm", "test_first", true, "batch", "100%", "stop_above", int64(0))
	job("plain", "target", "low")
	job("lowtested", "target", "low", "test_first", true)
	job("lowbatch", "target", "low", "batch", "1")
	job("nobody", "target", "nobody*", "target_type", "glob")
	all := []string{"low.two", "low1", "real1"}
	low := all[:2]

	for _, tt := range []struct {
		user, name string
		want       []string
	}{
		{"root", "tested", all},
		{"bob", "tested", all},
		{"root", "batch", all},
		{"bob", "both", all},
		{"root", "plain", low},
		{"bob", "plain", low},
		{"root", "lowtested", low},
		{"bob", "lowbatch", low},
	} {
		t.Run(tt.name+" of "+tt.user, func(t *testing.T) {
			result, failure := l.run(tt.user, tt.name)
			if failure != "" {
				t.Fatal(failure)
			}
			if got := slices.Sorted(slices.Values(result.Texts("minions"))); !slices.Equal(got, tt.want) {
				t.Errorf("the result names %v", got)
			}
			if got := l.ran(result); !slices.Equal(got, tt.want) {
				t.Errorf("%v have run it; sent: %v", got, l.sent)
			}
		})
	}

	t.Run("nobody", func(t *testing.T) {
		if _, failure := l.run("root", "nobody"); !strings.Contains(failure, "no syndic has named any") {
			t.Errorf("failure %q", failure)
		}
	})
	t.Run("one does not answer", func(t *testing.T) {
		l.silent = "low.two"
		defer func() { l.silent = "" }()
		_, failure := l.run("root", "tested")
		if !strings.Contains(failure, "1 of 3 minions would fail") || !strings.Contains(failure, "low.two: no answer") {
			t.Errorf("failure %q", failure)
		}
	})
	t.Run("a syndic names others", func(t *testing.T) {
		l.names = []any{"db1", "real1", "mid", "../x", ",low3,"}
		defer func() { l.names = nil }()
		result, failure := l.run("root", "tested")
		if got := l.ran(result); failure != "" || !slices.Equal(got, all) {
			t.Errorf("failure %q; sent: %v", failure, l.sent)
		}
		for _, job := range l.sent {
			if list := fmt.Sprint(job.target); strings.Contains(list, "db1") || strings.Contains(list, "mid") {
				t.Errorf("sent to %v", job.target)
			}
		}
	})
}

// TestSavedJobsBelowASyndicOfAnotherMaster: the same if the syndic is connected to another master of the cluster. Both
// masters know it as a syndic until its key is deleted.
func TestSavedJobsBelowASyndicOfAnotherMaster(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2, belowUsers)
	mastertest.AwaitLinks(t, ms)
	l := startLowerAt(t, ms[0], ms[1])
	want := []string{"low.two", "low1", "real1"}
	l.must("saved.set_job", "name", "both", "target", "lrm", "test_first", true, "batch", "2", "stop_above", int64(0),
		"function", "state.apply", "args", []any{"ok"})
	for range 2 { // the syndic becomes known by the first run
		result, failure := l.run("root", "both")
		if got := l.ran(result); failure != "" || !slices.Equal(got, want) {
			t.Errorf("%q; sent: %v", failure, l.sent)
		}
	}

	noted := func(m *mastertest.Master) bool {
		_, err := os.Lstat(m.Path("cache", syndics.Folder, "mid"))
		return err == nil
	}
	await.That(t, "both masters know the syndic", func() bool { return noted(ms[0]) && noted(ms[1]) })
	check.Must(t, ms[1].Parts.Keys.Delete("mid"))
	await.That(t, "no master takes the name for a syndic's", func() bool { return !noted(ms[0]) && !noted(ms[1]) })
}

// ran returns who has run the job of a result in earnest, when all its minions have.
func (l *lower) ran(result *value.Map) []string {
	l.r.T.Helper()
	ids := func() (ids []string) {
		for _, job := range l.sent {
			if job.fun == "state.apply" && !job.test {
				ids = append(ids, job.minions...)
			}
		}
		return slices.Sorted(slices.Values(ids))
	}
	l.play(func() bool { return len(ids()) >= len(result.Texts("minions")) })
	return ids()
}

// TestBatchBelowASyndic: a batch of a tool gets to minions below a syndic. Who may run the function on one minion of this
// master runs it there alone, whomever he lists and whomever the syndic names.
func TestBatchBelowASyndic(t *testing.T) {
	t.Parallel()
	l := startLower(t)
	l.names = []any{"low1", "low.two"}
	for _, tt := range []struct {
		user   string
		target []any
		want   []string
	}{
		{"bob", []any{"low1", "real1"}, []string{"low1", "real1"}},
		{"bob", []any{"low.two"}, []string{"low.two"}},
		{"alice", []any{"low1", "real1"}, []string{"real1"}},
		{"alice", []any{"low1"}, nil},
	} {
		t.Run(fmt.Sprint(tt.user, tt.target), func(t *testing.T) {
			l.sent = nil
			answered := make(chan any, 1)
			go func() {
				answered <- l.r.AskInClear(batch.Command, "fun", "test.ping", "arg", []any{}, "tgt", tt.target, "tgt_type", "list",
					"ret", "", "jid", "", "kwargs", value.NewMap("eauth", "sharedsecret", "username", tt.user, "password", "right"),
					batch.Field, batch.Spec{Size: "1", Timeout: 20 * time.Second}.Map())
			}()
			var answer *value.Map
			l.play(func() bool {
				select {
				case a := <-answered:
					answer, _ = a.(*value.Map)
				default:
				}
				return answer != nil && len(l.sentTo()) >= 2*len(tt.want) // the ping and the job
			})

			if got := slices.Compact(l.sentTo()); !slices.Equal(got, tt.want) {
				t.Errorf("sent to %v: %v", got, l.sent)
			}
			if got := answer.Map("load").Texts("minions"); !slices.Equal(got, tt.want) {
				t.Errorf("answer %s", value.Repr(answer))
			}
		})
	}
}

// sentTo returns who has jobs, once for each.
func (l *lower) sentTo() (ids []string) {
	for _, job := range l.sent {
		ids = append(ids, job.minions...)
	}
	slices.Sort(ids)
	return ids
}
