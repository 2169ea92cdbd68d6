package launch

import (
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

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
	"saltern/test/check"
)

// steps notes what a launcher does, in order, and fails at the steps that it is told to.
type steps struct {
	jobs.Cache // what is not written below is not called

	mu        sync.Mutex
	names     []string
	fail      map[string]error // by the name of the step
	staged    *value.Map
	published []publication
	problem   error
	nextID    int
	old       map[string]*value.Map // the loads of jobs that are there already
}

type publication struct {
	load    *value.Map
	minions []string
}

func (s *steps) step(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	return s.fail[name]
}

func (s *steps) Prep(context.Context, string, bool) (string, error) {
	s.mu.Lock()
	s.nextID++
	jid := fmt.Sprintf("202611230115%08d", s.nextID)
	s.mu.Unlock()
	return jid, s.step("prepare")
}

func (s *steps) Stage(_ context.Context, _ string, load *value.Map, _ []string) (func(context.Context), error) {
	s.staged = load
	return func(context.Context) { _ = s.step("shown") }, s.step("stage")
}

func (s *steps) Load(_ context.Context, jid string) (*value.Map, error) { return s.old[jid], nil }

// Spread implements [Peers].
func (s *steps) Spread(string) (wait func(context.Context), done func()) {
	_ = s.step("spread")
	return func(context.Context) { _ = s.step("peers have it") }, func() { _ = s.step("spread is done") }
}

// Report implements [Problems].
func (s *steps) Report(_ control.Fault, err error) { s.problem = err }

// withSteps returns a launcher for three minions, and what it does.
func withSteps(t *testing.T, change func(*Config)) (*Launcher, *steps) {
	t.Helper()
	s := &steps{fail: map[string]error{}, old: map[string]*value.Map{}}
	store, err := cache.Open(t.TempDir(), 1<<20, func(string) error { return nil })
	check.Must(t, err)
	_, err = store.Set(cache.Grains, "web1", value.NewMap("os", "Debian"))
	check.Must(t, err)
	_, err = store.Set(cache.Pillar, "web1", value.NewMap("role", "front"))
	check.Must(t, err)
	groups := value.NewMap("fronts", "I@role:front", "anyfront", "I@role:fr*")
	cfg := Config{
		Targets: &Targets{
			Accepted:   func() []string { return []string{"db1", "web1", "web2"} },
			Nodegroups: groups,
			Cache:      store,
		},
		Jobs: s,
		Fire: func(tag string, data *value.Map) {
			_ = s.step("event " + tag[strings.LastIndexByte(tag, '/')+1:])
		},
		Publish: func(_ context.Context, load *value.Map, minions []string) error {
			s.mu.Lock()
			s.published = append(s.published, publication{load, minions})
			s.mu.Unlock()
			return s.step("publish")
		},
		Peers:         s,
		Problems:      s,
		User:          "salt",
		Timeout:       5 * time.Second,
		GatherTimeout: 2 * time.Second,
		Now:           time.Now,
		Started:       time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC),
		Log:           slog.New(slog.DiscardHandler),
		Quiet:         slog.New(slog.DiscardHandler),
	}

	if change != nil {
		change(&cfg)
	}

	return New(cfg), s
}

// TestStartInOrder: a job is durable before anybody hears of it, readers of events know it before
// its minions have it, and the other masters publish it only when this one has.
func TestStartInOrder(t *testing.T) {
	t.Parallel()
	l, s := withSteps(t, nil)
	j, err := l.New(t.Context(), plain("ann", "test.ping", ""))
	check.Must(t, err)
	check.Must(t, l.Start(t.Context(), j))
	want := []string{"prepare", "stage", "event new", "spread", "publish", "event publish", "shown",
		"peers have it", "spread is done"}
	if !slices.Equal(s.names, want) {
		t.Errorf("steps\n%q, want\n%q", s.names, want)
	}
	if !jobs.Valid(j.JID) || l.Stats().Jobs != 1 || s.staged.Str("jid") != j.JID {
		t.Errorf("job %s, %+v, kept %v", j.JID, l.Stats(), s.staged)
	}
}

