package master

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
)

// pillarFiles writes the pillar of the environments base and dev.
func (r *running) pillarFiles(v string) {
	r.t.Helper()
	for env, top := range map[string]string{"base": "base: {'*': [x]}\n", "dev": "dev: {'*': [x]}\n"} {
		dir := r.path("pillars", env)
		must(r.t, os.MkdirAll(dir, 0o755))
		must(r.t, os.WriteFile(filepath.Join(dir, "top.sls"), []byte(top), 0o644))
		must(r.t, os.WriteFile(filepath.Join(dir, "x.sls"), []byte(v), 0o644))
	}
}

const pillarEnvs = "pillar_roots:\n  base: [%DIR%/pillars/base]\n  dev: [%DIR%/pillars/dev]\n"

func (r *running) run(fun string, args ...any) any {
	r.t.Helper()
	v, err := r.m.runs.Call(r.t.Context(), fun, args, value.NewMap())
	must(r.t, err)
	return v
}

// With pillar_cache a pillar is the one that was compiled before, until
// somebody asks for a new one, clears it, or its time is over.
func TestPillarCache(t *testing.T) {
	for _, backend := range []string{"disk", "memory"} {
		t.Run(backend, func(t *testing.T) { testPillarCache(t, backend) })
	}
}

func testPillarCache(t *testing.T, backend string) {
	r := startMaster(t, "pillar_cache: True\npillar_cache_ttl: 3600\npillar_cache_backend: "+backend+"\n"+pillarEnvs)
	n, other := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	v := func(n *scriptedMinion, fields ...any) string {
		return runner.JSON(n.pillar(fields...).Value("v"), false)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}

	r.pillarFiles("v: 1\n")
	expect("first", v(n), "1")
	r.pillarFiles("v: 2\n")
	expect("again", v(n), "1")
	expect("another minion", v(other), "2")
	expect("another environment", v(n, "pillarenv", "dev"), "2")
	expect("a fresh one", runner.JSON(r.run("pillar.show_pillar", "min1").(*value.Map), false), `{"v": 2}`)
	expect("after that", v(n), "1")
	expect("with an override", runner.JSON(n.pillar("pillar_override", value.NewMap("o", 1)), false),
		`{"v": 1, "o": 1}`)
	expect("without it", runner.JSON(n.pillar(), false), `{"v": 1}`)
	expect("clean_cache", v(n, "clean_cache", true), "2")
	expect("kept", runner.JSON(r.run("pillar.show_pillar_cache", "min1"), false), `{"min1": {"v": 2}}`)

	r.pillarFiles("v: 3\n")
	expect("before", v(n), "2")
	for fun, tgt := range map[string]string{
		"pillar.clear_pillar_cache": "min1",
		"cache.clear_pillar":        "min1",
		"cache.clear_all":           "*",
	} {
		r.pillarFiles("v: " + fun + "\n")
		if r.run(fun, tgt) != true {
			t.Errorf("%s does not answer true", fun)
		}
		expect(fun, v(n), `"`+fun+`"`)
	}

	r.pillarFiles("v: 4\n")
	must(t, os.Remove(r.path("cache", "pillar", "min1.p"))) // as Python's salt-run does
	expect("cleared by Python", v(n), "4")
	expect("cleared by Python, another environment", v(n, "pillarenv", "dev"), "4")

	files, err := filepath.Glob(r.path("cache", "compiled_pillars", "min1", "*.p"))
	must(t, err)
	if len(files) > 0 != (backend == "disk") {
		t.Errorf("files: %v", files)
	}

	if backend == "disk" { // that of memory is tested where it is
		r.pillarFiles("v: 5\n")
		old := time.Now().Add(-time.Hour)
		for _, f := range files {
			must(t, os.Chtimes(f, old, old))
		}
		expect("after its time", v(n), "5")
	}

	r.pillarFiles("include: [gone]\nv: 6\n")
	if p := n.pillar("clean_cache", true); len(p.List("_errors")) == 0 {
		t.Error("a pillar with an SLS that is not there has no errors")
	}

	r.pillarFiles("v: 7\n")
	expect("after errors", v(n), "7")

	r.pillarFiles("v: 8\n")
	must(t, r.m.keys.Delete("min1", keys.Accepted))
	until(t, "the minion is forgotten", func() bool {
		_, ok := r.m.cache.Compiled("min1", "", time.Now(), time.Hour)
		return !ok
	})
}

