package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/schedule/plan"
	"saltern/master/value"
)

// bench runs a Schedule on the clock of a synctest bubble.
type bench struct {
	t     *testing.T
	began time.Time
	log   bytes.Buffer

	mu      sync.Mutex
	calls   map[string][]time.Duration // by function
	events  []*value.Map
	given   []string // results for returners
	lasts   map[string]time.Duration
	start   time.Duration // how long Python takes to start
	running map[string]int
	most    map[string]int
}

func newBench(t *testing.T) *bench {
	return &bench{
		t:       t,
		began:   time.Now(),
		calls:   map[string][]time.Duration{},
		lasts:   map[string]time.Duration{},
		running: map[string]int{},
		most:    map[string]int{},
	}
}

// oneID gives all runs the same job id.
type oneID struct{}

func (oneID) New() string { return "20260101000000000000" }

// config is that of a master alone.
func (b *bench) config(option *value.Map) Config {
	p, problems := plan.Read(option, nil)
	return Config{
		Plan:     p,
		Problems: problems,
		Runs:     b,
		IDs:      oneID{},
		Fire:     b.fire,
		ID:       "m_master",
		Own:      func() (uint64, bool) { return 1, true },
		Now:      time.Now,
		Log:      slog.New(slog.NewTextHandler(&b.log, nil)),
	}
}

func (b *bench) Call(_ context.Context, fun string, args []any, named *value.Map) (any, error) {
	b.mu.Lock()
	b.calls[fun] = append(b.calls[fun], time.Since(b.began))
	for _, name := range []string{fun, "all"} {
		b.running[name]++
		b.most[name] = max(b.most[name], b.running[name])
	}

	lasts := b.lasts[fun]
	b.mu.Unlock()
	time.Sleep(lasts)
	b.mu.Lock()
	b.running[fun]--
	b.running["all"]--
	b.mu.Unlock()

	if fun == "a.fails" {
		return nil, errors.New("as asked")
	}

	return value.NewMap("args", args, "kwargs", named), nil
}

func (b *bench) fire(tag string, data *value.Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if tag != "__schedule_return" {
		b.t.Errorf("event %s", tag)
	}
	b.events = append(b.events, data.Clone())
}

func (*bench) InPython(fun string) bool { return strings.HasPrefix(fun, "python.") }

func (b *bench) Prepare(ctx context.Context, _ string) { _ = pause.For(ctx, b.start) }

func (*bench) Public(_ string, _ *value.Map, result any) any { return result }

func (b *bench) Return(_ context.Context, returners []string, result *value.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = append(b.given, fmt.Sprint(returners, " ", value.Repr(result)))
	return nil
}

// runFor runs s for so long.
func (b *bench) runFor(s *Schedule, d time.Duration) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(ended)
	}()
	time.Sleep(d)
	cancel()
	<-ended
}

func entryOf(fun string, kv ...any) *value.Map {
	return value.NewMap(append([]any{"function", fun}, kv...)...)
}

