package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/pattern"
	"saltern/master/value"
)

var m = value.NewMap

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lab is the job cache that testdata/python.json was recorded with.
func lab(t testing.TB) jobs.Cache {
	t.Helper()
	ctx := context.Background()
	c, err := jobs.Open(jobs.Config{Dir: filepath.Join(t.TempDir(), "jobs")}, slog.New(slog.DiscardHandler))
	ok(t, err)
	t.Cleanup(func() { c.Close(ctx) })
	save := func(jid, id string, ret any, code int, good bool, out any) {
		_, err := c.SaveReturn(ctx,
			jobs.Return{JID: jid, ID: id, Data: m("return", ret, "retcode", code, "success", good), Out: out})
		ok(t, err)
	}

	a, b, d := "20261121080509316776", "20261121090000000001", "20261121090100000002"
	ok(t,
		c.SaveLoad(ctx, a, m("cmd", "publish", "tgt", "*", "fun", "state.apply", "arg", []any{"hello",
			m("__kwarg__", true, "pillar", m("x", 1))},
			"tgt_type", "glob", "ret", "", "jid", a, "kwargs", m("show_timeout", true, "delimiter", ":",
				"metadata", m("k", "v")), "user", "root"), []string{"min7", "min6", "min8"}))

	save(a, "min6",
		m("file_|-a_|-b_|-managed", m("result", true, "changes", m(), "comment", "ok", "__run_num__", 0)), 0,
		true, "highstate")
	save(a, "min7", m(), 1, false, nil)
	ok(t, c.UpdateEndtime(ctx, a, "2026, Nov 21 08:05:12.000001"))
	ok(t,
		c.SaveLoad(ctx, b,
			m("tgt", []any{"min6", "min8"}, "tgt_type", "list", "fun", "test.ping", "arg", []any{}, "jid", b,
				"user", "sudo_fred"),
			[]string{"min6", "min8"}))

	save(b, "min6", true, 0, true, nil)
	save(b, "min8", false, 0, true, nil)
	ok(t,
		c.SaveLoad(ctx, d,
			m("tgt", "min6", "tgt_type", "glob", "fun", "saltutil.find_job", "arg", []any{b}, "jid", d, "user", "root"),
			[]string{"min6"}))

	return c
}

// fake stands in for the rest of the master.
type fake struct {
	accepted  []string
	connected map[string]string
	bank      map[string]map[string]*value.Map
	answer    Answer
	asked     []Question
	deleted   []string
	calls     []string
}

func (f *fake) Accepted() []string           { return f.accepted }
func (f *fake) Delete(id string) error       { f.deleted = append(f.deleted, id); return nil }
func (f *fake) Connected() map[string]string { return f.connected }
func (f *fake) Ask(_ context.Context, q Question) (Answer, error) {
	f.asked = append(f.asked, q)
	return f.answer, nil
}
func (f *fake) Tell(_ context.Context, q Question) (int, error) {
	f.asked = append(f.asked, q)
	return len(f.answer.Expected), nil
}
func (f *fake) Match(tgt any, typ string) ([]string, error) {
	var out []string
	for _, id := range f.accepted {
		if s, _ := tgt.(string); pattern.Glob(s, id) {
			out = append(out, id)
		}
	}
	return out, nil
}
func (f *fake) MatchExact(expr string) ([]string, error) {
	if expr == "broken" {
		return nil, errors.New("broken")
	}
	return f.Match(expr, "compound")
}
func (f *fake) Get(b, id string) (*value.Map, bool) { v, ok := f.bank[b][id]; return v, ok }
func (f *fake) Set(b, id string, v *value.Map) error {
	if f.bank[b] == nil {
		f.bank[b] = map[string]*value.Map{}
	}
	f.bank[b][id] = v
	return nil
}
func (f *fake) Flush(b, id string) error       { delete(f.bank[b], id); return nil }
func (f *fake) IDs(b string) ([]string, error) { return sortedKeys(f.bank[b]), nil }
func (f *fake) Backends(names any) []string {
	if names == nil {
		return []string{"roots", "git"}
	}
	return splitInput(names)
}
func (f *fake) Call(_ context.Context, cmd string, load *value.Map) (any, error) {
	f.calls = append(f.calls, cmd+" "+JSON(load, false))
	return []any{"top.sls"}, nil
}
func (f *fake) Envs(_ context.Context, b string) ([]string, error) {
	if b == "git" {
		return []string{"dev", "base"}, nil
	}
	return []string{"base"}, nil
}
func (f *fake) Update(_ context.Context, b []string) error {
	f.calls = append(f.calls, fmt.Sprint("update ", b))
	return nil
}
func (f *fake) ClearCache(_ context.Context, b string) (bool, error) {
	if b == "broken" {
		return true, errors.New("disk on fire")
	}
	return b == "git", nil
}
func (f *fake) ClearLists(_ context.Context, b, envs []string) (map[string][]string, error) {
	f.calls = append(f.calls, fmt.Sprint("lists ", b, envs))
	return map[string][]string{"roots": {"dev", "base"}}, nil
}
func (f *fake) Compile(_ context.Context, id string, grains *value.Map, saltenv, pillarenv string) (*value.Map, error) {
	return m("id", id, "grains", grains, "saltenv", saltenv, "pillarenv", pillarenv), nil
}
func (f *fake) Cached(id, env string) (*value.Map, bool) {
	p, ok := f.bank["pillar"][id]
	if env != "" {
		p = m("env", env)
	}
	return p, ok
}
func (f *fake) Caches() bool { return f.bank["pillar"] != nil }
func (f *fake) Top(_ context.Context, id string, grains *value.Map, saltenv string) (*value.Map, []string, error) {
	if id == "bad" {
		return nil, []string{"no top"}, nil
	}
	return m("base", []any{id, grains}), nil, nil
}

