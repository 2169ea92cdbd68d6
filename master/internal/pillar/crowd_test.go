package pillar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/queue"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
)

// crowded is a Service with one renderer over a tree of pillars.
type crowded struct {
	*Service
	root   string
	cache  *cache.Store
	log    *logged.Buffer
	writes int
	unable []string // what Config.Unable was told
	mu     sync.Mutex
}

func newCrowded(
	t *testing.T,
	files map[string]string,
	change func(*renderer.Config, *Config, *ServiceConfig),
) *crowded {
	t.Helper()
	c := &crowded{root: tree(t, files), log: &logged.Buffer{}}
	log := slog.New(slog.NewTextHandler(c.log, nil))
	rc := renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 1,
		Log:        log,
		Overrides: value.NewMap("id", "themaster", "root_dir", c.root, "cachedir", c.root+
			"/cache", "extension_modules", c.root+"/ext",
			"pillar_roots", value.NewMap("base", []any{c.root + "/p"})),
	}

	cc := Config{Roots: base(c.root + "/p"), Log: log}
	sc := ServiceConfig{Data: true, Now: time.Now, Log: log, Unable: func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unable = append(c.unable, err.Error())
	}}

	if change != nil {
		change(&rc, &cc, &sc)
	}

	pool := renderer.New(rc)
	t.Cleanup(pool.Close)
	cc.Renderers = pool
	var err error
	if c.cache, err = cache.Open(c.root+"/cache", 1<<20, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}

	sc.Cache = c.cache
	sc.Turns = pool.Workers()
	sc.Compiler = New(cc)
	c.Service = NewService(sc)

	return c
}

// ask is the question of a minion; each has another nonce.
func (c *crowded) ask(ctx context.Context, id string) (*value.Map, error) {
	return c.Serve(ctx, Question{Request: Request{ID: id, Grains: value.NewMap("id", id)}, Bytes: 20 << 10})
}