func seconds(n ...int) (out []time.Duration) {
	for _, n := range n {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// TestScheduleKeys (F1, M4) shows for each key that it is obeyed: before, all these entries
// ran every three seconds.
func TestScheduleKeys(t *testing.T) {
	at := func(s int) string { // the clock of a bubble begins at midnight UTC 2000-01-01
		return time.Date(2000, 1, 1, 0, 0, s, 0, time.UTC).Format("2006-01-02T15:04:05")
	}
	every3 := func(kv ...any) *value.Map { return entryOf("a.b", append([]any{"seconds", int64(3)}, kv...)...) }
	for _, c := range []struct {
		name  string
		entry *value.Map
		want  []time.Duration // of 20 seconds
	}{
		{"seconds", every3(), seconds(0, 3, 6, 9, 12, 15, 18)},
		{"number as text", entryOf("a.b", "seconds", "5"), seconds(0, 5, 10, 15)},
		{"sum of units", entryOf("a.b", "seconds", int64(-54), "minutes", int64(1)), nil}, // refused
		{"enabled", every3("enabled", false), nil},
		{"range", every3("range", value.NewMap("start", at(5), "end", at(10))), seconds(0, 5, 8)},
		{"inverted range", every3("range", value.NewMap("start", at(2), "end", at(10), "invert", true)),
			seconds(0, 10, 13, 16, 19)},
		{"range long past", every3("range", value.NewMap("start", "1999-01-01", "end", "1999-01-02")), seconds(0)},
		{"skip_during_range", every3("skip_during_range", value.NewMap("start", at(2), "end", at(10))),
			seconds(0, 12, 15, 18)},
		{"run_after_skip_range",
			every3("run_after_skip_range", true, "skip_during_range", value.NewMap("start", at(2), "end", at(10))),
			seconds(0, 11, 14, 17)},
		{"until", every3("until", at(9)), seconds(0, 3, 6)},
		{"after", every3("after", at(9)), seconds(0, 12, 15, 18)},
		{"dry_run", every3("dry_run", true), nil},
		{"run_on_start", every3("run_on_start", false), seconds(3, 6, 9, 12, 15, 18)},
		{"splay", every3("splay", value.NewMap("start", int64(2), "end", int64(2))), seconds(0, 5, 10, 15, 20)[:4]},
		{"cron", entryOf("a.b", "cron", "* * * * * */5"), seconds(5, 10, 15)},
		{"once", entryOf("a.b", "once", at(7)), seconds(7)},
		{"once_fmt", entryOf("a.b", "once", "1/1/2000 12:00:08 AM", "once_fmt", "%m/%d/%Y %I:%M:%S %p"), seconds(8)},
		{"when", entryOf("a.b", "when", "12:00:04am"), seconds(4)},
		{"list of when", entryOf("a.b", "when", []any{at(3), at(9)}), seconds(3, 9)},
		{"unknown key", every3("untill", at(9)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap("e", c.entry))
				cfg.Now = func() time.Time { return time.Now().UTC() }
				b.runFor(New(cfg), 19*time.Second+time.Second/2)
				if got := b.calls["a.b"]; !slices.Equal(got, c.want) {
					t.Errorf("ran after %v, not %v", got, c.want)
				}
			})
		})
	}
}

// TestScheduleSettings (F1, M4): settings of the whole schedule count.
func TestScheduleSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		key  string
		val  any
		want int // runs in 20 s
	}{
		{"enabled: False", "enabled", false, 0},
		{"enabled: True", "enabled", true, 7},
		{"skip_during_range", "skip_during_range", value.NewMap("start", "00:00:00", "end", "23:00:00"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap(c.key, c.val, "e", entryOf("a.b", "seconds", int64(3))))
				cfg.Now = func() time.Time { return time.Now().UTC() }
				b.runFor(New(cfg), 20*time.Second)
				if n := len(b.calls["a.b"]); n != c.want {
					t.Errorf("%d runs, not %d", n, c.want)
				}
			})
		})
	}
}

