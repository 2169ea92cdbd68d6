package saved

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/audit"
	"saltern/master/internal/acl"
	"saltern/master/internal/batch"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// fleet plays minions: w1 to w10.
type fleet struct {
	mu     sync.Mutex
	jobs   []*value.Map
	by     []User
	states []*batch.State
	own    []batch.Own
	silent map[string]bool // by minion
	fails  map[string]bool // with test=True
	empty  bool
	below  bool          // minions are below syndics, which name none
	hold   chan struct{} // nil: Ask answers at once
	stuck  bool          // a silent minion says without end that it still runs the job
	during func()        // may be nil; called by Ask
	err    error         // of Ask: the job was not started
}

func (f *fleet) minions() (ids []string) {
	for i := range 10 {
		if !f.empty {
			ids = append(ids, fmt.Sprintf("w%d", i+1))
		}
	}
	return ids
}

func (f *fleet) note(load *value.Map, by User) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, load)
	f.by = append(f.by, by)
}

func (f *fleet) Start(_ context.Context, load *value.Map, by User) (string, []string, error) {
	if f.empty {
		return "", nil, nil
	}
	f.note(load, by)
	if f.below {
		return "20260102030405678901", nil, nil
	}
	return "jid", f.minions(), nil
}

func (f *fleet) Ask(ctx context.Context, load *value.Map, by User, _ time.Duration) (string, runner.Answer, error) {
	f.note(load, by)
	if f.during != nil {
		f.during()
	}
	if f.err != nil {
		return "", runner.Answer{}, f.err
	}
	answer := runner.Answer{Expected: f.minions(), Returns: map[string]*value.Map{}}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return "jid", answer, ctx.Err()
		}
	}
	for _, id := range answer.Expected {
		if f.silent[id] {
			continue
		}
		ret := value.NewMap("return", value.NewMap("file_|-a_|-a_|-managed", value.NewMap("result", !f.fails[id], "__id__", "a",
			"changes", value.NewMap(), "comment", "", "__run_num__", int64(0))), "retcode", int64(0))
		if f.fails[id] {
			ret.Set("retcode", int64(2))
		}
		answer.Returns[id] = ret
	}
	if f.stuck {
		<-ctx.Done()
	}
	return "jid", answer, ctx.Err()
}

func (f *fleet) Batch(_ context.Context, own batch.Own, by User, state *batch.State) (string, error) {
	f.note(nil, by)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = append(f.own, own)
	f.states = append(f.states, state)
	return "batch", nil
}

// NextRuns implements Upcoming.
func (f *fleet) NextRuns(int) (map[string][]time.Time, error) {
	return map[string][]time.Time{"nightly": {time.Unix(0, 0).UTC()}}, nil
}

func some(ids ...string) map[string]bool {
	m := map[string]bool{}
	for _, id := range ids {
		m[id] = true
	}
	return m
}

// service returns a Service with the jobs of a test, and its runners.
func service(t *testing.T, f *fleet) (*Service, *runner.Table) {
	t.Helper()
	store := newTestStore(t, "")
	fill(t, store)
	s := New(Config{
		Store:      store,
		Minions:    f,
		Schedule:   f,
		Configured: value.NewMap("fromconfig", "web1"),
		Scheduled:  value.NewMap(),
		Blacklist:  acl.Blacklist{Users: []string{"mallory"}, Modules: []string{"network.*"}},
		Now:        time.Now,
		Log:        slog.New(slog.DiscardHandler),
	})
	table := runner.New()
	s.AddRunners(table)
	return s, table
}

// call calls a runner as somebody.
func callAs(t *testing.T, s *Service, by runner.Caller, fun string, args []any, named *value.Map) (any, error) {
	t.Helper()
	f := functions()[fun]
	c := call{by: by}
	if err := c.bind(f.params, args, named); err != nil {
		return nil, err
	}
	return f.do(t.Context(), s, c)
}

func root() runner.Caller { return runner.Caller{User: "root", All: true, Full: true, Granted: true} }