func environment(f *fake) *Env {
	return &Env{
		Minions: f, Cache: f, Targets: f, Keys: f, Presence: f, Files: f, Pillar: f, Version: "3008.3",
		Options: m("job_cache_store_endtime", true, "file_roots",
			m("base", []any{"/srv/salt", "/srv/spm/salt"}), "list", []any{m("a", 1), m("b", m("c", 2))}),
		Log: slog.New(slog.DiscardHandler),
	}
}

// argument parses a word of a command line; it replaces the real parser, which this package does
// not import.
func argument(s string) any {
	var v any
	s = strings.NewReplacer("False", "false", "True", "true").Replace(s)
	if !jobs.Valid(s) && json.Unmarshal([]byte(s), &v) == nil {
		return fromJSON(v)
	}
	return s
}

func fromJSON(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = fromJSON(v[i])
		}
	case map[string]any:
		out := m()
		for k, e := range v {
			out.Set(k, fromJSON(e))
		}
		return out
	}

	return v
}

func toJSON(t testing.TB, v any) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(JSON(v, false)), &out); err != nil {
		t.Fatalf("%s: %v", JSON(v, false), err)
	}
	return out
}

// The answers are those of Python's salt-run 3008.3 on the same job cache.
func TestSameAsPython(t *testing.T) {
	b, err := os.ReadFile("testdata/python.json")
	ok(t, err)
	var cases []struct {
		Args []string
		Want any
	}

	ok(t, json.Unmarshal(b, &cases))
	env := environment(&fake{})
	env.Jobs = lab(t)
	table := New()
	for _, c := range cases {
		t.Run(strings.Join(c.Args, " "), func(t *testing.T) {
			var args []any
			kwargs := m()
			for _, a := range c.Args[1:] {
				if k, v, isNamed := strings.Cut(a, "="); isNamed {
					kwargs.Set(k, argument(v))
				} else {
					args = append(args, argument(a))
				}
			}

			got, err := table.Call(context.Background(), env, c.Args[0], args, kwargs)
			if err != nil {
				var unknown *UnknownError
				if !errors.As(err, &unknown) {
					t.Fatal(err)
				}
				got = err.Error()
			}

			if got := toJSON(t, got); !reflect.DeepEqual(got, c.Want) {
				want, _ := json.Marshal(c.Want)
				have, _ := json.Marshal(got)
				t.Errorf("got  %s\nwant %s", have, want)
			}
		})
	}
}

