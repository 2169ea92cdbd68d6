package pillar

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/await"
)

func externalRunner(t *testing.T) *extpillar.Runner {
	r := extpillar.New(extpillar.Config{})
	t.Cleanup(r.Close)
	return r
}

func chain(pairs ...any) (out []any) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.NewMap(pairs[i], pairs[i+1]))
	}
	return out
}

// TestExtPillarsNeedNoPython compiles a pillar with all entries that Go knows, beside a Python that does
// not exist, and none is started.
func TestExtPillarsNeedNoPython(t *testing.T) {
	root := tree(t, map[string]string{
		"p/top.sls":                  "base:\n  '*': [a]\n",
		"p/a.sls":                    "a: 1\nlist: [1]\n",
		"tree/hosts/web1/key":        "own\n",
		"tree/nodegroups/web/shared": "s",
	})
	pool := renderer.New(renderer.Config{Python: []string{"/nosuch/python"}})
	t.Cleanup(pool.Close)
	for _, first := range []bool{false, true} {
		c := New(Config{
			Roots:          base(root + "/p"),
			Renderers:      pool,
			External:       externalRunner(t),
			ExtPillarFirst: first,
			MergeLists:     true,
			Nodegroups:     value.NewMap("web", "web* and G@os:Debian", "db", "db*"),
			ExtPillar: chain("cmd_yaml", "echo 'a: 2'; echo 'id: %s'", "cmd_json", `echo {\"list\":[2]}`,
				"file_tree", root+"/tree", "nodegroups", nil),
		})
		got := compile(t, c, Request{Grains: value.NewMap("os", "Debian")})
		want := "[a:2 id:web1 key:[111 119 110] list:[1 2] nodegroups:[web] shared:[115]]"
		if first {
			want = strings.NewReplacer("a:2", "a:1", "[1 2]", "[2 1]").Replace(want)
		}
		if plainText(got) != want {
			t.Errorf("first %v:\n got %s\nwant %s", first, plainText(got), want)
		}
	}
	if st := pool.Stats(); st.Starts != 0 || st.Running {
		t.Errorf("Python was started: %+v", st)
	}
}

// TestExtPillarFaults: what a minion gets when a command or a tree fails.
func TestExtPillarFaults(t *testing.T) {
	root := tree(t, map[string]string{"p/top.sls": "base:\n  '*': [a]\n", "p/a.sls": "a: 1\n"})
	pillarOf := func(entries []any) (*value.Map, error) {
		c := New(Config{Roots: base(root + "/p"), External: externalRunner(t), ExtPillar: entries})
		return c.Compile(t.Context(), Request{ID: "web1"})
	}

	p, err := pillarOf(chain("cmd_yaml", "yes", "cmd_yaml", "echo b: 1"))
	if err != nil || plainText(p) != "[_errors:[Failed to load ext_pillar cmd_yaml: the command wrote more than 8 MiB; let it write less] a:1 b:1]" {
		t.Errorf("endless output: %s %v", plainText(p), err)
	}
	p, err = pillarOf(chain("cmd_yaml", "echo '[1]'", "cmd_yaml", "echo b: 1"))
	if err != nil || plainText(p) != "[_errors:[Failed to load ext_pillar cmd_yaml: Please see master log for details.] a:1 b:1]" {
		t.Errorf("without Python: %s %v", plainText(p), err)
	}

	runner := externalRunner(t)
	runner.Close()
	c := New(Config{Roots: base(root + "/p"), External: runner, ExtPillar: chain("cmd_yaml", "echo b: 1")})
	if p, err := c.Compile(t.Context(), Request{ID: "web1"}); !errors.Is(err, ErrUnable) {
		t.Errorf("while the master stops: %s %v", plainText(p), err)
	}
}

