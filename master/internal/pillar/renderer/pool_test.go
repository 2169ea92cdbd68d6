package renderer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
)

// python returns a Python with Salt. Without one most of this package cannot
// be tested.
func python(t testing.TB) string {
	p := os.Getenv("SALTERN_PYTHON")
	if p == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test the renderers")
	}
	return p
}

// pool makes a pool over a tree of files; name → content.
func pool(t testing.TB, files map[string]string, change func(*Config)) (*Pool, string) {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	cfg := Config{
		Python: []string{python(t)},
		Overrides: value.NewMap("id", "themaster", "root_dir", root, "cachedir", root+
			"/cache", "extension_modules", root+"/ext",
			"pillar_roots", value.NewMap("base", []any{root +
				"/pillar"}), "file_roots", value.NewMap("base", []any{root + "/salt"})),
	}

	if change != nil {
		change(&cfg)
	}

	p := New(cfg)
	t.Cleanup(p.Close)
	return p, root
}

func render(t testing.TB, p *Pool, id string, grains *value.Map, text string) (any, error) {
	t.Helper()
	s, err := p.Session(t.Context(), Minion{ID: id, Grains: grains})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Render(t.Context(), Template{Text: text, Pillar: true, SLS: "test"})
}

const customModule = `
import functools
SEEN = []
@functools.lru_cache(maxsize=None)
def _cached():
    return __grains__["id"]
def cached():
    return _cached()
def me():
    SEEN.append(__grains__["id"])
    __context__.setdefault("first", __grains__["id"])
    return "%s/%s/%s/%s/%s" % (__grains__["id"], __opts__["id"], __salt__["grains.get"]("secret"), __context__["first"], ",".join(SEEN))
def pil(k):
    return __pillar__.get(k)
`

// everywhere reads the minion's id and secret by every way that there is.
const everywhere = `
a: {{ grains['id'] }}
b: {{ grains.secret }}
c: {{ salt['grains.get']('secret') }}
d: {{ salt.grains.get('nested:secret') }}
e: {{ opts.id }}
f: {{ opts['grains']['secret'] }}
g: {{ salt['who.me']() }}
h: {{ salt['who.cached']() }}
i: {{ pillar.get('p') }}
j: {{ salt['pillar.get']('p') }}
k: {{ salt['who.pil']('p') }}
l: {{ salt['config.get']('secret') }}
m: {{ salt['match.glob'](grains['id']) }}
n: {{ opts.get('minion_id') }}
o: {{ salt['config.option']('id') }}
p: {{ salt['grains.items']()['secret'] }}
q: {{ salt['slsutil.renderer'](string="#!jinja|yaml\nx: {{ grains.secret }}")['x'] }}
`

func everywhereWant(id, secret, pil string) string {
	return fmt.Sprintf("map[a:%[1]s b:%[2]s c:%[2]s d:%[2]s e:%[1]s f:%[2]s g:%[1]s/%[1]s/%[2]s/%[1]s/%[1]s h:%[1]s i:%[3]s j:%[3]s k:%[3]s l:%[2]s m:true n:%[1]s o:%[1]s p:%[2]s q:%[2]s]",
		id, secret, pil)
}

// plain makes maps printable and comparable.
func plain(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[fmt.Sprint(k)] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	}

	return v
}

func checkMinion(t testing.TB, p *Pool, id string, retries int) {
	t.Helper()
	secret, pil := "S-"+id, "P-"+id
	grains := value.NewMap("id", id, "secret", secret, "nested", value.NewMap("secret", secret))
	for range retries {
		s, err := p.Session(t.Context(), Minion{ID: id, Grains: grains, Pillar: value.NewMap("p", pil)})
		if err != nil {
			t.Error(err)
			return
		}

		v, err := s.Render(t.Context(), Template{Text: everywhere, Pillar: true, SLS: "x"})
		s.Close()
		if err != nil {
			var f *Failure
			if errors.As(err, &f) {
				t.Error(f.Trace)
			}
			t.Error(err)
			return
		}

		if got := fmt.Sprint(plain(v)); got != everywhereWant(id, secret, pil) {
			t.Errorf("minion %s sees\n%s\nwant\n%s", id, got, everywhereWant(id, secret, pil))
			return
		}
	}
}