func TestCalls(t *testing.T) {
	grains := func() *fake {
		return &fake{
			accepted:  []string{"a", "b", "web1"},
			connected: map[string]string{"web1": "10.0.0.2", "a": "10.0.0.1"},
			bank: map[string]map[string]*value.Map{
				"grains": {"a": m("os", "Debian"), "b": m("os", "x")},
				"pillar": {"a": m("secret", 1)},
				"mine":   {"a": m("f", 1, "g", 2), "web1": m("f", 3)},
			},
			answer: Answer{Expected: []string{"web1", "a", "b"}, Returns: map[string]*value.Map{
				"a":    m("return", "3008.3", "retcode", 0),
				"web1": m("return", "3006.28", "retcode", 0),
				"new":  m("return", "3009.0rc1", "retcode", 0),
			}},
		}
	}

	for _, c := range []struct {
		fun    string
		args   []any
		kwargs *value.Map
		want   string
	}{
		{"manage.present", nil, nil, `["a", "web1"]`},
		{"manage.alived", nil, m("show_ip", true), `{"a": "10.0.0.1", "web1": "10.0.0.2"}`},
		{"manage.list_state", nil, m("subset", "web1,b"), `["web1"]`},
		{"manage.not_present", nil, nil, `["b"]`},
		{"manage.not_reaped", nil, m("subset", []any{"a"}), `[]`},
		{"manage.up", nil, nil, `["a", "new", "web1"]`},
		{"manage.down", nil, nil, `["b"]`},
		{"manage.status", nil, nil, `{"up": ["a", "new", "web1"], "down": ["b"]}`},
		{"manage.versions", nil, nil,
			`{"Up to date": {"a": "3008.3"}, "Minion requires update": {"web1": "3006.28"}, "Minion newer than master": {"new": "3009.0rc1"}, "Minion offline": {"b": false}, "Master": "3008.3"}`},
		{"cache.grains", []any{"*"}, nil, `{"a": {"os": "Debian"}, "b": {"os": "x"}, "web1": {}}`},
		{"cache.grains", []any{"*"}, m("saltern_only", "os,a:b"), `{"a": {"os": "Debian"}, "b": {"os": "x"}, "web1": {}}`},
		{"cache.grains", []any{"a"}, m("saltern_only", []any{"kernel"}), `{"a": {}}`},
		{"cache.pillar", nil, nil, `{"a": {"secret": 1}, "b": {}}`},
		{"cache.mine", []any{"web*"}, nil, `{"web1": {"f": 3}}`},
		{"cache.list", []any{"mine"}, nil, `["a", "web1"]`},
		{"cache.fetch", []any{"mine", "a"}, nil, `{"f": 1, "g": 2}`},
		{"cache.fetch", []any{"mine", "zzz"}, nil, `{}`},
		{"cache.flush", []any{"mine", "a"}, nil, `true`},
		{"cache.flush", []any{"mine", "zzz"}, nil, `false`},
		{"cache.flush", []any{"mine"}, nil, `true`},
		{"cache.clear_all", nil, nil, `false`},
		{"fileserver.envs", nil, nil, `["base", "dev"]`},
		{"fileserver.envs", nil, m("sources", true), `["git", "roots"]`},
		{"fileserver.envs", nil, m("backend", "roots"), `["base"]`},
		{"fileserver.file_list", nil, nil, `["top.sls"]`},
		{"fileserver.update", nil, nil, `true`},
		{"fileserver.clear_cache", nil, nil, `{"cleared": ["The git fileserver cache was successfully cleared"]}`},
		{"fileserver.clear_cache", nil, m("backend", "roots"), `"No cache was cleared"`},
		{"fileserver.clear_cache", nil, m("backend", "git,broken"),
			`{"cleared": ["The git fileserver cache was successfully cleared"], "errors": ["disk on fire"]}`},
		{"fileserver.clear_file_list_cache", nil, nil, `{"roots": ["base", "dev"]}`},
		{"fileserver.clear_lock", nil, nil, `"No locks were removed"`},
		{"fileserver.lock", nil, nil, `"No locks were set"`},
		{"pillar.show_pillar", []any{"a"}, m("role", "db", "pillarenv", "dev"),
			`{"id": "a", "grains": {"os": "Debian", "role": "db"}, "saltenv": "base", "pillarenv": "dev"}`},
		{"pillar.show_pillar", nil, nil, `{"id": "*", "grains": {"fqdn": "*"}, "saltenv": "base", "pillarenv": ""}`},
		{"pillar.show_top", nil, nil, `{"base": ["", {"os": "Debian"}]}`},
		{"pillar.show_top", []any{"b"}, nil, `{"base": ["b", {"os": "x"}]}`},
		{"pillar.show_top", []any{"bad"}, nil, `["no top"]`},
		{"match.compound_matches", []any{"web*", "web1"}, nil, `{"res": "web1"}`},
		{"match.compound_matches", []any{"broken", "web1"}, nil, `{"res": false}`},
		{"config.get", []any{"list:b:c"}, nil, `2`},
		{"config.get", []any{"list:-1:b"}, nil, `{"c": 2}`},
		{"config.get", []any{"list/9"}, m("delimiter", "/"), `""`},
		{"config.get", []any{"file_roots:base:x"}, m("default", nil), `null`},
		{"test.stdout_print", nil, nil, `"bar"`},
	} {
		t.Run(c.fun, func(t *testing.T) {
			got, err := New().Call(context.Background(), environment(grains()), c.fun, c.args, c.kwargs)
			ok(t, err)
			if j := JSON(got, false); j != c.want {
				t.Errorf("got  %s\nwant %s", j, c.want)
			}
		})
	}
}