// TestScheduledResults (M4): each run is told on the bus, unless it asks not to, and given to
// its returners.
func TestScheduledResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cfg := b.config(value.NewMap(
			"plain", entryOf("a.plain", "hours", int64(1), "args", []any{"x"}, "kwargs",
				value.NewMap("password", "secret"), "metadata", value.NewMap("who", "me")),
			"silent", entryOf("a.silent", "hours", int64(1), "return_job", false),
			"nocache", entryOf("a.nocache", "hours", int64(1), "return_job", "nocache"),
			"kept", entryOf("a.kept", "hours", int64(1), "returner", []any{"mine", "theirs"},
				"return_config", "other", "return_kwargs", value.NewMap("db", int64(2))),
			"fails", entryOf("a.fails", "hours", int64(1)),
		))

		b.runFor(New(cfg), time.Minute)

		seen := map[string]*value.Map{}
		for _, e := range b.events {
			seen[e.Str("schedule")] = e
		}

		if len(b.events) != 4 || seen["silent"] != nil {
			t.Fatalf("%d events: %v", len(b.events), seen)
		}

		plain := seen["plain"]
		for key, want := range map[string]any{
			"cmd":     "_return",
			"id":      "m_master",
			"fun":     "a.plain",
			"jid":     "req",
			"success": true,
			"retcode": int64(0),
		} {
			if got, _ := plain.Get(key); got != want {
				t.Errorf("%s is %v, not %v", key, got, want)
			}
		}

		if text := value.Repr(plain); strings.Contains(text, "secret") ||
			plain.Map("metadata").Str("who") != "me" || plain.Map("metadata").Str("_TOS") != "0000" {
			t.Errorf("event %s", text)
		}

		if jid := seen["nocache"].Str("jid"); jid != "nocache" {
			t.Errorf("jid %s", jid)
		}

		if e := seen["fails"]; e.Bool("success") || e.Str("return") != "Unhandled exception running a.fails" {
			t.Errorf("event %s", value.Repr(e))
		}

		if len(b.given) != 1 || !strings.HasPrefix(b.given[0], "[mine theirs]") ||
			!strings.Contains(b.given[0], "'ret_kwargs': {'db': 2}") || seen["kept"].Str("jid") == "req" {
			t.Errorf("given %v", b.given)
		}

		if n := strings.Count(b.log.String(), `error="as asked"`); n != 1 {
			t.Errorf("log:\n%s", &b.log)
		}
	})
}

// TestScheduledRunsWait (F2): runs that find all workers busy wait for one; maxrunning
// allows several of an entry, and what it leaves out is counted in the log.
func TestScheduledRunsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lasts["a.once"] = 50 * time.Second
		b.lasts["a.twice"] = 50 * time.Second
		option := value.NewMap("twice", entryOf("a.twice", "seconds", int64(20), "maxrunning", int64(2)))
		for i := range 30 {
			option.Set(fmt.Sprint("once", i), entryOf("a.once", "hours", int64(1)))
		}

		cfg := b.config(option)
		cfg.Workers = 3
		s := New(cfg)
		b.runFor(s, 30*time.Minute)

		if n := len(b.calls["a.once"]); n != 30 || b.most["all"] != 3 || b.most["a.twice"] != 2 ||
			len(b.calls["a.twice"]) < 40 {
			t.Errorf("ran %d and %d, at once %v", n, len(b.calls["a.twice"]), b.most)
		}

		if stats := s.Stats(); stats.Waited == 0 || stats.Done < 70 || stats.Waiting > 1 {
			t.Errorf("%+v", stats)
		}

		if text := b.log.String(); !strings.Contains(text, "runs were left out") ||
			!strings.Contains(text, "name=twice") || strings.Contains(text, "name=once") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// TestScheduleClock: intervals are lengths of time whatever somebody does to the clock, and
// nothing that a clock put forward skips is lost.
func TestScheduleClock(t *testing.T) {
	for _, c := range []struct {
		name  string
		shift time.Duration
		want  map[string][]time.Duration
	}{
		{"forward", time.Hour,
			map[string][]time.Duration{"a.interval": seconds(0, 60, 120, 180, 240), "a.cron": seconds(90)}},
		{"back", -time.Hour, map[string][]time.Duration{"a.interval": seconds(0, 60, 120, 180, 240), "a.cron": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				cfg := b.config(value.NewMap(
					"interval", entryOf("a.interval", "minutes", int64(1)),
					"cron", entryOf("a.cron", "cron", "30 0 * * *"),
				))

				// As a zone whose offset changes after 90 s.
				cfg.Now = func() time.Time {
					now := time.Now().UTC()
					if now.Sub(b.began) >= 90*time.Second {
						now = now.In(time.FixedZone("summer", int(c.shift/time.Second)))
					}
					return now
				}

				b.runFor(New(cfg), 5*time.Minute-time.Second)
				for fun, want := range c.want {
					if !slices.Equal(b.calls[fun], want) {
						t.Errorf("%s after %v, not %v", fun, b.calls[fun], want)
					}
				}
			})
		})
	}
}