func TestTestFirst(t *testing.T) {
	for _, c := range []struct {
		name          string
		limits        string
		fails, silent map[string]bool
		refused       string // part of the reason
	}{
		{"all would do", "", nil, nil, ""},
		{"one would fail", "", some("w3"), nil, "1 of 10 minions would fail (job jid): w3: state a"},
		{"one is silent", "", nil, some("w3"), "w3: no answer"},
		{"as many as may", "stop_above: 20,", some("w3"), some("w4"), ""},
		{"one more", "stop_above: 20,", some("w3", "w5"), some("w4"), "3 of 10"},
		{"less than one", "stop_above: 9.9,", some("w3"), nil, "1 of 10"},
		{"zero", "stop_above: 0,", some("w3"), nil, "1 of 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{fails: c.fails, silent: c.silent}
			s, _ := service(t, f)
			s.cfg.Store.mustSet(t, KindJob, "careful", "{target: web, function: state.apply, args: [top], test_first: true, "+c.limits+"}")
			_, err := callAs(t, s, root(), runRunner, []any{"careful"}, value.NewMap())
			if (c.refused == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("error %v, want %q", err, c.refused)
			}
			if got := value.Repr(f.jobs[0].Value("arg")); got != "['top', {'test': True, '__kwarg__': True}]" {
				t.Errorf("the first job has the arguments %s", got)
			}
			switch {
			case c.refused != "" && len(f.jobs) != 1:
				t.Errorf("%d jobs", len(f.jobs))
			case c.refused == "" && (len(f.jobs) != 2 || value.Repr(f.jobs[1].Value("arg")) != "['top']"):
				t.Errorf("jobs %v", f.jobs)
			case c.refused == "" && (f.jobs[1].Str("tgt_type") != "list" || len(f.jobs[1].List("tgt")) != 10):
				t.Errorf("other minions than those of the test get the job: %v", f.jobs[1])
			}
		})
	}
}

func TestBatchOfASavedJob(t *testing.T) {
	for _, c := range []struct {
		name, limits string
		silent       map[string]bool
		size, most   int
		limited      bool
		refused      string
	}{
		{"a number", "batch: 3", nil, 3, 0, false, ""},
		{"a percentage", "batch: 20%", nil, 2, 0, false, ""},
		{"of those who are there", "batch: 50%", some("w1", "w2"), 4, 0, false, ""},
		{"less than one", "batch: 1%", nil, 1, 0, false, ""},
		{"with a limit", "batch: 3, stop_above: 35", some("w1"), 3, 3, true, ""},
		{"too many are away", "batch: 3, stop_above: 10", some("w1", "w2"), 0, 0, false, "2 of 10 minions do not answer"},
		{"all are away", "batch: 3", some("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10"), 0, 0, false, "do not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{silent: c.silent}
			s, _ := service(t, f)
			s.cfg.Store.mustSet(t, KindJob, "slow", "{target: web, function: test.arg, args: [1], kwargs: {a: b}, "+c.limits+"}")
			result, err := callAs(t, s, root(), runRunner, []any{"slow"}, value.NewMap())
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || len(f.states) > 0 {
					t.Errorf("error %v, %d batches", err, len(f.states))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			state := f.states[0]
			if state.Size != c.size || state.Limited != c.limited || state.MostFailures != c.most && c.limited ||
				len(state.Pending) != 10-len(c.silent) || len(state.Failed) != len(c.silent) {
				t.Errorf("state %+v", state)
			}
			if got := value.Repr(f.own[0].Arg); got != "[1, {'a': 'b', '__kwarg__': True}]" {
				t.Errorf("arguments %s", got)
			}
			if m, _ := result.(*value.Map); m.Str("jid") != "batch" || len(m.List("minions")) != 10-len(c.silent) ||
				len(m.List("down")) != len(c.silent) {
				t.Errorf("result %s", value.Repr(m))
			}
		})
	}
}

// TestRunNamesTheSavedJob: each job of a run, the ping and the test included, tells which saved job runs, and by
// which entry of the schedule.
func TestRunNamesTheSavedJob(t *testing.T) {
	for limits, jobs := range map[string]int{"": 1, ", batch: 3": 2, ", test_first: true": 2, ", test_first: true, batch: 3": 3} {
		for _, entry := range []string{"", "nightly"} {
			f := &fleet{}
			s, _ := service(t, f)
			s.cfg.Store.mustSet(t, KindJob, "apply", "{target: web, function: state.apply"+limits+"}")
			c := call{by: root(), schedule: entry}
			if err := c.bind(functions()[runRunner].params, []any{"apply"}, value.NewMap()); err != nil {
				t.Fatal(err)
			}
			if _, err := run(t.Context(), s, c); err != nil {
				t.Fatal(err)
			}
			if len(f.by) != jobs {
				t.Errorf("%q: %d jobs, want %d", limits, len(f.by), jobs)
			}
			for i, by := range f.by {
				if by.Saved.Str("job") != "apply" || by.Saved.Str("schedule") != entry {
					t.Errorf("%q, job %d: %s", limits, i, value.Repr(by.Saved))
				}
			}
		}
	}
}

