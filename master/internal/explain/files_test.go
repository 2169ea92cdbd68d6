package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/internal/pillar"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// explainTree explains the pillar of web1 that a tree of files gives.
func explainTree(t *testing.T, key string, change func(*pillar.Config), files map[string]string) (out control.ExplainedPillar) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cfg := pillar.Config{Roots: map[string][]string{"base": {dir}}, Opts: value.NewMap("id", "master1")}
	change(&cfg)
	s := New(Config{Compiler: pillar.New(cfg)})
	s.explainPillar(t.Context(), pillar.Request{ID: "web1", Grains: value.NewMap("os", "Debian")}, key, &out)
	return out
}

func unchanged(*pillar.Config) {}

// filesOf returns the keys of an explanation, each with what gives it.
func filesOf(p *control.ExplainedPillar) (out []string) {
	for _, k := range p.Keys {
		text := strings.TrimSpace(k.Key + ": " + k.SLS)
		if k.Replaced {
			text += " replaced"
		}
		out = append(out, text)
	}
	return out
}

// TestPillarFilesAreNamed: a key has the files that give it where it is in the pillar, and no value.
func TestPillarFilesAreNamed(t *testing.T) {
	tree := map[string]string{
		"top.sls":    "base:\n  '*': [common, web]\n  'db*': [db]\n",
		"common.sls": "nginx: {port: 80, user: TOPSECRET}\nmotd: TOPSECRET\n",
		"web.sls":    "include:\n  - lib:\n      key: shared\nnginx: {port: 81}\nmotd: TOPSECRET2\n",
		"lib.sls":    "lib: {path: TOPSECRET}\n",
		"db.sls":     "db: 1\n",
	}
	for _, tt := range []struct {
		name, key string
		want      []string
		problem   string
	}{
		{name: "the first level", want: []string{
			"master:",
			"motd: common replaced", "motd: web",
			"nginx: common", "nginx: web",
			"shared: lib",
		}},
		{name: "a key of two files", key: "nginx:port", want: []string{"nginx:port: common replaced", "nginx:port: web"}},
		{name: "a key of one of them", key: "nginx:user", want: []string{"nginx:user: common"}},
		{name: "below the key of an include", key: "shared:lib:path", want: []string{"shared:lib:path: lib"}},
		{name: "as in the file", key: "lib:path"},
		{name: "a pattern", key: "n*:u*", want: []string{"nginx:user: common"}},
		{name: "a key of other minions", key: "db"},
		{name: "too many parts", key: strings.Repeat("a:", 100), problem: "too many parts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := explainTree(t, tt.key, func(c *pillar.Config) { c.PillarOpts = true }, tree)
			got := filesOf(&out)
			slices.Sort(got)
			if !slices.Equal(got, tt.want) || !strings.Contains(out.Problem, tt.problem) {
				t.Errorf("got %q %q, want %q", got, out.Problem, tt.want)
			}
			if text := fmt.Sprintf("%+v", out); strings.Contains(text, "TOPSECRET") {
				t.Errorf("a value is shown: %s", text)
			}
			if tt.problem == "" && (len(out.Top.Matches) != 1 || len(out.Top.Others) != 1) {
				t.Errorf("lines of top files: %+v", out.Top)
			}
		})
	}
}

// TestPillarExplanationIsBounded: whoever writes pillars chooses neither the length of an explanation nor what a
// terminal does with it.
func TestPillarExplanationIsBounded(t *testing.T) {
	many := &strings.Builder{}
	top := &strings.Builder{}
	fmt.Fprintf(many, "%s: 1\n\"a\\n\\u001b[2J\": 1\n", strings.Repeat("x", 1000))
	top.WriteString("base:\n  '*': [many]\n")
	for i := range 6000 {
		fmt.Fprintf(many, "key%d: 1\n", i)
		fmt.Fprintf(top, "  db%d: [many]\n", i)
	}
	out := explainTree(t, "", unchanged, map[string]string{"top.sls": top.String(), "many.sls": many.String()})
	if len(out.Keys) != maxKeys || !strings.Contains(out.Problem, "more keys") {
		t.Errorf("%d keys: %s", len(out.Keys), out.Problem)
	}
	if n := len(out.Top.Others); n != maxOthers || out.Top.More != 6000-maxOthers || len(out.Top.Matches) != 1 {
		t.Errorf("%d lines, and %d more", n, out.Top.More)
	}
	for _, k := range out.Keys {
		if len(k.Key) > 220 || strings.ContainsAny(k.Key, "\n\x1b") {
			t.Errorf("key %.300q", k.Key)
		}
	}
}

// TestPillarExplanationNamesWhatIsWrong: faults are counted, and a pillar that cannot be explained is no pillar
// without keys.
func TestPillarExplanationNamesWhatIsWrong(t *testing.T) {
	broken := map[string]string{"top.sls": "base: {'*': [good, bad, gone]}\n", "good.sls": "a: 1\n", "bad.sls": "b: [\n"}
	out := explainTree(t, "", unchanged, broken)
	if got := filesOf(&out); !slices.Equal(got, []string{"a: good"}) || out.Faults != 2 || out.Problem != "" {
		t.Errorf("%q, %d faults, %q", got, out.Faults, out.Problem)
	}

	out = explainTree(t, "", func(c *pillar.Config) { c.Strategy = "aggregate" }, broken)
	if len(out.Keys) > 0 || !strings.Contains(out.Problem, "aggregate") {
		t.Errorf("%+v", out)
	}
}

// TestFilesOfMadeUpID: an id that a caller has made up, and for which somebody has stored grains, does
// not reach the commands of ext_pillar.
func TestFilesOfMadeUpID(t *testing.T) {
	store, err := cache.Open(t.TempDir(), 1<<20, keys.ValidID)
	check.Must(t, err)
	const id = "x; reboot"
	_, err = store.Set(cache.Grains, id, value.NewMap("id", id))
	check.Must(t, err)

	var out control.Explanation
	s := &Service{cfg: Config{Cache: store}} // a pillar would need a Compiler
	s.explainFiles(t.Context(), &facts{id: id}, "", &out)
	if !strings.Contains(out.Pillar.Problem, "a shell may obey") {
		t.Errorf("%+v", out)
	}
}