// TestClockPutBackRepeatsNothing: the end of summer time, or a step of a second, has nothing
// of the calendar run twice, and what is due later runs.
func TestClockPutBackRepeatsNothing(t *testing.T) {
	for _, back := range []time.Duration{time.Hour, 10 * time.Second, 1500 * time.Millisecond} {
		t.Run(back.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				at := func(text string) []any {
					return []any{value.NewMap("time", text, "time_fmt",
						"%Y-%m-%dT%H:%M:%S")}
				}

				cfg := b.config(value.NewMap(
					"cron", entryOf("a.cron", "cron", "1 0 * * *"),
					"once", entryOf("a.once", "once", "2000-01-01T00:01:00"),
					"when", entryOf("a.when", "when", "00:01"),
					"delayed", entryOf("a.delayed", "when", "00:00:50", "splay",
						value.NewMap("start", int64(10), "end", int64(10))),
					"explicit", entryOf("a.explicit", "cron", "0 12 * * *", "run_explicit", at("2000-01-01T00:01:00")),
					"later cron", entryOf("a.laterCron", "cron", "2 0 * * *"),
					"later once", entryOf("a.laterOnce", "once", "2000-01-01T00:02:00"),
					"later when", entryOf("a.laterWhen", "when", "00:02"),
				))

				cfg.Now = func() time.Time {
					now := time.Now().UTC()
					if now.Sub(b.began) > time.Minute {
						now = now.Add(-back)
					}
					return now
				}

				b.runFor(New(cfg), 90*time.Minute)
				for _, fun := range []string{"a.cron", "a.once", "a.when", "a.delayed", "a.explicit",
					"a.laterCron", "a.laterOnce", "a.laterWhen"} {
					if len(b.calls[fun]) != 1 {
						t.Errorf("%s after %v", fun, b.calls[fun])
					}
				}
			})
		})
	}
}

// TestListWaitsForNoLook: whoever asks what runs next is answered while a look waits, for the
// volume as a rule.
func TestListWaitsForNoLook(t *testing.T) {
	b := newBench(t)
	cfg := b.config(value.NewMap("e", entryOf("a.b", "minutes", int64(1))))
	waits := make(chan struct{})
	cfg.Own = func() (uint64, bool) {
		waits <- struct{}{}
		<-waits
		return 1, true
	}

	s := New(cfg)
	go s.takeDue()
	<-waits
	defer close(waits)

	if !s.mu.TryLock() {
		t.Fatal("a look that waits holds what List needs")
	}
	s.mu.Unlock()
}

// TestListShowsEachEntry: schedule.list shows every entry, also those that share a name or were
// refused, with all that is wrong with it.
func TestListShowsEachEntry(t *testing.T) {
	s := New(newBench(t).config(value.NewMap(
		"a", entryOf("f.a", "seconds", int64(5), "name", "same"),
		"b", entryOf("f.b", "seconds", int64(7), "name", "same"),
		"same", entryOf("f.c", "seconds", int64(9)),
		"wrong", entryOf("f.d", "seconds", int64(9), "maxrunning", "2", "splay", int64(-1)),
		"e", entryOf("f.e", "seconds", int64(5), "name", "wrong"),
	)))
	list, err := s.List(1)
	if err != nil {
		t.Fatal(err)
	}

	text := value.Repr(listOf(list))
	for _, want := range []string{"f.a", "f.b", "f.c", "f.e", "maxrunning", "splay"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	for _, e := range list.Entries {
		if strings.Count(text, "'"+e.Name+"'") != 1 {
			t.Errorf("%q does not stand for one entry: %s", e.Name, text)
		}
	}
}