func TestClear(t *testing.T) {
	state := func() *fake {
		f := &fake{accepted: []string{"a", "b"}, bank: map[string]map[string]*value.Map{}}
		for _, b := range []string{"grains", "pillar", "mine"} {
			f.Set(b, "a", m("f", 1, "g", 2))
		}
		f.Set("mine", "b", m("f", 1)) // no grains: Salt leaves it alone
		return f
	}

	for fun, want := range map[string]string{
		"cache.clear_grains":    "mine[a b] pillar[a]",
		"cache.clear_pillar":    "grains[a] mine[a b]",
		"cache.clear_mine":      "grains[a] mine[b] pillar[a]",
		"cache.clear_all":       "mine[b]",
		"cache.clear_mine_func": "grains[a] mine[a b] pillar[a]",
	} {
		f := state()
		before := f.bank["mine"]["a"]
		kwargs := m()
		if strings.HasSuffix(fun, "func") {
			kwargs.Set("clear_mine_func_flag", "f")
		}

		got, err := New().Call(context.Background(), environment(f), fun, []any{"*"}, kwargs)
		if err != nil || got != true {
			t.Errorf("%s: %v, %v", fun, got, err)
		}

		var have []string
		for _, b := range sortedKeys(f.bank) {
			if len(f.bank[b]) > 0 {
				have = append(have, fmt.Sprint(b, sortedKeys(f.bank[b])))
			}
		}

		if strings.Join(have, " ") != want {
			t.Errorf("%s leaves %v", fun, have)
		}

		if strings.HasSuffix(fun, "func") && (before.Len() != 2 || f.bank["mine"]["a"].Len() != 1) {
			t.Errorf("mine of a: %v; the shared map: %v", f.bank["mine"]["a"].Keys(), before.Keys())
		}
	}
}

func TestDownRemovesKeys(t *testing.T) {
	f := &fake{
		accepted: []string{"a", "b"},
		answer:   Answer{Expected: []string{"b", "a", "below a syndic"}, Returns: map[string]*value.Map{}},
	}
	_, err := New().Call(context.Background(), environment(f), "manage.down", []any{true}, m("tgt", "x*", "timeout", 3))
	ok(t, err)
	if !slices.Equal(f.deleted, []string{"a", "b"}) || f.asked[0].Target != "x*" ||
		f.asked[0].Timeout != 3*time.Second {
		t.Errorf("deleted %v, asked %+v", f.deleted, f.asked)
	}
}