// TestCommandsOfBranches: a comparison of a branch that nobody has approved runs no command.
func TestCommandsOfBranches(t *testing.T) {
	root := tree(t, map[string]string{"p/top.sls": "base:\n  '*': [a]\n", "p/a.sls": "a: 1\n"})
	ran := filepath.Join(root, "ran")
	for _, confined := range []bool{true, false} {
		c := New(Config{
			Roots:     base(root + "/p"),
			External:  externalRunner(t),
			ExtPillar: chain("cmd_yaml", "echo >"+ran+"; echo b: 1"),
			Compare:   &Compare{Confined: confined},
		})
		outcome, err := c.Outcome(t.Context(), Request{ID: "web1"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(ran)
		if hasRun := err == nil; hasRun == confined {
			t.Errorf("confined %v: the command has run: %v", confined, hasRun)
		}
		if !confined && len(outcome.Secret) != 1 {
			t.Errorf("what a command says is no secret: %v", outcome.Secret)
		}
	}
}

// TestOriginOfExtPillar: pillar.readers names the entry that gives a value.
func TestOriginOfExtPillar(t *testing.T) {
	root := tree(t, map[string]string{"p/top.sls": "base:\n  '*': [a]\n", "p/a.sls": "a: 1\n"})
	c := New(Config{Roots: base(root + "/p"), External: externalRunner(t), ExtPillar: chain("cmd_yaml", "echo b: 1", "nodegroups", "groups")})
	o, err := c.Origins(t.Context(), Request{ID: "web1"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	o.Leaves(func(path []string, _ any, sources []Source) {
		for _, s := range sources {
			got[strings.Join(path, ":")] += o.Files[s.File].External
		}
	})
	if got["b"] != "cmd_yaml" || got["groups"] != "nodegroups" || got["a"] != "" {
		t.Errorf("%v", got)
	}
}

// TestWaitingPillarRunsCommandOnce: a pillar that has to wait for a renderer after its command has run is
// compiled again from the beginning, but its command does not run again.
func TestWaitingPillarRunsCommandOnce(t *testing.T) {
	const minions = 40
	runs := filepath.Join(t.TempDir(), "runs")
	files := map[string]string{
		"p/top.sls":           "base:\n  '*': [a]\n",
		"p/a.sls":             "a: 1\n",
		"ext/pillar/extra.py": parityTree["ext/pillar/extra.py"],
	}
	s := newCrowded(t, files, func(_ *renderer.Config, c *Config, _ *ServiceConfig) {
		c.External = externalRunner(t)
		c.ExtPillar = chain("cmd_yaml", "echo %s >>"+runs+"; echo b: 1", "extra", []any{"x"})
	})

	var group sync.WaitGroup
	for i := range minions {
		group.Go(func() {
			p, err := s.ask(t.Context(), fmt.Sprint("m", i))
			if err != nil || p.Value("b") == nil || p.Value("ext_key") == nil {
				t.Errorf("%s %v", plainText(p), err)
			}
		})
	}
	group.Wait()

	text, err := os.ReadFile(runs)
	if n := strings.Count(string(text), "\n"); err != nil || n != minions {
		t.Errorf("the command has run %d times for %d minions, %v", n, minions, err)
	}
}

// TestCachedPillarWaitsForNoCommand: a minion with a pillar in the cache gets it although commands of other
// minions hold all turns.
func TestCachedPillarWaitsForNoCommand(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	s := newCrowded(t, map[string]string{"p/top.sls": "base:\n  '*': [a]\n", "p/a.sls": "a: 1\n"},
		func(_ *renderer.Config, c *Config, sc *ServiceConfig) {
			sc.Keep = true
			sc.TTL = time.Hour
			c.External = externalRunner(t)
			c.ExtPillar = chain("cmd_yaml", "echo b: 1; test %s = m0 && exit; while ! test -e "+
				gate+"; do sleep 0.05; done")
		})
	if _, err := s.ask(t.Context(), "m0"); err != nil {
		t.Fatal(err)
	}

	turns := s.cfg.Turns + firstTriesPerCPU*runtime.NumCPU()
	var group sync.WaitGroup
	for i := range turns + 5 {
		group.Go(func() {
			if p, err := s.ask(t.Context(), fmt.Sprint("slow", i)); err != nil || p.Value("b") == nil {
				t.Errorf("%s %v", plainText(p), err)
			}
		})
	}
	await.That(t, "all turns", func() bool { return s.firstTries.Stats().Working == turns })

	answered := make(chan error, 1)
	go func() {
		_, err := s.ask(t.Context(), "m0")
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the cached pillar waits for the commands")
	}

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Error(err)
	}
	group.Wait()
}