// TestStartThatFails: a job that cannot be stored is neither announced nor published, and other
// masters do not publish a job that is not published here. The caller gets an error only when no
// minion has the job. A fault of the job cache is reported until a job is stored again.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step      string
		published bool
		problem   bool
	}{
		{"prepare", false, true},
		{"stage", false, true},
		{"publish", true, false},
	} {
		t.Run(tt.step, func(t *testing.T) {
			l, s := withSteps(t, nil)
			broken := errors.New("no space left on device")
			s.fail[tt.step] = broken
			j, err := l.New(t.Context(), plain("ann", "test.ping", ""))
			check.Must(t, err)

			if err := l.Start(t.Context(), j); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}

			if slices.Contains(s.names, "publish") != tt.published {
				t.Errorf("steps: %q", s.names)
			}

			if slices.Contains(s.names, "event publish") || slices.Contains(s.names, "event new") != tt.published {
				t.Errorf("others heard of it: %q", s.names)
			}

			if slices.Contains(s.names, "spread") != slices.Contains(s.names, "spread is done") {
				t.Errorf("the other masters are waited for in the end: %q", s.names)
			}

			if (s.problem != nil) != tt.problem {
				t.Errorf("problem: %v", s.problem)
			}

			clear(s.fail)
			j, err = l.New(t.Context(), plain("ann", "test.ping", ""))
			check.Must(t, err)
			check.Must(t, l.Start(t.Context(), j))

			if s.problem != nil {
				t.Errorf("after a job that is kept: %v", s.problem)
			}
		})
	}
}

// TestPublication: minions get the fields that Salt's get, in their order, and none that clients
// make up (salt/master.py _prep_pub).
func TestPublication(t *testing.T) {
	t.Parallel()
	l, s := withSteps(t, func(c *Config) { c.MasterID = "m1" })
	load := value.NewMap("cmd", "publish", "fun", "cmd.run", "arg", []any{"id"}, "tgt", "web*", "tgt_type", "glob", "ret", "smtp",
		"jid", "", "to", int64(7), "user", "ann", "key", "secret", "colour", "red",
		"kwargs", value.NewMap("delimiter", "|", "metadata", value.NewMap("a", int64(1)), "start_event", true, "nocache", false,
			"ret_config", "other", "cmd_line", "x"))

	j, err := l.New(t.Context(), load)
	check.Must(t, err)
	check.Must(t, l.Start(t.Context(), j))
	var names []string
	for k := range s.published[0].load.All() {
		names = append(names, k.(string))
	}

	want := []string{"fun", "arg", "tgt", "jid", "ret", "master_id", "delimiter", "tgt_type", "to",
		"ret_config", "metadata", "start_event", "user"}
	if !slices.Equal(names, want) {
		t.Errorf("fields\n%q, want\n%q", names, want)
	}

	if !slices.Equal(s.published[0].minions, []string{"web1", "web2"}) {
		t.Errorf("minions: %v", s.published[0].minions)
	}
}

// TestStartOwn: a job of the master itself that would go to nobody is not started.
func TestStartOwn(t *testing.T) {
	t.Parallel()
	l, s := withSteps(t, nil)
	found, err := l.StartOwn(t.Context(), l.Own("saltutil.refresh_pillar", []any{}, "mail*", "glob", ""))
	if err != nil || found || len(s.names) != 0 {
		t.Errorf("found %v, %v: %q", found, err, s.names)
	}
	found, err = l.StartOwn(t.Context(), l.Own("saltutil.refresh_pillar", []any{}, "db*", "glob", ""))
	if err != nil || !found || s.published[0].load.Str("user") != "salt" {
		t.Errorf("found %v, %v: %v", found, err, s.published)
	}
	if _, err := l.StartOwn(t.Context(), l.Own("test.ping", []any{}, "(", "pcre", "")); err == nil {
		t.Error("a target that cannot be read is one of nobody")
	}
}