// A pillar= on a command line is for that command: it changes nothing that
// targets see.
func TestOverrideIsNotKept(t *testing.T) {
	r := startMaster(t, pillarEnvs)
	r.pillarFiles("v: 1\n")
	n := r.accepted("min1", "min6")
	n.pillar()
	n.pillar("pillar_override", value.NewMap("v", 9))

	if p, _ := r.m.cache.Get(cache.Pillar, "min1"); runner.JSON(p, false) != `{"v": 1}` {
		t.Errorf("kept: %s", runner.JSON(p, false))
	}

	if got := runner.JSON(r.run("pillar.show_pillar_cache", "min1"), false); got != `{"min1": {"v": 1}}` {
		t.Errorf("without pillar_cache, of the minion data cache: %s", got)
	}

	if r.run("pillar.clear_pillar_cache") != true {
		t.Error("the minion data cache is not cleared")
	}

	if got := runner.JSON(r.run("pillar.show_pillar_cache", "min1"), false); got != `{}` {
		t.Errorf("cleared: %s", got)
	}
}

// What is cleared on one master is compiled anew on all.
func TestPillarCacheOfPeers(t *testing.T) {
	for _, backend := range []string{"disk", "memory"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			testPillarCacheOfPeers(t, backend)
		})
	}
}

func testPillarCacheOfPeers(t *testing.T, backend string) {
	ms := masters(t, 2, "pillar_cache: True\npillar_cache_backend: "+backend+"\n"+pillarEnvs)
	joined(t, ms)
	a, b := ms[0], ms[1]
	write := func(v string) { a.pillarFiles(v); b.pillarFiles(v) }
	write("v: 1\n")
	n := a.accepted("min1", "min6")
	until(t, "the key on b", func() bool { e, _ := b.m.keys.Lookup("min1"); return e.State == keys.Accepted })
	there := b.newMinion("min1", "min6")
	if s := there.signIn(); s.Str("enc") != "pub" {
		t.Fatal("the minion was not let in by b")
	}

	v := func(n *scriptedMinion, fields ...any) int64 { v, _ := n.pillar(fields...).Int("v"); return v }
	if v(n) != 1 || v(there) != 1 {
		t.Fatal("no pillar")
	}

	write("v: 2\n")
	if v(n) != 1 || v(there) != 1 {
		t.Error("the pillars are not kept")
	}

	if v(n, "clean_cache", true) != 2 {
		t.Error("clean_cache has no effect")
	}

	until(t, "the new pillar on b", func() bool { return v(there) == 2 })
	write("v: 3\n")
	if v(n) != 2 || a.run("pillar.clear_pillar_cache", "min1") != true || v(n) != 3 {
		t.Error("pillar.clear_pillar_cache has no effect")
	}

	until(t, "the pillar cleared on b", func() bool { return v(there) == 3 })
}

// What an ext_pillar gives is asked for once for two highstates of a minion, and
// never given to another.
func TestPillarCacheOfExtPillar(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	for _, backend := range []string{"disk", "memory"} {
		r := startMaster(t, "pillar_cache: True\npillar_cache_backend: "+backend+"\nsaltern_renderer_python: "+python+
			"\next_pillar:\n  - cmd_yaml: 'echo %s >>%DIR%/asked; echo \"{for: %s}\"'\n"+pillarEnvs)
		r.pillarFiles("v: 1\n")
		minions := map[string]*scriptedMinion{"min1": r.accepted("min1", "min6"), "min2": r.accepted("min2", "min7")}
		asked := func(want int) {
			t.Helper()
			b, err := os.ReadFile(r.path("asked"))
			if n := strings.Count(string(b), "\n"); err != nil || n != want {
				t.Errorf("%s: asked %d times, want %d: %v", backend, n, want, err)
			}
		}

		for range 3 { // a highstate asks for the pillar before it renders
			for id, n := range minions {
				p := n.pillar()
				if v, _ := p.Int("v"); p.Str("for") != id || v != 1 {
					t.Errorf("%s: %s gets %s", backend, id, runner.JSON(p, false))
				}
			}
		}

		asked(2)
		minions["min1"].pillar("clean_cache", true) // saltutil.refresh_pillar clean_cache=True
		asked(3)
		r.run("pillar.clear_pillar_cache", "min2")

		for _, n := range minions {
			n.pillar()
		}

		asked(4)
	}
}