// TestAlternatingMinions has one worker serve different minions in turn: none
// may see anything of another, by whatever way.
func TestAlternatingMinions(t *testing.T) {
	p, _ := pool(t, map[string]string{"ext/modules/who.py": customModule}, func(c *Config) { c.MaxWorkers = 1 })
	for range 3 {
		for _, id := range []string{"alpha", "beta", "gamma"} {
			checkMinion(t, p, id, 1)
		}
	}

	if s := p.Stats(); s.Forks != 1 || s.Sessions != 9 {
		t.Errorf("one worker should have served nine sessions: %+v", s)
	}

	// A minion without the grain sees nothing, not the last one's value.
	v, err := render(t, p, "empty", value.NewMap("id", "empty"),
		"a: {{ grains.get('secret') }}\nb: {{ salt['grains.get']('secret', 'none') }}\nc: {{ salt['pillar.get']('p', 'none') }}\nd: {{ pillar.get('p') }}\n")
	if got := fmt.Sprint(plain(v)); err != nil || got != "map[a:None b:none c:none d:None]" {
		t.Errorf("%v %v", got, err)
	}
}

func TestConcurrentMinions(t *testing.T) {
	p, _ := pool(t, map[string]string{"ext/modules/who.py": customModule}, func(c *Config) { c.MaxWorkers = 3 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { checkMinion(t, p, fmt.Sprintf("m%d", i), 5) })
	}
	wg.Wait()
	if s := p.Stats(); s.Forks > 3 || s.Sessions != 40 {
		t.Errorf("%+v", s)
	}
}

func TestPyRendererAndNewModules(t *testing.T) {
	p, root := pool(t, map[string]string{"ext/modules/old.py": "def f():\n    return 1\n",
		"pillar/py.sls":    "#!py\ndef run():\n    return {'g': __grains__['id'], 'o': __opts__['id'], 's': __salt__['old.f'](), 'l': (1, 2), 'set': {3}, 'b': b'\\xff', 'big': 2**70, 'n': None, 5: 'int', 'collects': __import__('gc').isenabled()}\n",
		"pillar/jinja.sls": "{% from 'map.jinja' import v with context %}\nx: {{ v }}\n", "pillar/map.jinja": "{% set v = grains['id'] ~ '!' %}"}, func(c *Config) { c.MaxWorkers = 1 })
	for _, id := range []string{"one", "two"} {
		s, err := p.Session(t.Context(), Minion{ID: id, Grains: value.NewMap("id", id)})
		if err != nil {
			t.Fatal(err)
		}

		v, err := s.Render(t.Context(), Template{Path: root + "/pillar/py.sls", SLS: "py", Pillar: true})
		want := fmt.Sprintf("map[5:int b:%v big:1180591620717411303424 collects:true g:%s l:[1 2] n:<nil> o:%s s:1 set:[3]]",
			[]byte{0xff}, id, id)
		if got := fmt.Sprint(plain(v)); err != nil || got != want {
			t.Errorf("%v %v, want %v", got, err, want)
		}

		v, err = s.Render(t.Context(),
			Template{Path: root + "/pillar/jinja.sls", SLS: "jinja", Saltenv: "base", Pillar: true})
		if got := fmt.Sprint(plain(v)); err != nil || got != "map[x:"+id+"!]" {
			t.Errorf("%v %v", got, err)
		}

		s.Close()

		// A module that comes or changes is there for the next session.
		os.WriteFile(root+"/ext/modules/new_"+id+".py", []byte("def f():\n    return '"+id+"'\n"), 0o644)
		if v, err := render(t, p, id, nil, "x: {{ salt['new_"+id+
			".f']() }}"); err != nil || fmt.Sprint(plain(v)) != "map[x:"+id+"]" {
			t.Errorf("new module: %v %v", plain(v), err)
		}
	}

	os.WriteFile(root+"/ext/modules/old.py", []byte("def f():\n    return 'changed'\n"), 0o644)
	if v, err := render(t, p, "m", nil, "x: {{ salt['old.f']() }}"); err != nil ||
		fmt.Sprint(plain(v)) != "map[x:changed]" {
		t.Errorf("changed module: %v %v", plain(v), err)
	}
}