// TestStartSlice: a part of a batch goes to its minions by name, whatever its target says.
func TestStartSlice(t *testing.T) {
	t.Parallel()
	l, s := withSteps(t, nil)
	load := func(ids ...any) *value.Map {
		return value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", ids, "tgt_type", "list", "ret", "",
			"jid", aJID, "user", "ann")
	}

	check.Must(t, l.StartSlice(t.Context(), load("web1")))
	check.Must(t, l.StartSlice(t.Context(), load("web2")))
	for i, id := range []string{"web1", "web2"} {
		pub := s.published[i].load
		if !slices.Equal(pub.Texts("tgt"), []string{id}) || pub.Str("tgt_type") != "list" || pub.Str("jid") != aJID {
			t.Errorf("part %d: %v", i, pub)
		}
	}

	for id, want := range map[string]bool{"web1": true, "web2": true, "db1": false} {
		if got := l.MayReturn(t.Context(), aJID, id); got != want {
			t.Errorf("%s may return: %v", id, got)
		}
	}

	if err := l.StartSlice(t.Context(), load("gone")); !errors.Is(err, errNobody) {
		t.Errorf("a part for nobody: %v", err)
	}

	if l.Stats().Unlisted != 1 {
		t.Errorf("%+v", l.Stats())
	}
}

// TestSavedJobIsMarked: the stored load of a job and the event of its start say which saved job started it. No
// caller can say so himself, and minions do not get it.
func TestSavedJobIsMarked(t *testing.T) {
	t.Parallel()
	var started *value.Map
	l, s := withSteps(t, func(c *Config) {
		fire := c.Fire
		c.Fire = func(tag string, data *value.Map) {
			if strings.HasSuffix(tag, "/new") {
				started = data
			}
			fire(tag, data)
		}
	})
	saved := value.NewMap("job", "apply", "schedule", "nightly")
	load := func() *value.Map {
		return value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "web1", "tgt_type", "glob", "ret", "", "user", "ann",
			jobs.SavedField, value.NewMap("job", "forged"))
	}

	for name, start := range map[string]func() error{
		"forged": func() error {
			j, err := l.New(t.Context(), load())
			check.Must(t, err)
			return l.Start(t.Context(), j)
		},
		"apply": func() error {
			j, err := l.NewFor(t.Context(), load(), Behalf{User: "ann", Saved: saved})
			check.Must(t, err)
			return l.Start(t.Context(), j)
		},
		"apply, in a batch": func() error {
			slice := load()
			slice.Update(value.NewMap("tgt", []any{"web1"}, "tgt_type", "list", "jid", aJID, jobs.SavedField, saved))
			return l.StartSlice(t.Context(), slice)
		},
	} {
		check.Must(t, start())
		want := ""
		if name != "forged" {
			want = value.Repr(saved)
		}
		for where, m := range map[string]*value.Map{"stored": s.staged, "event": started} {
			got := ""
			if v, ok := m.Get(jobs.SavedField); ok {
				got = value.Repr(v)
			}
			if got != want {
				t.Errorf("%s, %s: %q, want %q", name, where, got, want)
			}
		}
		if pub := s.published[len(s.published)-1].load; pub.Value(jobs.SavedField) != nil {
			t.Errorf("%s: minions get %v", name, pub)
		}
	}
}

// TestReturnsOfJobsOfOthers: for a job that is not known here the job cache is asked; a job
// that nobody knows may be a minion's own.
func TestReturnsOfJobsOfOthers(t *testing.T) {
	t.Parallel()
	l, s := withSteps(t, nil)
	s.old["20260101000000000001"] = value.NewMap(jobs.OnlyField, true, "Minions", []any{"web1"})
	s.old["20260101000000000002"] = value.NewMap("Minions", []any{"web1"})

	for _, tt := range []struct {
		jid, id string
		want    bool
	}{
		{"20260101000000000001", "web1", true},
		{"20260101000000000001", "web2", false},
		{"20260101000000000002", "web2", true},
		{"20260101000000000003", "web2", true},
	} {
		if got := l.MayReturn(t.Context(), tt.jid, tt.id); got != tt.want {
			t.Errorf("%s for %s: %v", tt.id, tt.jid, got)
		}
	}

	l.Expect("20260101000000000004", value.NewMap(jobs.OnlyField, true, "minions", []any{"db1"}))
	if l.MayReturn(t.Context(), "20260101000000000004", "web1") ||
		!l.MayReturn(t.Context(), "20260101000000000004", "db1") {
		t.Error("the job of a peer is open to others than its minions")
	}
}