// TestTestIsObeyed: with test=True nothing runs that would do its work.
func TestTestIsObeyed(t *testing.T) {
	f := &fleet{}
	s, _ := service(t, f)
	s.cfg.Store.mustSet(t, KindJob, "ping", "{target: web, function: test.ping}")
	if _, err := callAs(t, s, root(), runRunner, []any{"ping"}, value.NewMap("test", true)); err == nil || len(f.jobs) > 0 {
		t.Errorf("test.ping runs with test=True: %v", err)
	}
	if _, err := callAs(t, s, root(), runRunner, []any{"deploy"}, value.NewMap("test", "True")); err == nil {
		t.Error("a text is taken for test")
	}
	if _, err := callAs(t, s, root(), runRunner, []any{"deploy"}, value.NewMap("test", true)); err != nil {
		t.Error(err)
	}
	if got := value.Repr(f.jobs[0].Value("arg")); got != "['top', {'test': True, '__kwarg__': True}]" {
		t.Errorf("arguments %s", got)
	}
}

// TestManyRunsWait: runs that wait for minions leave runners for others.
func TestManyRunsWait(t *testing.T) {
	f := &fleet{hold: make(chan struct{})}
	s, _ := service(t, f)
	s.cfg.Store.mustSet(t, KindJob, "careful", "{target: web, function: state.apply, test_first: true}")
	person := root()
	person.Name, person.Person = "root", true
	const callers = 3000
	errs := make(chan error, callers)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			_, err := callAs(t, s, person, runRunner, []any{"careful"}, value.NewMap())
			errs <- err
		})
	}
	const slots = 8
	for range callers - slots {
		if err := <-errs; !errors.Is(err, batch.ErrAsking) {
			t.Fatal(err)
		}
	}
	close(f.hold)
	all.Wait()
	for range slots {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestPingHasAnEnd: one minion that works on its ping for ever does not hold up the others.
func TestPingHasAnEnd(t *testing.T) {
	f := &fleet{stuck: true, silent: some("w3")}
	s, _ := service(t, f)
	s.cfg.Store.mustSet(t, KindJob, "slow", "{target: web, function: test.arg, batch: 3}")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, err := functions()[runRunner].do(ctx, s, call{by: root(), args: map[string]any{"name": "slow"}, more: value.NewMap()})
		if took := time.Since(begin); err != nil || took != pingWithin {
			t.Fatalf("after %s: %v", took, err)
		}
	})
	if state := f.states[0]; len(state.Pending) != 9 || state.Failed["w3"] == "" {
		t.Errorf("state %+v", state)
	}
}