func TestFailures(t *testing.T) {
	logs := &logged.Buffer{}
	p, _ := pool(t, nil, func(c *Config) {
		c.MaxWorkers = 1
		c.RequestTimeout = 3 * time.Second
		c.MemoryLimit = 600 << 20
		c.MaxMessage = 4 << 20
		c.Log = slog.New(slog.NewTextHandler(logs, nil))
	})

	if v, err := render(t, p, "m", nil, "x: {{ nosuch }}"); v != nil || err == nil ||
		!strings.Contains(err.Error(), "Jinja variable 'nosuch' is undefined") {
		t.Errorf("undefined: %v %v", v, err)
	}

	if _, err := render(t, p, "m", nil, "x: [{{ 1 }}"); err == nil ||
		!strings.Contains(err.Error(), "expected ',' or ']'") {
		t.Errorf("bad yaml: %v", err)
	}

	if s := p.Stats(); s.Forks != 1 {
		t.Errorf("a wrong template must not cost a worker: %+v", s)
	}

	for _, c := range []struct {
		name, body string
		want       func(error) bool
	}{
		{"endless", "while True: pass", func(err error) bool { return errors.Is(err, errTimeout) }},
		{"sleeping with signals blocked",
			"import time, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); time.sleep(100)",
			func(err error) bool { return errors.Is(err, errTimeout) }},
		{"exit", "import os; os._exit(0)", func(err error) bool { return errors.Is(err, errDied) }},
		{"kill", "import os; os.kill(os.getpid(), 9)", func(err error) bool { return errors.Is(err, errDied) }},
		{"sys.exit", "import sys; sys.exit(1)", func(err error) bool { return err != nil }},
		{"memory", "x = bytearray(2**31)", func(err error) bool {
			return err != nil && (strings.Contains(err.Error(), "memory limit") ||
				strings.Contains(err.Error(), "MemoryError"))
		}},
		{"long result", "return {'x': 'a' * 5000000}",
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "too long") }},
		{"deep result", "x = []\n  for i in range(500): x = [x]\n  return {'x': x}",
			func(err error) bool { return err != nil }},
		{"no data", "return {'x': (i for i in [])}", func(err error) bool { return err != nil }},
	} {
		start := time.Now()
		dir := t.TempDir()
		f := filepath.Join(dir, "x.sls")
		os.WriteFile(f, []byte("#!py\ndef run():\n  "+c.body+"\n"), 0o644)
		s, err := p.Session(t.Context(), Minion{ID: "bad"})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}

		v, err := s.Render(t.Context(), Template{Path: f, SLS: "x", Pillar: true})
		s.Close()
		if !c.want(err) {
			t.Errorf("%s: %v %v", c.name, v, err)
		}

		if d := time.Since(start); d > 8*time.Second {
			t.Errorf("%s took %v", c.name, d)
		}

		if v, err := render(t, p, "good", value.NewMap("id", "good"), "x: {{ grains.id }}"); err != nil ||
			fmt.Sprint(plain(v)) != "map[x:good]" {
			t.Fatalf("after %s: %v %v", c.name, plain(v), err)
		}
	}

	if s := p.Stats(); s.Starts != 1 || s.Retries < 2 {
		t.Errorf("%+v", s)
	}
}