// TestExpectedIsBounded: the oldest jobs are forgotten first, and the job cache is asked about
// those.
func TestExpectedIsBounded(t *testing.T) {
	t.Parallel()
	e := newExpected()
	jid := func(n int) string { return fmt.Sprintf("2026112301150%07d", n) }
	for n := range maxExpectedJobs + 10 {
		e.addJob(jid(n), true, []string{"web1"})
	}

	if len(e.jobs) != maxExpectedJobs || e.ids != maxExpectedJobs {
		t.Errorf("%d jobs, %d ids", len(e.jobs), e.ids)
	}

	if _, known := e.mayReturn(jid(9), "web1", ""); known {
		t.Error("a job that was forgotten is known")
	}

	if may, known := e.mayReturn(jid(10), "db1", ""); may || !known {
		t.Errorf("the oldest that is left: %v, known %v", may, known)
	}

	many := make([]string, maxExpectedIDs)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}

	e.addJob(jid(maxExpectedJobs+10), true, many)
	if len(e.jobs) != 1 || e.ids != maxExpectedIDs {
		t.Errorf("beside a job of very many minions there are %d others, with %d ids", len(e.jobs)-1, e.ids)
	}

	e.forgetJob(jid(maxExpectedJobs + 10))
	if len(e.jobs)+len(e.order)+e.ids != 0 {
		t.Errorf("left: %d jobs, %d in order, %d ids", len(e.jobs), len(e.order), e.ids)
	}
}

// TestPermit: a caller without all rights starts what he may, on the minions for which he may,
// however the target is written.
func TestPermit(t *testing.T) {
	t.Parallel()
	everything := []any{".*"}
	onWebs := []any{value.NewMap("web*", []any{"test.*"})}
	for _, tt := range []struct {
		name        string
		permissions []any
		tgt         any
		typ, fun    string
		master      bool // order_masters
		minion      string
		want        error // nil: he may
		target      any   // what is published; nil: as asked for
	}{
		{name: "all on all", permissions: everything, tgt: "*", typ: "glob", fun: "cmd.run"},
		{
			name:        "a pattern becomes a list",
			permissions: everything,
			tgt:         "web*",
			typ:         "glob",
			fun:         "cmd.run",
			target:      []any{"web1", "web2"},
		},
		{
			name:        "grains as well",
			permissions: everything,
			tgt:         "os:Debian",
			typ:         "grain",
			fun:         "cmd.run",
			target:      []any{"web1"},
		},
		{
			name:        "lower masters read the target",
			permissions: everything,
			tgt:         "web*",
			typ:         "glob",
			fun:         "cmd.run",
			master:      true,
		},
		{name: "on some", permissions: onWebs, tgt: "web2", typ: "glob", fun: "test.ping", target: []any{"web2"}},
		{
			name:        "on some, asked for all",
			permissions: onWebs,
			tgt:         "*",
			typ:         "glob",
			fun:         "test.ping",
			want:        ErrNotPermitted,
		},
		{
			name:        "on some, another function",
			permissions: onWebs,
			tgt:         "web2",
			typ:         "glob",
			fun:         "cmd.run",
			want:        ErrNotPermitted,
		},
		{
			name:        "on one of two",
			permissions: onWebs,
			tgt:         []any{"web1", "db1"},
			typ:         "list",
			fun:         "test.ping",
			want:        ErrNotPermitted,
		},
		{name: "nothing", tgt: "web1", typ: "glob", fun: "test.ping", want: ErrNotPermitted},
		{name: "what everybody may", tgt: "web1", typ: "glob", fun: findJob, target: []any{"web1"}},
		{
			name:        "a pattern of pillars",
			permissions: everything,
			tgt:         "role:f*",
			typ:         "pillar",
			fun:         "test.ping",
			want:        &Refusal{},
		},
		{
			name:        "a value of a pillar",
			permissions: everything,
			tgt:         "role:front",
			typ:         "pillar",
			fun:         "test.ping",
			target:      []any{"web1"},
		},
		{
			name:        "a pattern of pillars in a nodegroup",
			permissions: everything,
			tgt:         "anyfront",
			typ:         "nodegroup",
			fun:         "test.ping",
			target:      []any{"web1"},
		},
		{
			name:        "the same for a minion",
			permissions: everything,
			tgt:         "anyfront",
			typ:         "nodegroup",
			fun:         "test.ping",
			minion:      "db1",
			want:        &Refusal{},
		},
		{
			name:        "an administrator's nodegroup",
			permissions: everything,
			tgt:         "fronts",
			typ:         "nodegroup",
			fun:         "test.ping",
			target:      []any{"web1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, s := withSteps(t, func(c *Config) { c.OrderMasters = tt.master })
			load := value.NewMap("fun", tt.fun, "arg", []any{}, "tgt", tt.tgt, "tgt_type", tt.typ, "ret", "",
				"jid", "", "user", "mallory")
			j, err := l.New(t.Context(), load)
			check.Must(t, err)
			err = l.Permit(target.NewEffort(t.Context()), j,
				Caller{
					User:        "ann",
					Account:     "ldap/ann",
					Minion:      tt.minion,
					Permissions: tt.permissions,
					Always:      []string{findJob},
				})

			var refusal *Refusal
			if errors.As(tt.want, &refusal) != errors.As(err, &refusal) ||
				refusal == nil && !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err != nil {
				return
			}

			check.Must(t, l.Start(t.Context(), j))
			pub := s.published[0].load
			want := tt.target
			if want == nil {
				want = tt.tgt
			}

			if fmt.Sprint(pub.Value("tgt")) != fmt.Sprint(want) || pub.Str("user") != "ann" {
				t.Errorf("published %v, want the target %v", pub, want)
			}

			if j.Only() != (tt.target != nil) {
				t.Errorf("only: %v", j.Only())
			}
		})
	}
}

