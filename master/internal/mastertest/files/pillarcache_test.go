package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// writePillarFiles writes the pillar of the environments base and dev.
func writePillarFiles(r *mastertest.Master, v string) {
	r.T.Helper()
	for env, top := range map[string]string{"base": "base: {'*': [x]}\n", "dev": "dev: {'*': [x]}\n"} {
		dir := r.Path("pillars", env)
		check.Must(r.T, os.MkdirAll(dir, 0o755))
		check.Must(r.T, os.WriteFile(filepath.Join(dir, "top.sls"), []byte(top), 0o644))
		check.Must(r.T, os.WriteFile(filepath.Join(dir, "x.sls"), []byte(v), 0o644))
	}
}

const pillarEnvs = "pillar_roots:\n  base: [%DIR%/pillars/base]\n  dev: [%DIR%/pillars/dev]\n"

func runFunction(r *mastertest.Master, fun string, args ...any) any {
	r.T.Helper()
	v, err := r.Parts.Runs.Call(r.T.Context(), fun, args, value.NewMap())
	check.Must(r.T, err)
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
	r := mastertest.Start(t, "pillar_cache: True\npillar_cache_ttl: 3600\npillar_cache_backend: "+backend+"\n"+pillarEnvs)
	n, other := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	v := func(n *mastertest.Minion, fields ...any) string {
		return runner.JSON(n.Pillar(fields...).Value("v"), false)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}

	writePillarFiles(r, "v: 1\n")
	expect("first", v(n), "1")
	writePillarFiles(r, "v: 2\n")
	expect("again", v(n), "1")
	expect("another minion", v(other), "2")
	expect("another environment", v(n, "pillarenv", "dev"), "2")
	expect("a fresh one", runner.JSON(runFunction(r, "pillar.show_pillar", "min1").(*value.Map), false), `{"v": 2}`)
	expect("after that", v(n), "1")
	expect("with an override", runner.JSON(n.Pillar("pillar_override", value.NewMap("o", 1)), false),
		`{"v": 1, "o": 1}`)
	expect("without it", runner.JSON(n.Pillar(), false), `{"v": 1}`)
	expect("clean_cache", v(n, "clean_cache", true), "2")
	expect("kept", runner.JSON(runFunction(r, "pillar.show_pillar_cache", "min1"), false), `{"min1": {"v": 2}}`)

	writePillarFiles(r, "v: 3\n")
	expect("before", v(n), "2")
	for fun, tgt := range map[string]string{
		"pillar.clear_pillar_cache": "min1",
		"cache.clear_pillar":        "min1",
		"cache.clear_all":           "*",
	} {
		writePillarFiles(r, "v: "+fun+"\n")
		if runFunction(r, fun, tgt) != true {
			t.Errorf("%s does not answer true", fun)
		}
		expect(fun, v(n), `"`+fun+`"`)
	}

	writePillarFiles(r, "v: 4\n")
	check.Must(t, os.Remove(r.Path("cache", "pillar", "min1.p"))) // as Python's salt-run does
	expect("cleared by Python", v(n), "4")
	expect("cleared by Python, another environment", v(n, "pillarenv", "dev"), "4")

	files, err := filepath.Glob(r.Path("cache", "compiled_pillars", "min1", "*.p"))
	check.Must(t, err)
	if len(files) > 0 != (backend == "disk") {
		t.Errorf("files: %v", files)
	}

	if backend == "disk" { // that of memory is tested where it is
		writePillarFiles(r, "v: 5\n")
		old := time.Now().Add(-time.Hour)
		for _, f := range files {
			check.Must(t, os.Chtimes(f, old, old))
		}
		expect("after its time", v(n), "5")
	}

	writePillarFiles(r, "include: [gone]\nv: 6\n")
	if p := n.Pillar("clean_cache", true); len(p.List("_errors")) == 0 {
		t.Error("a pillar with an SLS that is not there has no errors")
	}

	writePillarFiles(r, "v: 7\n")
	expect("after errors", v(n), "7")

	writePillarFiles(r, "v: 8\n")
	check.Must(t, r.Parts.Keys.Delete("min1", keys.Accepted))
	await.That(t, "the minion is forgotten", func() bool {
		_, ok := r.Parts.Cache.Compiled("min1", "", time.Now(), time.Hour)
		return !ok
	})
}