// write changes a file of the pillar to something that is newer for sure.
func (c *crowded) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(c.root, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	c.writes++
	later := time.Now().Add(time.Duration(c.writes) * time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

// Finding F10: more minions than ever may wait ask for a pillar with templates at once,
// over one renderer: all get theirs, whole, and the cache knows it.
func TestBurstOfPillars(t *testing.T) {
	const minions = 1020 // one worker and 1,000 that waited was the bound
	c := newCrowded(t, map[string]string{
		"p/top.sls": "base: {'*': [j]}\n",
		"p/j.sls":   "who: {{ grains['id'] }}\n",
	}, nil)

	var group sync.WaitGroup
	for i := range minions {
		id := fmt.Sprint("m", i)
		group.Go(func() {
			p, err := c.ask(t.Context(), id)
			if err != nil || p.Str("who") != id || p.Len() != 1 {
				t.Errorf("%s: %v, %v", id, p, err)
			}
			if kept, _ := c.cache.Get(cache.Pillar, id); kept.Str("who") != id {
				t.Errorf("the cache has %v of %s", kept, id)
			}
		})
	}

	group.Wait()
	if s := c.Stats(); s.Pillars != minions || s.Errors != 0 || s.Queue.Turns != minions ||
		s.Queue.Full != 0 || s.Queue.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// A pillar in plain YAML does not wait for renderers.
func TestPlainPillarsDoNotWait(t *testing.T) {
	c := newCrowded(t, map[string]string{
		"p/top.sls":   "base:\n  'slow': [slow]\n  'plain': [plain]\n",
		"p/plain.sls": "v: 2\n",
	}, nil)

	begun := filepath.Join(c.root, "begun")
	c.write(t, "p/slow.sls",
		strings.ReplaceAll("#!py\nimport time\ndef run():\n    open('%ROOT%', 'w').close()\n    time.sleep(1)\n    return {'v': 1}\n",
			"%ROOT%", begun))
	slow := make(chan error)
	go func() { _, err := c.ask(t.Context(), "slow"); slow <- err }()
	await.That(t, "the slow template", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})

	if p, err := c.ask(t.Context(), "plain"); err != nil || fmt.Sprint(p.Value("v")) != "2" {
		t.Errorf("%v, %v", p, err)
	}

	select {
	case <-slow:
		t.Error("the plain pillar has waited")
	default:
	}

	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// A minion that repeats its question while it waits, or while it is worked on, gets its
// pillar by one turn; one that has hung up costs no work.
func TestRepeatedQuestionForAPillar(t *testing.T) {
	c := newCrowded(t, map[string]string{
		"p/top.sls":  "base: {'*': [slow]}\n",
		"p/slow.sls": "#!py\nimport time\ndef run():\n    time.sleep(0.3)\n    return {'who': __grains__['id']}\n",
	}, nil)

	question := func(id, nonce string) Question {
		return Question{Request: Request{ID: id, Grains: value.NewMap("id", id)}, Nonce: nonce}
	}
	var group sync.WaitGroup
	answered := func(id, nonce string) {
		group.Go(func() {
			if p, err := c.Serve(t.Context(), question(id, nonce)); err != nil || p.Str("who") != id {
				t.Errorf("%s: %v, %v", id, p, err)
			}
		})
	}

	answered("a", "1")
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for range 5 {
		group.Go(func() {
			q := question("left", "1")
			q.Park = func(wait func(context.Context) error) (Request, error) { return q.Request, wait(gone) }
			if _, err := c.Serve(t.Context(), q); err != nil && !errors.Is(err, queue.ErrLeft) {
				t.Errorf("who has left: %v", err)
			}
		})
	}

	for range 5 {
		answered("a", "1")
		answered("b", "1")
	}

	group.Wait()

	// of a, of b, and one that begins before it is noticed that its minion has left
	if s := c.Stats().Queue; s.Turns > 3 {
		t.Errorf("%+v", s)
	}
}

// breakage is a change of a pillar that was good, see goodPillar.
type breakage struct {
	file, content string
	cause         string // of a pillar that could not be made; "": it is served with errors
}

var breakages = map[string]breakage{
	"syntax":        {"p/j.sls", "v: {{ 'x' \n", ""},
	"undefined":     {"p/j.sls", "v: {{ nothing.at.all }}\n", ""},
	"YAML":          {"p/j.sls", "v: [1\n", ""},
	"exception":     {"p/j.sls", "#!py\ndef run():\n    raise ValueError('x')\n", ""},
	"top file":      {"p/top.sls", "base: {{ 'x' \n", ""},
	"missing SLS":   {"p/top.sls", "base: {'*': [j, inc, missing]}\n", ""},
	"ext_pillar":    {"p/inc.sls", "ext: raise\n", ""},
	"worker dies":   {"p/j.sls", "#!py\nimport os\ndef run():\n    os._exit(1)\n", "the renderer process died"},
	"takes long":    {"p/j.sls", "#!py\nimport time\ndef run():\n    time.sleep(100)\n", "rendering took too long"},
	"top file dies": {"p/top.sls", "#!py\nimport os\ndef run():\n    os._exit(1)\n", "the renderer process died"},
	"include dies":  {"p/inc.sls", "#!py\nimport os\ndef run():\n    os._exit(1)\n", "the renderer process died"},
	"ext dies":      {"p/inc.sls", "ext: exit\n", "the renderer process died"},
}

var goodPillar = map[string]string{
	"p/top.sls": "base: {'*': [j, inc]}\n",
	"p/j.sls":   "v: {{ 'good' }}\nmore: 1\n",
	"p/inc.sls": "inc: {{ 1 }}\n",
}

const extPillar = `
import os
def ext_pillar(minion_id, pillar, *a):
    if pillar.get('ext') == 'raise':
        raise ValueError('x')
    if pillar.get('ext') == 'exit':
        os._exit(1)
    return {}
`

// Finding F10: a pillar that is broken is answered with its errors; one that this master
// could not make is not answered, and the cause is told. Neither takes the place of the
// good one that is kept; one that lacks a key rightly does.
func TestBrokenPillarTakesNoOthersPlace(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("pillar_cache %v", keep), func(t *testing.T) {
			t.Parallel()
			files := maps.Clone(goodPillar)
			files["ext/pillar/mine.py"] = extPillar
			c := newCrowded(t, files, func(rc *renderer.Config, cc *Config, sc *ServiceConfig) {
				rc.RequestTimeout = 3 * time.Second
				rc.Overrides.Set("ext_pillar", []any{value.NewMap("mine", nil)})
				cc.ExtPillar = []any{value.NewMap("mine", nil)}
				sc.Keep = keep
				sc.TTL = time.Hour
			})

			for name, how := range breakages {
				t.Run(name, func(t *testing.T) { c.testBreakage(t, how) })
			}
		})
	}
}

func (c *crowded) testBreakage(t *testing.T, how breakage) {
	ask := func() (*value.Map, error) {
		return c.Serve(t.Context(), Question{Request: Request{ID: "m", Grains: value.NewMap("id", "m")}, Clean: true})
	}
	kept := func() string {
		p, _ := c.cache.Get(cache.Pillar, "m")
		return plainText(p)
	}

	for file, content := range goodPillar {
		c.write(t, file, content)
	}

	if p, err := ask(); err != nil || p.Str("v") != "good" {
		t.Fatal(p, err)
	}

	before, told, was := kept(), len(c.unable), c.Stats()

	c.write(t, how.file, how.content)
	p, err := ask()
	is := c.Stats()
	if how.cause == "" {
		if err != nil || len(p.List("_errors")) == 0 || is.Errors != was.Errors+1 ||
			is.Unable != was.Unable || is.Last == nil {
			t.Errorf("served %v, %v; %+v", p, err, is)
		}
	} else {
		if !errors.Is(err, ErrUnable) || !strings.Contains(err.Error(), how.cause) || p != nil ||
			is.Errors != was.Errors || is.Unable != was.Unable+1 {
			t.Errorf("served %v, %v; %+v", p, err, is)
		}

		if len(c.unable) != told+1 || !strings.Contains(c.unable[told], how.cause) ||
			!strings.Contains(c.unable[told], "minion m:") {
			t.Errorf("told %q", c.unable[told:])
		}
	}

	if now := kept(); now != before || !strings.Contains(now, "good") {
		t.Errorf("the cache has %s instead of %s", now, before)
	}

	for file, content := range goodPillar {
		c.write(t, file, content)
	}

	c.write(t, "p/j.sls", "v: {{ 'good' }}\n") // and nothing more
	if p, err := ask(); err != nil || p.Value("more") != nil || kept() != plainText(p) || c.Stats().Last != nil {
		t.Errorf("afterwards %v, %v; kept %s", p, err, kept())
	}
}

// The same where Salt's own class makes the pillar.
func TestUnableInSaltsPillarClass(t *testing.T) {
	c := newCrowded(t, goodPillar, func(_ *renderer.Config, cc *Config, _ *ServiceConfig) { cc.Strategy = "aggregate" })
	if p, err := c.ask(t.Context(), "m"); err != nil || p.Str("v") != "good" {
		t.Fatal(p, err)
	}

	c.write(t, "p/j.sls", breakages["worker dies"].content)
	if p, err := c.ask(t.Context(), "m"); !errors.Is(err, ErrUnable) {
		t.Errorf("a worker that dies: %v, %v", p, err)
	}

	c.write(t, "p/j.sls", breakages["exception"].content)
	if p, err := c.ask(t.Context(), "m"); err != nil || len(p.List("_errors")) == 0 {
		t.Errorf("an exception: %v, %v", p, err)
	}

	if p, _ := c.cache.Get(cache.Pillar, "m"); p.Str("v") != "good" {
		t.Errorf("kept %v", p)
	}
}

// Before there is a good one, what can be made of a pillar is kept, as Salt does.
func TestFirstPillarWithErrorsIsKept(t *testing.T) {
	c := newCrowded(t, map[string]string{"p/top.sls": "base: {'*': [a, missing]}\n", "p/a.sls": "v: 1\n"}, nil)
	for _, want := range []string{"1", "2"} {
		c.write(t, "p/a.sls", "v: "+want+"\n")
		if _, err := c.ask(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		if p, _ := c.cache.Get(cache.Pillar, "m"); fmt.Sprint(p.Value("v")) != want || len(p.List("_errors")) == 0 {
			t.Errorf("kept %v", p)
		}
	}
}

// Questions that find no room are not answered, and told of.
func TestFullQueueOfPillars(t *testing.T) {
	c := newCrowded(t, map[string]string{
		"p/top.sls": "base: {'*': [j]}\n",
		"p/j.sls":   "#!py\nimport time\ndef run():\n    time.sleep(0.2)\n    return {'who': __grains__['id']}\n",
	},
		func(_ *renderer.Config, _ *Config, sc *ServiceConfig) { sc.QueueBytes = 50 << 10 })

	var group sync.WaitGroup
	var mu sync.Mutex
	right, full := 0, 0
	for i := range 10 {
		id := fmt.Sprint("m", i)
		group.Go(func() {
			p, err := c.ask(t.Context(), id)
			mu.Lock()
			defer mu.Unlock()

			switch {
			case errors.Is(err, queue.ErrFull) && p == nil:
				full++
			case err == nil && p.Str("who") == id:
				right++
			default:
				t.Errorf("%s: %v, %v", id, p, err)
			}
		})
	}

	group.Wait()
	if s := c.Stats(); right < 3 || full == 0 || right+full != 10 || s.Unable != uint64(full) || len(c.unable) != full {
		t.Errorf("%d right, %d full, %+v", right, full, s)
	}
}