// TestNameThatNamesOthers: a name that Salt's list matcher takes for more than itself is not
// published in a list.
func TestNameThatNamesOthers(t *testing.T) {
	t.Parallel()
	j := &Job{Minions: []string{"web1", ",web2,"}}
	if err := j.Restrict(); !errors.Is(err, errNames) || j.Only() {
		t.Errorf("only %v, error %v", j.Only(), err)
	}
}

// TestLimitedLoad: of what a caller without all rights sends, the fields that give a right are
// refused unless the site permits them, and unknown ones give none.
func TestLimitedLoad(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		limits Limits
		field  string
		kwarg  bool
		v      any
		keeps  bool   // the field is in the load
		text   string // of the refusal; "": it is taken
	}{
		{name: "time", field: "to", v: int64(3), keeps: true},
		{name: "no time", field: "to", v: "soon", text: "to must be a number of seconds"},
		{name: "metadata", kwarg: true, field: "metadata", v: value.NewMap("a", "b"), keeps: true},
		{name: "metadata of another form", kwarg: true, field: "metadata", v: "x", text: "must be a map"},
		{
			name:  "executors",
			kwarg: true,
			field: "module_executors",
			v:     []any{"sudo"},
			text:  "saltern_user_publish_fields",
		},
		{name: "no executors", kwarg: true, field: "module_executors", v: []any{}},
		{
			name:   "permitted executors",
			limits: Limits{Fields: []string{"module_executors"}},
			kwarg:  true,
			field:  "module_executors",
			v:      []any{"sudo"},
			keeps:  true,
		},
		{name: "no job cache", kwarg: true, field: "nocache", v: true, text: "saltern_user_publish_fields"},
		{name: "a job cache", kwarg: true, field: "nocache", v: false},
		{
			name:   "another master",
			limits: Limits{Fields: PermittableFields()},
			kwarg:  true,
			field:  "master_id",
			v:      "m2",
			text:   "all rights only",
		},
		{name: "unknown", kwarg: true, field: "colour", v: "red"},
		{name: "a returner", field: "ret", v: "smtp", text: "saltern_user_returners"},
		{
			name:   "a permitted returner",
			limits: Limits{Returners: []string{"smtp"}},
			field:  "ret",
			v:      "smtp",
			keeps:  true,
		},
		{
			name:   "one of two",
			limits: Limits{Returners: []string{"smtp"}},
			field:  "ret",
			v:      "smtp,local_cache",
			text:   "local_cache",
		},
		{
			name:   "any returner",
			limits: Limits{Returners: []string{"*"}},
			field:  "ret",
			v:      "smtp,local_cache",
			keeps:  true,
		},
		{name: "the returner of the site", limits: Limits{ExtJobCache: "redis"}, field: "ret", v: "redis", keeps: true},
		{name: "a returner that is no text", field: "ret", v: []any{"smtp"}, text: "ret must be text"},
		{name: "a field as an argument", field: "arg", v: []any{"__pub_id=web2"}, text: "__pub_id"},
		{
			name:  "a field as a named argument",
			field: "arg",
			v:     []any{value.NewMap("__kwarg__", true, "__pub_user", "root")},
			text:  "__pub_user",
		},
		{
			name:  "a field in a compound job",
			field: "arg",
			v:     []any{[]any{}, []any{[]byte("__pub_jid=1")}},
			text:  "__pub_jid",
		},
		{name: "a map with such a key", field: "arg", v: []any{value.NewMap("__pub_user", "root")}, keeps: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "*", "user", "root", "key", "stolen")
			if tt.kwarg {
				sent.Set("kwargs", value.NewMap(tt.field, tt.v))
			} else {
				sent.Set(tt.field, tt.v)
			}

			load, err := tt.limits.limitLoad(Caller{User: "ann"}, sent)
			if tt.text != "" {
				var refusal *Refusal
				if !errors.As(err, &refusal) || !strings.Contains(refusal.Text, tt.text) {
					t.Fatalf("error %v, want %q", err, tt.text)
				}
				return
			}

			check.Must(t, err)
			in := load
			if tt.kwarg {
				in = load.Map("kwargs")
			}

			if got, ok := in.Get(tt.field); ok != tt.keeps || ok && fmt.Sprint(got) != fmt.Sprint(tt.v) {
				t.Errorf("%s: %v, %v", tt.field, got, ok)
			}

			if _, ok := load.Get("key"); ok || load.Str("user") != "ann" {
				t.Errorf("load: %v", load)
			}
		})
	}
}