// TestJobThatChangesMeanwhile: what somebody deletes, changes or withdraws while minions are asked does
// not run any more.
func TestJobThatChangesMeanwhile(t *testing.T) {
	const may = "may_run: {pam: [ann]}"
	for _, c := range []struct {
		name string
		do   func(d *draft) error
		runs bool
	}{
		{"nothing", func(*draft) error { return nil }, true},
		{"another object", func(d *draft) error { return d.remove(KindSchedule, "nightly", nil) }, true},
		{"deleted", func(d *draft) error { return d.remove(KindJob, "careful", nil) }, false},
		{"changed", func(d *draft) error {
			return d.set(KindJob, "careful", parse(t, "{target: web, function: state.apply, test_first: true, args: [x], "+may+"}"), nil)
		}, false},
		{"withdrawn", func(d *draft) error {
			return d.set(KindJob, "careful", parse(t, "{target: web, function: state.apply, test_first: true}"), nil)
		}, false},
		{"its target", func(d *draft) error { return d.set(KindTarget, "web", parse(t, "{expression: 'db*'}"), nil) }, false},
		{"a target in its target", func(d *draft) error {
			return d.set(KindTarget, "inner", parse(t, "{expression: 'db*'}"), nil)
		}, false},
	} {
		for _, limits := range []string{"test_first: true", "batch: 3"} {
			t.Run(c.name+", "+limits, func(t *testing.T) {
				f := &fleet{}
				s, _ := service(t, f)
				s.cfg.Store.mustSet(t, KindTarget, "inner", webTarget)
				s.cfg.Store.mustSet(t, KindTarget, "web", "{expression: 'N@inner and w*', type: compound}")
				s.cfg.Store.mustSet(t, KindJob, "careful", "{target: web, function: state.apply, "+limits+", "+may+"}")
				other := newTestStore(t, s.cfg.Store.file.Path) // another master
				f.during = func() {
					_, err := other.change(t.Context(), "bob", c.do)
					check.Must(t, err)
					f.during = nil
				}

				by := runner.Caller{User: "ann", Name: "ann", Eauth: "pam", Person: true}
				_, err := callAs(t, s, by, runRunner, []any{"careful"}, value.NewMap())
				_, refused := errors.AsType[invalid](err)
				if c.runs != (err == nil) || !c.runs && (!refused || !strings.Contains(err.Error(), "was changed")) {
					t.Errorf("error %v", err)
				}
				if !c.runs && (len(f.jobs) != 1 || len(f.states) > 0) {
					t.Errorf("%d jobs and %d batches", len(f.jobs), len(f.states))
				}
			})
		}
	}
}

// TestRunThatIsCutOff: answers that are missing because the master stops are no answers.
func TestRunThatIsCutOff(t *testing.T) {
	for _, limits := range []string{"test_first: true", "batch: 3"} {
		f := &fleet{silent: some("w3")}
		s, _ := service(t, f)
		s.cfg.Store.mustSet(t, KindJob, "careful", "{target: web, function: state.apply, stop_above: 99, "+limits+"}")
		ctx, cancel := context.WithCancel(t.Context())
		f.during = cancel
		run := call{by: root(), args: map[string]any{"name": "careful"}, more: value.NewMap()}
		_, err := functions()[runRunner].do(ctx, s, run)
		if !errors.Is(err, context.Canceled) || len(f.jobs) != 1 || len(f.states) > 0 {
			t.Errorf("%s: error %v, %d jobs", limits, err, len(f.jobs))
		}

		// A job that cannot be started in time is no job without minions.
		f.during = nil
		f.err = context.DeadlineExceeded
		_, err = functions()[runRunner].do(t.Context(), s, run)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", limits, err)
		}
	}
}

// TestUsualBlacklist: the list of Salt's own example, which wants people to use sudo, stops nobody who
// does, and no schedule.
func TestUsualBlacklist(t *testing.T) {
	s, _ := service(t, &fleet{})
	s.cfg.Blacklist.Users = []string{"root", "^(?!sudo_).*$"}
	for _, c := range []struct {
		name string
		by   runner.Caller
		runs bool
	}{
		{"schedule", root(), true},
		{"sudo", runner.Caller{User: "ann", Name: "sudo_ann", Person: true, All: true, Full: true}, true},
		{"root", runner.Caller{User: "root", Name: "root", Person: true, All: true, Full: true}, false},
		{"user", runner.Caller{User: "ann", Name: "ann", Eauth: "pam", Person: true, Full: true}, false},
	} {
		_, err := callAs(t, s, c.by, runRunner, []any{"deploy"}, value.NewMap())
		if (err == nil) != c.runs || err != nil && !strings.Contains(err.Error(), "blacklist") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestRunOfNobodyKnown: a job that has started is recorded as started, also if no syndic names its minions, or if the
// caller has left. The error leads to it.
func TestRunOfNobodyKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		leaves bool
		says   string
	}{
		"nobody is named":   {false, "job 20260102030405678901 has started; look at it before you start it again"},
		"the caller leaves": {true, "job 20260102030405678901 has started, and nobody waited for its minions"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log := audit.Open(audit.Config{Dir: dir, Node: "n1", Program: "test"})
			s, _ := service(t, &fleet{below: true})
			s.cfg.Audit = log
			s.cfg.Store.mustSet(t, KindJob, "low", "{target: web, function: test.ping}")

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if tt.leaves {
				leave()
			}
			c := call{by: root()}
			f := functions()[runRunner]
			check.Must(t, c.bind(f.params, []any{"low"}, value.NewMap()))
			_, err := f.do(ctx, s, c)
			if err == nil || !strings.HasPrefix(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}

			log.Close()
			recorded, err := audit.Read(t.Context(), "n1", audit.Query{Action: runRunner}, dir)
			check.Must(t, err)
			if r := recorded.Records; len(r) != 1 || r[0].Result != audit.Started || r[0].JID != "20260102030405678901" {
				t.Errorf("recorded: %+v", r)
			}
		})
	}
}