// A pillar= on a command line is for that command: it changes nothing that
// targets see.
func TestOverrideIsNotKept(t *testing.T) {
	r := mastertest.Start(t, pillarEnvs)
	writePillarFiles(r, "v: 1\n")
	n := r.AcceptedMinion("min1", "min6")
	n.Pillar()
	n.Pillar("pillar_override", value.NewMap("v", 9))

	if p, _ := r.Parts.Cache.Get(cache.Pillar, "min1"); runner.JSON(p, false) != `{"v": 1}` {
		t.Errorf("kept: %s", runner.JSON(p, false))
	}

	if got := runner.JSON(runFunction(r, "pillar.show_pillar_cache", "min1"), false); got != `{"min1": {"v": 1}}` {
		t.Errorf("without pillar_cache, of the minion data cache: %s", got)
	}

	if runFunction(r, "pillar.clear_pillar_cache") != true {
		t.Error("the minion data cache is not cleared")
	}

	if got := runner.JSON(runFunction(r, "pillar.show_pillar_cache", "min1"), false); got != `{}` {
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
	ms := mastertest.StartCluster(t, 2, "pillar_cache: True\npillar_cache_backend: "+backend+"\n"+pillarEnvs)
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	write := func(v string) { writePillarFiles(a, v); writePillarFiles(b, v) }
	write("v: 1\n")
	n := a.AcceptedMinion("min1", "min6")
	await.That(t, "the key on b", func() bool { e, _ := b.Parts.Keys.Lookup("min1"); return e.State == keys.Accepted })
	there := b.NewMinion("min1", "min6")
	if s := there.SignIn(); s.Str("enc") != "pub" {
		t.Fatal("the minion was not let in by b")
	}

	v := func(n *mastertest.Minion, fields ...any) int64 { v, _ := n.Pillar(fields...).Int("v"); return v }
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

	await.That(t, "the new pillar on b", func() bool { return v(there) == 2 })
	write("v: 3\n")
	if v(n) != 2 || runFunction(a, "pillar.clear_pillar_cache", "min1") != true || v(n) != 3 {
		t.Error("pillar.clear_pillar_cache has no effect")
	}

	await.That(t, "the pillar cleared on b", func() bool { return v(there) == 3 })
}

// What an ext_pillar gives is asked for once for two highstates of a minion, and
// never given to another.
func TestPillarCacheOfExtPillar(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	for _, backend := range []string{"disk", "memory"} {
		r := mastertest.Start(t, "pillar_cache: True\npillar_cache_backend: "+backend+"\nsaltern_renderer_python: "+python+
			"\next_pillar:\n  - cmd_yaml: 'echo %s >>%DIR%/asked; echo \"{for: %s}\"'\n"+pillarEnvs)
		writePillarFiles(r, "v: 1\n")
		minions := map[string]*mastertest.Minion{"min1": r.AcceptedMinion("min1", "min6"), "min2": r.AcceptedMinion("min2", "min7")}
		asked := func(want int) {
			t.Helper()
			b, err := os.ReadFile(r.Path("asked"))
			if n := strings.Count(string(b), "\n"); err != nil || n != want {
				t.Errorf("%s: asked %d times, want %d: %v", backend, n, want, err)
			}
		}

		for range 3 { // a highstate asks for the pillar before it renders
			for id, n := range minions {
				p := n.Pillar()
				if v, _ := p.Int("v"); p.Str("for") != id || v != 1 {
					t.Errorf("%s: %s gets %s", backend, id, runner.JSON(p, false))
				}
			}
		}

		asked(2)
		minions["min1"].Pillar("clean_cache", true) // saltutil.refresh_pillar clean_cache=True
		asked(3)
		runFunction(r, "pillar.clear_pillar_cache", "min2")

		for _, n := range minions {
			n.Pillar()
		}

		asked(4)
	}
}