// TestFunctions: fun is one function or a list of them, and nothing else.
func TestFunctions(t *testing.T) {
	t.Parallel()
	long := make([]any, MaxFunctions+1)
	for i := range long {
		long[i] = "test.ping"
	}

	for _, tt := range []struct {
		fun  any
		want string
		ok   bool
	}{
		{"test.ping", "[test.ping]", true},
		{[]any{"test.ping", "cmd.run"}, "[test.ping cmd.run]", true},
		{[]any{}, "[]", false},
		{[]any{"test.ping", int64(1)}, "[]", false},
		{nil, "[]", false},
		{value.NewMap(), "[]", false},
		{long, "[]", false},
	} {
		if funs, ok := Functions(value.NewMap("fun", tt.fun)); ok != tt.ok || ok && fmt.Sprint(funs) != tt.want {
			t.Errorf("%.40v: %v, %v", tt.fun, funs, ok)
		}
	}
}

// ask asks the three minions, while answer plays them: it is called with each job that is
// published, and returns what they say, by minion.
func ask(t *testing.T, answer func(fun string, minions []string) map[string]any) (a runner.Answer, took time.Duration) {
	t.Helper()
	bus := event.NewBus(time.Now, 1<<20)
	l, _ := withSteps(t, func(c *Config) {
		c.Bus = bus
		c.Publish = func(_ context.Context, load *value.Map, minions []string) error {
			jid := load.Str("jid")
			for id, ret := range answer(load.Str("fun"), minions) {
				check.Must(t, bus.FireFor(id, event.Tag("job", jid, "ret", id), value.NewMap("return", ret)))
			}
			// Somebody who is no minion says that he is one.
			return bus.FireBy(event.Socket, event.Tag("job", jid, "ret", "web2"), value.NewMap("return", "forged"))
		}
	})

	began := time.Now()
	a, err := l.Ask(t.Context(), runner.Question{Target: "*", TargetType: "glob", Fun: "test.ping"})
	check.Must(t, err)
	return a, time.Since(began)
}