func TestActive(t *testing.T) {
	const jid = "20261121090000000001"
	job := func(pid int) *value.Map {
		return m("jid", jid, "fun", "test.sleep", "arg", []any{int64(60)}, "tgt", "*", "tgt_type", "glob",
			"user", "root", "pid", int64(pid))
	}

	f := &fake{answer: Answer{Returns: map[string]*value.Map{
		"b": m("return", []any{job(2)}), "a": m("return", []any{job(1)}), "odd": m("return", "text"), "odder": m("return", []any{
			1, m()}),
	}}}

	env := environment(f)
	env.Jobs = lab(t)
	got, err := New().Call(context.Background(), env, "jobs.active", nil, nil)
	ok(t, err)
	want := `{"20261121090000000001": {"Function": "test.sleep", "Arguments": [60], "Target": "*", "Target-type": "glob", "User": "root", "StartTime": "2026, Nov 21 09:00:00.000001", "Running": [{"a": 1}, {"b": 2}], "Returned": ["min6", "min8"]}}`
	if j := JSON(got, false); j != want {
		t.Errorf("got  %s\nwant %s", j, want)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		fun    string
		args   []any
		kwargs *value.Map
		want   string
	}{
		{"nope.nope", nil, nil, "'nope.nope' is not available."},
		{"jobs.lookup_jid", nil, nil,
			"Passed invalid arguments: lookup_jid() missing 1 required positional argument: 'jid'"},
		{"match.compound_matches", nil, nil,
			"Passed invalid arguments: compound_matches() missing 2 required positional arguments: 'expr' and 'minion_id'"},
		{"jobs.master", []any{1}, nil,
			"Passed invalid arguments: master() takes 0 positional arguments but 1 was given"},
		{"jobs.lookup_jid", []any{1, 2, 3, 4, 5, 6, 7}, nil,
			"Passed invalid arguments: lookup_jid() takes from 1 to 5 positional arguments but 7 were given"},
		{"jobs.list_job", []any{"1"}, m("jid", "1"),
			"Passed invalid arguments: list_job() got multiple values for argument 'jid'"},
		{"jobs.list_job", []any{"1"}, m("x", "1"),
			"Passed invalid arguments: list_job() got an unexpected keyword argument 'x'"},
		{"jobs.list_jobs", nil, m("start_time", "soon"), `Passed invalid arguments: start_time: "soon" is not a time`},
		{"error.error", nil, m("name", "ValueError", "message", "x"), "runner error.error: ValueError: x"},
		{"event.send", []any{"t", "no map"}, nil, "Passed invalid arguments: Dict object expected, not 'no map'."},
		{"cache.fetch", []any{"../etc", "x"}, nil,
			`runner cache.fetch: bank "../etc" is not grains, pillar or mine: not available on this master`},
		{"test.sleep", []any{"x"}, nil, "Passed invalid arguments: s_time must be a number of seconds"},
	} {
		env := environment(&fake{})
		env.Jobs = lab(t)
		env.Events = OnBus(event.NewBus(time.Now, 0))
		_, err := New().Call(context.Background(), env, c.fun, c.args, c.kwargs)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.fun, err)
		}
	}

	// Names that start with underscores are Salt's own and never reach a runner.
	got, err := New().Call(context.Background(), environment(&fake{}), "test.arg", nil, m("__pub_user", "x", "a", 1))
	if err != nil || JSON(got, false) != `{"args": [], "kwargs": {"a": 1}}` {
		t.Error(JSON(got, false), err)
	}
}

// A caller that passes arguments that the runner does not have gets the runner's usage. A wrong
// value is a failure.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		fun  string
		args []any
		want any
	}{
		{"jobs.lookup_jid", nil,
			"\nPassed invalid arguments: lookup_jid() missing 1 required positional argument: 'jid'\n\nUsage:\n\n" +
				"    salt-run jobs.lookup_jid jid [ext_source=...] [returned=...] [missing=...] [display_progress=...]\n"},
		{"jobs.master", []any{"x"},
			"\nPassed invalid arguments: master() takes 0 positional arguments but 1 was given\n\nUsage:\n\n    salt-run jobs.master\n"},
		{"test.sleep", []any{"x"}, nil}, {"nope.nope", nil, nil},
	} {
		env := environment(&fake{})
		env.Jobs = lab(t)
		_, err := New().Call(context.Background(), env, c.fun, c.args, nil)
		if got := Result(err); err == nil || got != c.want {
			t.Errorf("%s: %v, %q", c.fun, err, got)
		}
	}

	d := def{params: "a b= * **"}
	if got := UsageOf("x.y", d.params); got != "salt-run x.y a [b=...] [value ...] [name=value ...]" {
		t.Error(got)
	}
}

// If the master lacks all parts, every runner of the table returns a result, or an error that names
// the missing part.
func TestEmptyEnvironment(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range New().Names() {
		args := []any{"grains", "b", m()}
		for {
			_, err := New().Call(ctx, &Env{}, name, args, nil)
			var wrong *ArgumentError
			if errors.As(err, &wrong) && strings.Contains(wrong.Reason, "takes") && len(args) > 0 {
				args = args[:len(args)-1]
				continue
			}

			if err != nil && !errors.Is(err, ErrUnavailable) && !errors.As(err, &wrong) &&
				!errors.Is(err, context.Canceled) {
				var asked *Exception
				if !errors.As(err, &asked) {
					t.Errorf("%s: %v", name, err)
				}
			}

			break
		}
	}
}

func TestStateEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := event.NewBus(time.Now, 0)
		var out bytes.Buffer
		env := environment(&fake{})
		env.Events, env.Out = OnBus(bus), &out
		done := make(chan error)
		go func() {
			_, err := New().Call(context.Background(), env, "state.event", []any{"salt/job/*"}, m("count", 2))
			done <- err
		}()

		synctest.Wait()
		bus.Relay(event.Event{Tag: "other", Data: m("_stamp", "s")})
		bus.Relay(event.Event{
			Tag:  "salt/job/1/new",
			Data: m("b", []any{1, 2.5, nil, "ü\x1b\"<"}, "a", m(), "_stamp", "s"),
		})

		bus.Relay(event.Event{Tag: "salt/job/\x1b[31m", Data: m("_stamp", "s")}) // Attack 26
		ok(t, <-done)
		want := "salt/job/1/new\t{\"b\": [1, 2.5, null, \"ü\\u001b\\\"<\"], \"a\": {}, \"_stamp\": \"s\"}\n" +
			"salt/job/?[31m\t{\"_stamp\": \"s\"}\n"
		if out.String() != want {
			t.Errorf("got  %q\nwant %q", out.String(), want)
		}

		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, err := New().Call(ctx, env, "state.event", nil, nil); done <- err }()
		synctest.Wait()
		cancel()

		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestStreamAndSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := environment(&fake{})
		n := 0
		env.Progress = func(d *value.Map) { n++ }
		begin := time.Now()
		got, err := New().Call(context.Background(), env, "test.stream", nil, nil)
		if got != true || err != nil || n != 99 || time.Since(begin) != 9900*time.Millisecond {
			t.Error(got, err, n, time.Since(begin))
		}

		got, err = New().Call(context.Background(), env, "test.sleep", []any{int64(60)}, nil)
		if got != true || err != nil {
			t.Error(got, err)
		}

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err = New().Call(ctx, env, "test.sleep", []any{int64(60)}, nil); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestJSON(t *testing.T) {
	v := m("z", 1, "a", []any{}, "n", m(), int64(5), 1e16, "f", 1e-7, "t", 2.0, "l", []any{m("x", false)})
	if got, want := JSON(v, false), `{"z": 1, "a": [], "n": {}, "5": 1e+16, "f": 1e-07, "t": 2.0, "l": [{"x": false}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want := "{\n    \"5\": 1e+16,\n    \"a\": [],\n    \"f\": 1e-07,\n    \"l\": [\n        {\n            \"x\": false\n        }\n    ],\n    \"n\": {},\n    \"t\": 2.0,\n    \"z\": 1\n}"
	if got := JSON(v, true); got != want {
		t.Errorf("got %s", got)
	}
}

func TestVersions(t *testing.T) {
	order := []string{"2019.2.3", "3006.1", "3006.28", "3007.15", "3008.0rc1", "3008.0rc2", "3008.0",
		"3008.0+5.gabc", "3008.3"}
	for i, a := range order {
		for j, b := range order {
			if got, want := compareVersions(a, b), min(max(i-j, -1), 1); got != want {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

// TestMinionOfPillarRunners: who may call a runner cannot make up an id that a shell would obey, or that
// leads to another path.
func TestMinionOfPillarRunners(t *testing.T) {
	f := &fake{accepted: []string{"a"}}
	f.accepted = append(f.accepted, "o'neill;web")
	for id, allowed := range map[string]bool{
		"new-web.example.com": true,
		"o'neill;web":         true, // an administrator has accepted it
		"x; reboot":           false,
		"$(reboot)":           false,
		"`reboot`":            false,
		"x|reboot":            false,
		"x\nreboot":           false,
		"--help":              false,
		"../../etc":           false,
		"..":                  false,
		"web*":                false,
		"* ":                  false,
	} {
		for _, fun := range []string{"pillar.show_pillar", "pillar.show_top"} {
			_, err := New().Call(t.Context(), environment(f), fun, []any{id}, nil)
			if (err == nil) != allowed {
				t.Errorf("%s %q: %v", fun, id, err)
			}
		}
	}
}