func TestRetryAfterOneDeath(t *testing.T) {
	p, root := pool(t, nil, nil)
	f := filepath.Join(root, "once.sls")
	os.WriteFile(f,
		[]byte("#!py\nimport os\ndef run():\n  mark = "+fmt.Sprintf("%q", root+"/mark")+
			"\n  if not os.path.exists(mark):\n    open(mark, 'w').close()\n    os._exit(1)\n  return {'id': __grains__['id'], 'p': __pillar__['p']}\n"),
		0o644)

	s, err := p.Session(t.Context(), Minion{ID: "m", Grains: value.NewMap("id", "m")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if err := s.SetPillar(t.Context(), value.NewMap("p", "later")); err != nil {
		t.Fatal(err)
	}

	v, err := s.Render(t.Context(), Template{Path: f, SLS: "once"})
	if err != nil || fmt.Sprint(plain(v)) != "map[id:m p:later]" {
		t.Errorf("%v %v", plain(v), err)
	}
}

func TestNurseryKilled(t *testing.T) {
	p, _ := pool(t, nil, nil)
	if _, err := render(t, p, "m", nil, "x: {{ 1 }}"); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	n := p.nursery
	p.mu.Unlock()
	syscall.Kill(n.PID(), syscall.SIGKILL)
	<-n.Done()
	if v, err := render(t, p, "m", nil, "x: {{ 2 }}"); err != nil || fmt.Sprint(plain(v)) != "map[x:2]" {
		t.Errorf("%v %v", plain(v), err)
	}
}

func TestIdleStop(t *testing.T) {
	p, _ := pool(t, nil, func(c *Config) {
		c.WorkerIdle = 50 * time.Millisecond
		c.IdleStop = 100 * time.Millisecond
	})
	for round := range 2 {
		if _, err := render(t, p, "m", nil, "x: {{ 1 }}"); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the end of Python", func() bool { s := p.Stats(); return !s.Running && s.Workers == 0 })
		if s := p.Stats(); s.Starts != uint64(round+1) {
			t.Errorf("%+v", s)
		}
	}
}

func TestBounds(t *testing.T) {
	p, _ := pool(t, nil, func(c *Config) { c.MaxWorkers, c.SessionsPerWorker = 1, 2 })
	s, err := p.Session(t.Context(), Minion{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { _, err := p.Session(ctx, Minion{ID: "b"}); waits <- err }()
	cancel()

	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("second: %v", err)
	}

	s.Close()
	s.Close()
	for range 3 {
		if _, err := render(t, p, "m", nil, "x: {{ 1 }}"); err != nil {
			t.Fatal(err)
		}
	}

	if st := p.Stats(); st.Forks != 2 {
		t.Errorf("workers are replaced after two sessions: %+v", st)
	}

	s, err = p.Session(t.Context(), Minion{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}

	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	await.That(t, "a session that is open renders no more", func() bool {
		_, err := s.Render(t.Context(), Template{Text: "x: 1"})
		return errors.Is(err, errClosed)
	})

	s.Close()
	<-closed
	if _, err := p.Session(t.Context(), Minion{}); !errors.Is(err, errClosed) {
		t.Errorf("new session after Close: %v", err)
	}
}

func TestCancel(t *testing.T) {
	p, root := pool(t, map[string]string{"s.sls": "#!py\nimport time\ndef run():\n  time.sleep(60)\n"}, nil)
	s, err := p.Session(t.Context(), Minion{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Render(ctx, Template{Path: root + "/s.sls", SLS: "s"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestNoSalt(t *testing.T) {
	dir := t.TempDir()
	noSalt := filepath.Join(dir, "python-without-salt")
	os.WriteFile(noSalt, []byte("#!/bin/sh\necho 'no module named salt' >&2\nexit 3\n"), 0o755)
	p := New(Config{Python: []string{filepath.Join(dir, "missing"), noSalt}})
	defer p.Close()

	start := time.Now()
	defer func() {
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("took %v to notice that no Python starts", d)
		}
	}()

	for range 2 {
		_, err := p.Session(t.Context(), Minion{ID: "m"})
		if !errors.Is(err, ErrNoSalt) || !strings.Contains(err.Error(), "saltern_renderer_python") {
			t.Errorf("got %v", err)
		}
	}

	if p.Warm(t.Context()) == nil {
		t.Error("warm without Salt")
	}
}

// A Python that cannot be started now is not one without Salt: who can ask again is told
// so, and a reaction waits.
func TestPythonThatCannotBeStartedNow(t *testing.T) {
	dir := t.TempDir()
	mark, program := filepath.Join(dir, "twice"), filepath.Join(dir, "python")
	script := fmt.Sprintf("#!/bin/sh\n[ -e %[1]s ] && exec %[2]s \"$@\"\n[ -e %[1]s.1 ] && : > %[1]s\n: > %[1]s.1\nkill -9 $$\n",
		mark, python(t))
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}

	p, root := pool(t, map[string]string{"r.sls": "x:\n  runner.{{ tag }}: []\n"}, func(c *Config) {
		c.Python = []string{filepath.Join(dir, "missing"), program}
		c.RetryStart = 50 * time.Millisecond
	})

	if _, err := p.Session(t.Context(), Minion{ID: "m"}); !Unable(err) || errors.Is(err, ErrNoSalt) {
		t.Errorf("a session: %v", err)
	}

	reactions := p.Reactions(ReactionsConfig{})
	defer reactions.Close()
	calls, faults, err := reactions.Compile(t.Context(), "t", value.NewMap(), []string{root + "/r.sls"})
	if err != nil || len(faults) != 0 || len(calls) != 1 || calls[0].Str("fun") != "t" {
		t.Errorf("%v, %v, %v", calls, faults, err)
	}

	if p.Stats().Starts != 1 {
		t.Errorf("%+v", p.Stats())
	}
}

// TestCallerLeavesWhileRenderersStart: a caller waits for a start no longer than its context lasts,
// and Close ends a start that hangs.
func TestCallerLeavesWhileRenderersStart(t *testing.T) {
	program := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	p, _ := pool(t, nil, func(c *Config) { c.Python = []string{program} })
	begun := time.Now()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := p.Session(ctx, Minion{ID: "m"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a session: %v", err)
			}
			if err := p.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("warm: %v", err)
			}
		})
	}

	callers.Wait()
	p.Close()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestExtPillarDecryptTopsRender(t *testing.T) {
	p, _ := pool(t, map[string]string{
		"ext/pillar/mine.py":  "def ext_pillar(minion_id, pillar, *args, **kw):\n    return {'id': minion_id, 'g': __grains__['id'], 'saw': pillar.get('a'), 'args': list(args), 'kw': kw, 'o': __opts__['id'], 'n': {'y': 2}}\n",
		"ext/pillar/bad.py":   "def ext_pillar(minion_id, pillar, *args, **kw):\n    raise ValueError('broken')\n",
		"ext/tops/mytop.py":   "def top(**kw):\n    return {'base': [kw['grains']['id'], __opts__['master_tops']['mytop']]}\n",
		"ext/tops/badtop.py":  "def top(**kw):\n    raise ValueError('no')\n",
		"ext/renderers/up.py": "def render(data, saltenv='base', sls='', **kw):\n    return {k: v.upper() for k, v in data.items()} if isinstance(data, dict) else str(data).upper()\n",
	}, func(c *Config) {
		c.Overrides.Set("ext_pillar",
			[]any{value.NewMap("mine", []any{"x"}), value.NewMap("bad", nil), value.NewMap("nosuch", nil)})
		c.Overrides.Set("master_tops", value.NewMap("mytop", "v", "badtop", true))
		c.Overrides.Set("decrypt_pillar", []any{value.NewMap("s:k", "up")})
		c.Overrides.Set("decrypt_pillar_renderers", []any{"up"})
	})

	for _, id := range []string{"m1", "m2"} {
		s, err := p.Session(t.Context(), Minion{ID: id, Grains: value.NewMap("id", id)})
		if err != nil {
			t.Fatal(err)
		}

		m, errs, err := s.ExtPillar(t.Context(), value.NewMap("a", 1, "n", value.NewMap("x", 1)),
			[]any{value.NewMap("mine", []any{"x"}), value.NewMap("bad", nil), value.NewMap("nosuch", nil)},
			nil, nil)
		want := "map[a:1 args:[] g:" + id + " id:" + id + " kw:map[] n:map[x:1 y:2] o:themaster saw:1]"
		want = strings.Replace(want, "args:[]", "args:[x]", 1)
		if got := fmt.Sprint(plain(m)); err != nil || got != want ||
			fmt.Sprint(errs) != "[Failed to load ext_pillar bad: broken]" {
			t.Errorf("ext_pillar: %v %v %v, want %v", got, errs, err, want)
		}

		m, errs, err = s.Decrypt(t.Context(), value.NewMap("s", value.NewMap("k", "abc", "z", 1)))
		if got := fmt.Sprint(plain(m)); err != nil || got != "map[s:map[k:ABC z:1]]" || len(errs) > 0 {
			t.Errorf("decrypt: %v %v %v", got, errs, err)
		}

		s.Close()
		m, errs, err = p.Tops(t.Context(), value.NewMap("grains", value.NewMap("id", id)))
		if got := fmt.Sprint(plain(m)); err != nil || got != "map[base:["+id+" v]]" || len(errs) != 1 {
			t.Errorf("tops: %v %v %v", got, errs, err)
		}
	}
}

func BenchmarkSession(b *testing.B) {
	p, root := pool(b,
		map[string]string{"app.sls": "{% for i in range(20) %}\nkey{{ i }}:\n  value: {{ i }}\n  id: {{ grains['id'] }}\n  os: {{ salt['grains.get']('os') }}\n{% endfor %}\n"},
		func(c *Config) { c.MaxWorkers = 1 })
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("m", i)
		s, err := p.Session(b.Context(), Minion{ID: id, Grains: value.NewMap("id", id, "os", "Debian")})
		if err != nil {
			b.Fatal(err)
		}

		if _, err := s.Render(b.Context(), Template{Path: root + "/app.sls", SLS: "app", Pillar: true}); err != nil {
			b.Fatal(err)
		}

		s.Close()
	}
}

// TestStartAfterStartThatHangs: after a start that hung for longer than RetryStart, callers fail at once for a while,
// and do not hang as well.
func TestStartAfterStartThatHangs(t *testing.T) {
	dir := t.TempDir()
	starts, program := filepath.Join(dir, "starts"), filepath.Join(dir, "python")
	script := fmt.Sprintf("#!/bin/sh\necho >> %s\nexec sleep 60\n", starts)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}

	p, _ := pool(t, nil, func(c *Config) {
		c.Python = []string{program}
		c.StartTimeout = 2 * time.Second
		c.RetryStart = 2 * time.Second
	})
	for range 2 {
		if _, err := p.Session(t.Context(), Minion{ID: "m"}); !Unable(err) {
			t.Fatalf("a session: %v", err)
		}
	}
	if lines, _ := os.ReadFile(starts); string(lines) != "\n" {
		t.Errorf("%d starts", len(lines))
	}
}