func TestRefusedRuns(t *testing.T) {
	f := &fleet{}
	s, _ := service(t, f)
	s.cfg.Store.mustSet(t, KindJob, "net", "{target: web, function: network.ping, may_run: {pam: ['*']}}")
	s.cfg.Store.mustSet(t, KindJob, "open", "{target: web, function: test.ping, may_run: {pam: ['*']}}")
	for _, c := range []struct {
		by   runner.Caller
		name string
		text string
	}{
		{root(), "net", "blacklist"},
		{runner.Caller{Name: "mallory", Eauth: "pam"}, "open", "blacklist"},
		{runner.Caller{User: "ann", Name: "ann", Eauth: "pam"}, "deploy", "that ann"},
		{root(), "nothing", "no saved job"},
	} {
		_, err := callAs(t, s, c.by, runRunner, []any{c.name}, value.NewMap())
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	f.empty = true
	if _, err := callAs(t, s, root(), runRunner, []any{"deploy"}, value.NewMap()); !errors.Is(err, errNobody) {
		t.Errorf("nobody: %v", err)
	}
	f.empty = false
	if _, err := callAs(t, s, runner.Caller{User: "x", Name: "ann", Eauth: "pam"}, runRunner, []any{"open"}, value.NewMap()); err != nil {
		t.Error(err)
	}
	by := f.by[len(f.by)-1]
	by.Saved = nil
	if by != (User{Name: "ann", Eauth: "pam", Limited: true}) {
		t.Errorf("the job runs for %+v", by)
	}
}

// TestExportAndImport: what is exported can be imported elsewhere, all or nothing, and twice.
func TestExportAndImport(t *testing.T) {
	s, _ := service(t, &fleet{})
	text, err := callAs(t, s, root(), "saved.export", nil, value.NewMap())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := service(t, &fleet{})
	other.cfg.Store = newTestStore(t, "")
	imported := func(named *value.Map) (string, error) {
		v, err := callAs(t, other, root(), "saved.import", []any{text}, named)
		m, _ := v.(*value.Map)
		return value.Repr(m.Value("changed")), err
	}

	all := "['target web', 'job deploy', 'schedule nightly']"
	if got, err := imported(value.NewMap("test", true)); got != all || err != nil || other.cfg.Store.Objects().Version != 0 {
		t.Errorf("with test: %s, %v", got, err)
	}
	if got, err := imported(value.NewMap()); got != all || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := imported(value.NewMap()); got != "[]" || err != nil {
		t.Errorf("again: %s, %v", got, err)
	}
	again, err := callAs(t, other, root(), "saved.export", nil, value.NewMap())
	if err != nil || again != text {
		t.Errorf("exported again:\n%v\n%v", again, err)
	}

	other.cfg.Store.mustSet(t, KindTarget, "web", "{expression: 'other*'}")
	if _, err := imported(value.NewMap()); err == nil || !strings.Contains(err.Error(), "replace=True") {
		t.Errorf("over another one: %v", err)
	}
	if got, err := imported(value.NewMap("replace", true)); got != "['target web']" || err != nil {
		t.Errorf("replaced: %s, %v", got, err)
	}
	for _, bad := range []any{"- a", "{targets: []}", "{hosts: {}}", "{targets: {web: x}}", "{targets: {'a b': {expression: x}}}",
		"{jobs: {j: {target: nothing, function: a.b}}}", "{", "!!python/object:os.system x", int64(7), strings.Repeat("a", maxFile+1)} {
		if _, err := callAs(t, other, root(), "saved.import", []any{bad}, value.NewMap()); err == nil {
			t.Errorf("%.60v is imported", bad)
		}
	}
}

func TestRunnersThemselves(t *testing.T) {
	s, table := service(t, &fleet{})
	for fun := range functions() {
		if !runner.OfMaster(fun) {
			t.Errorf("salt-run does not know %s", fun)
		}
	}
	// Nobody who is not known may run anything: a minion, or a caller that the master has not named.
	if _, err := table.Call(t.Context(), &runner.Env{}, runRunner, []any{"deploy"}, nil); err == nil {
		t.Error("a job runs for nobody")
	}
	for _, c := range []struct {
		fun   string
		args  []any
		named *value.Map
		want  string
	}{
		{"saved.next", nil, value.NewMap("count", int64(1)), "{'nightly': ['1970-01-01T00:00:00Z']}"},
		{"saved.show", []any{"targets", "web"}, value.NewMap(), "'expression': 'web*'"},
		{"saved.delete", []any{"schedule", "nightly"}, value.NewMap(), "True"},
		{"saved.schedules", nil, value.NewMap(), "{}"},
		{"saved.set_schedule", []any{"s"}, value.NewMap("function", "test.arg", "minutes", int64(5), "enabled", false), "'enabled': False"},
		{"saved.set_schedule", []any{"begin"}, value.NewMap("function", "test.arg", "when", "2020-01-01T00:00:00", "run_on_start", true),
			"'enabled': True"},
		{"saved.set_target", []any{"fromconfig", "x*"}, value.NewMap(), "counts before this one"},
	} {
		got, err := callAs(t, s, root(), c.fun, c.args, c.named)
		if err != nil || !strings.Contains(value.Repr(got), c.want) {
			t.Errorf("%s: %s, %v", c.fun, value.Repr(got), err)
		}
	}
	for _, c := range []struct {
		fun   string
		args  []any
		named *value.Map
	}{
		{"saved.show", []any{"hosts", "web"}, value.NewMap()},
		{"saved.show", []any{"target"}, value.NewMap()},
		{"saved.show", []any{"target", int64(5)}, value.NewMap()},
		{"saved.set_target", []any{"a", "b", "glob", "", int64(0), "x"}, value.NewMap()},
		{"saved.set_target", []any{"web", "b"}, value.NewMap("revision", int64(0))},
		{"saved.set_target", []any{"web", "b"}, value.NewMap("revision", "1")},
		{"saved.set_target", []any{"a"}, value.NewMap("expression", "b", "name", "c")},
		{"saved.set_schedule", []any{"past"}, value.NewMap("function", "test.arg", "once", "2020-01-01T00:00:00")},
		{"saved.set_schedule", []any{"past"}, value.NewMap("function", "test.arg", "when", "2020-01-01T00:00:00")},
		{"saved.next", nil, value.NewMap("count", int64(0))},
		{"saved.run", []any{"deploy"}, value.NewMap("sls", "a", "fields", value.NewMap("sls", "b"))},
		{"saved.run", []any{"deploy"}, value.NewMap("fields", "x")},
	} {
		if got, err := callAs(t, s, root(), c.fun, c.args, c.named); err == nil {
			t.Errorf("%s %v: %s", c.fun, c.args, value.Repr(got))
		}
	}
}

// TestRunOfRevision: whoever says which revision he has seen runs that one or nothing.
func TestRunOfRevision(t *testing.T) {
	f := &fleet{}
	s, _ := service(t, f)
	s.cfg.Store.mustSet(t, KindJob, "ping", "{target: web, function: test.ping}")
	seen := s.cfg.Store.Newest(t.Context()).Get(KindJob, "ping").Revision
	run := func(named *value.Map) error {
		t.Helper()
		f.jobs = nil
		_, err := callAs(t, s, root(), runRunner, []any{"ping"}, named)
		if (err == nil) != (len(f.jobs) > 0) {
			t.Errorf("%s: %v, and %d jobs", value.Repr(named), err, len(f.jobs))
		}
		return err
	}

	for _, named := range []*value.Map{value.NewMap(), value.NewMap("revision", int64(seen))} {
		if err := run(named); err != nil {
			t.Errorf("%s: %v", value.Repr(named), err)
		}
	}

	s.cfg.Store.mustSet(t, KindJob, "ping", "{target: web, function: test.version}")
	for _, revision := range []any{int64(seen), int64(0), int64(-1), int64(1 << 62), "1", true, 1.0} {
		if err := run(value.NewMap("revision", revision)); err == nil {
			t.Errorf("revision %v runs", revision)
		}
	}
	if err := run(value.NewMap("revision", int64(seen))); err == nil || !strings.Contains(err.Error(), "nothing was run") {
		t.Errorf("%v", err)
	}
}