// TestTell: a runner waits for nobody's return.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := event.NewBus(time.Now, 1<<20)
		published := 0
		l, _ := withSteps(t, func(c *Config) {
			c.Bus = bus
			c.Publish = func(_ context.Context, _ *value.Map, minions []string) error {
				published += len(minions)
				return nil
			}
		})
		began := time.Now()
		for target, want := range map[string]int{"web*": 2, "none": 0} {
			n, err := l.Tell(t.Context(), runner.Question{Target: target, TargetType: "glob", Fun: "test.ping"})
			if n != want || err != nil {
				t.Errorf("%s: %d minions, %v", target, n, err)
			}
		}
		if took := time.Since(began); published != 2 || took > time.Second {
			t.Errorf("%d minions got the job, in %s", published, took)
		}
	})
}

// TestAsk: a runner waits for the returns of its job as long as minions run it, and no longer.
func TestAsk(t *testing.T) {
	all := map[string]any{"db1": true, "web1": true, "web2": true}
	some := map[string]any{"db1": true, "web1": true}
	busy := map[string]any{"web2": value.NewMap("jid", "1")}
	idle := map[string]any{"web2": value.NewMap()}
	for _, tt := range []struct {
		name    string
		answers []map[string]any // to the job, and to each question whether it runs
		returns int
		took    time.Duration
	}{
		{"all at once", []map[string]any{all}, 3, 0},
		{"one is away", []map[string]any{some, nil}, 2, 7 * time.Second},
		{"one has lost it", []map[string]any{some, idle}, 2, 5 * time.Second},
		{"one runs it for long", []map[string]any{some, busy, busy, busy, idle}, 2, 11 * time.Second},
		{"nobody", []map[string]any{nil, nil}, 0, 7 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				answer, took := ask(t, func(fun string, minions []string) map[string]any {
					if (n == 0) == (fun == findJob) {
						t.Errorf("publication %d is of %s to %v", n, fun, minions)
					}
					n++
					return tt.answers[n-1]
				})
				if len(answer.Expected) != 3 || len(answer.Returns) != tt.returns {
					t.Errorf("%d of %v: %v", len(answer.Returns), answer.Expected, answer.Returns)
				}

				if ret := answer.Returns["web2"]; ret.Str("return") == "forged" {
					t.Error("what somebody else said is taken for the minion's return")
				}

				if n != len(tt.answers) || took != tt.took {
					t.Errorf("%d publications in %v, want %d in %v", n, took, len(tt.answers), tt.took)
				}
			})
		})
	}
}

// TestStartAndWait: a minion's publish.publish waits for its job, but not longer than it asks for.
func TestStartAndWait(t *testing.T) {
	for returns, want := range map[int]time.Duration{3: 0, 2: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			bus := event.NewBus(time.Now, 1<<20)
			l, _ := withSteps(t, func(c *Config) {
				c.Bus = bus
				c.Publish = func(_ context.Context, load *value.Map, minions []string) error {
					for _, id := range minions[:returns] {
						check.Must(t,
							bus.FireFor(id, event.Tag("job", load.Str("jid"), "ret", id), value.NewMap("return", true)))
					}
					return nil
				}
			})

			j, err := l.New(t.Context(), value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "*", "user", "web1"))
			check.Must(t, err)
			began := time.Now()
			check.Must(t, l.StartAndWait(t.Context(), j, 4*time.Second))

			if took := time.Since(began); took != want {
				t.Errorf("%d returns: %v, want %v", returns, took, want)
			}
		})
	}
}

// changingTargets are saved targets that somebody changes all the time.
type changingTargets struct{ reads int }

// Groups implements SavedTargets.
func (c *changingTargets) Groups() *value.Map {
	c.reads++
	return value.NewMap("mine", []string{"", "web1", "db1"}[min(c.reads, 2)])
}

// TestTargetIsReadOnce: minions get the words of a saved target by which this master has selected
// them, although somebody changes the target meanwhile.
func TestTargetIsReadOnce(t *testing.T) {
	l, _ := withSteps(t, func(c *Config) { c.Targets.Saved = &changingTargets{} })
	j, err := l.New(t.Context(), l.Own("test.ping", nil, "N@mine and *", "compound", ""))
	check.Must(t, err)
	if got := fmt.Sprint(j.Minions, j.spelled); got != "[web1]L@web1 and *" {
		t.Errorf("minions and words: %s", got)
	}
}
