package pillar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/logged"
)

// tree writes files below a new directory: path → content.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}

		var err error
		if link, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(link, full)
		} else {
			err = os.WriteFile(full, []byte(content), 0o644)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return root
}

// python returns a Python with Salt's library, or skips.
func python(t testing.TB) string {
	p := os.Getenv("SALTERN_PYTHON")
	if p == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to compare with Salt")
	}
	return p
}

// show writes a value with the order of its maps, in the oracle's form.
func show(v any) any {
	switch v := v.(type) {
	case *value.Map:
		pairs := []any{}
		for k, x := range v.All() {
			pairs = append(pairs, []any{show(k), show(x)})
		}
		return map[string]any{"m": pairs}
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = show(x)
		}
		return out
	case []byte:
		return map[string]any{"b": fmt.Sprintf("%x", v)}
	}

	return v
}

func jsonText(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// plainText prints a pillar without order, for short expectations.
func plainText(v any) string {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]string{}
		for k, x := range v.All() {
			out[fmt.Sprint(k)] = plainText(x)
		}
		return strings.TrimPrefix(fmt.Sprint(out), "map")
	case []any:
		out := make([]string, len(v))
		for i, x := range v {
			out[i] = plainText(x)
		}
		return fmt.Sprint(out)
	}

	return fmt.Sprint(v)
}

func compile(t testing.TB, c *Compiler, req Request) *value.Map {
	t.Helper()
	if req.ID == "" {
		req.ID = "web1"
	}
	p, err := c.Compile(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func base(dir string) map[string][]string { return map[string][]string{"base": {dir}} }

func TestNative(t *testing.T) {
	root := tree(t, map[string]string{
		"top.sls":    "base:\n  '*':\n    - common\n    - missing.one\n  'web*':\n    - web\n  'os:Debian':\n    - match: grain\n    - deb\n  'db*': [db]\n",
		"common.sls": "a: 1\nn: {x: 1, y: [1, 2]}\n", "web/init.sls": "include:\n  - .extra\n  - common\nn: {x: 2, y: [3]}\nyes: 0644\n", "web/extra.sls": "e: yes\n",
		"deb.sls": "deb: true\n", "db.sls": "db: 1\n",
	})

	c := New(Config{Roots: base(root)})
	got := compile(t, c, Request{Grains: value.NewMap("os", "Debian", "id", "db1")})
	want := "[_errors:[Specified SLS 'missing.one' in environment 'base' is not available on the salt master] a:1 deb:true e:true n:[x:2 y:[3]] true:644]"
	if plainText(got) != want {
		t.Errorf("got  %s\nwant %s", plainText(got), want)
	}

	// The cached parse must not have been changed by merging.
	if again := compile(t, c, Request{Grains: value.NewMap("os", "Debian")}); !reflect.DeepEqual(show(again),
		show(got)) {
		t.Errorf("second time: %s", plainText(again))
	}

	os.WriteFile(filepath.Join(root, "deb.sls"), []byte("deb: false\n"), 0o644)
	if v, _ := compile(t, c, Request{Grains: value.NewMap("os", "Debian")}).Get("deb"); v != false {
		t.Errorf("a changed file gives %v", v)
	}

	os.WriteFile(filepath.Join(root, "missing.sls"), []byte(""), 0o644)
	os.MkdirAll(filepath.Join(root, "missing"), 0o755)
	os.WriteFile(filepath.Join(root, "missing/one.sls"), []byte("found: 1"), 0o644)
	if p := compile(t, c, Request{}); p.Str("_errors") != "" || !strings.Contains(plainText(p), "found:1") {
		t.Errorf("a new file: %s", plainText(p))
	}
}

// TestEachErrorOnce (m10): an SLS that cannot be rendered is one entry in _errors, however many others
// include it. Salt 3008.3 names this one four times.
func TestEachErrorOnce(t *testing.T) {
	root := tree(t, map[string]string{
		"top.sls": "base: {'*': [a]}",
		"a.sls":   "include: [b, c]\nk: 1\n",
		"b.sls":   "include: [d]\n",
		"c.sls":   "include: [d]\n",
		"d.sls":   "v: {\n",
	})

	p := compile(t, New(Config{Roots: base(root)}), Request{})
	if errs := p.List("_errors"); len(errs) != 1 || p.Value("k") != int64(1) {
		t.Errorf("got %s", plainText(p))
	}
}

// TestWithoutRenderers: what needs a template says so, the rest works.
func TestWithoutRenderers(t *testing.T) {
	root := tree(t,
		map[string]string{
			"top.sls":   "base: {'*': [plain, jinja, py]}",
			"plain.sls": "a: '{ {'",
			"jinja.sls": "b: {{ grains.id }}",
			"py.sls":    "#!py\ndef run(): return {}\n",
		})

	for _, pool := range []*renderer.Pool{nil, renderer.New(renderer.Config{Python: []string{"/nonexistent/python"}})} {
		logs := &logged.Buffer{}
		c := New(Config{Roots: base(root), Renderers: pool, Log: slog.New(slog.NewTextHandler(logs, nil))})
		p := compile(t, c, Request{})
		if p.Str("a") != "{ {" || len(p.List("_errors")) != 2 ||
			!strings.Contains(plainText(p), "Rendering SLS 'jinja' failed: it needs Salt's Python renderers") {
			t.Errorf("got %s", plainText(p))
		}

		if !strings.Contains(logs.String(), "install the Salt library") {
			t.Errorf("the log does not say what to do: %s", logs)
		}

		if pool != nil {
			pool.Close()
		}
	}
}

func TestAttack16Pillarenv(t *testing.T) {
	root := tree(t,
		map[string]string{
			"secret/top.sls":    "'../secret': {'*': [s]}\nsecret: {'*': [s]}\nbase: {'*': [s]}\n",
			"secret/s.sls":      "leak: 1\n",
			"envs/good/top.sls": "good: {'*': [s]}",
			"envs/good/s.sls":   "ok: 1",
		})

	c := New(Config{Roots: map[string][]string{"__env__": {root + "/envs/__env__"}}})
	for _, env := range []string{"../secret", "..", "good/../../secret", "/" + root + "/secret", "\x00", ".",
		"a\nb", strings.Repeat("x", 5000)} {
		for _, req := range []Request{{Pillarenv: env}, {Saltenv: env}} {
			if p := compile(t, c, req); p.Len() != 1 || len(p.List("_errors")) != 1 || len(plainText(p)) > 300 {
				t.Errorf("%q: %.300s", env, plainText(p))
			}
		}
	}

	if p := compile(t, c, Request{Pillarenv: "good"}); plainText(p) != "[ok:1]" {
		t.Errorf("good: %s", plainText(p))
	}
}

func TestAttack17OthersPillar(t *testing.T) {
	root := tree(t,
		map[string]string{
			"top.sls":    "base:\n  victim: [secret]\n  'id:victim': [{match: grain}, secret]\n  'attacker': [own]\n",
			"secret.sls": "secret: 1",
			"own.sls":    "own: 1",
		})

	logs := &logged.Buffer{}
	c := New(Config{Roots: base(root), Log: slog.New(slog.NewTextHandler(logs, nil))})
	sent := value.NewMap("id", "victim", "fqdn", "victim")
	p := compile(t, c,
		Request{ID: "attacker", Grains: sent, Ext: value.NewMap("git", []any{"--upload-pack=id ssh://x"})})
	if plainText(p) != "[own:1]" {
		t.Errorf("got %s", plainText(p))
	}

	if !strings.Contains(logs.String(), "on-demand ext_pillar is refused") {
		t.Errorf("nothing in the log: %s", logs)
	}

	if sent.Str("id") != "victim" {
		t.Error("the request's grains were changed")
	}

	if _, err := c.Compile(t.Context(), Request{}); err == nil {
		t.Error("no id: accepted")
	}
}

func TestHostileTrees(t *testing.T) {
	root := tree(t,
		map[string]string{
			"top.sls":     "base: {'*': [loop, self, nodir, big, bad, rec0]}",
			"loop.sls":    "->loop.sls",
			"self.sls":    "include: [self]\nx: 1",
			"nodir.sls/x": "",
			"bad.sls":     "a: [1\n",
			"d/up":        "->..",
			"glob.sls":    "include: ['*']",
		})

	os.WriteFile(filepath.Join(root, "big.sls"), bytes.Repeat([]byte("# "), maxSLS), 0o644)
	for i := range 150 {
		os.WriteFile(filepath.Join(root, fmt.Sprintf("rec%d.sls", i)),
			[]byte(fmt.Sprintf("include: [rec%d]\nr%d: 1\n", i+1, i)), 0o644)
	}

	p := compile(t, New(Config{Roots: base(root), ShowRenderErrors: true}), Request{})
	text := plainText(p)
	for _, want := range []string{"x:1", "Specified SLS 'loop'", "Specified SLS 'nodir'",
		"Rendering SLS 'big' failed", "Rendering SLS 'bad' failed", "nested more than 100 deep"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %.2000s", want, text)
		}
	}
}

func TestPlainDetection(t *testing.T) {
	f := plainFor(&Config{Renderer: "jinja|yaml"})
	for text, want := range map[string]bool{
		"a: 1": true, "": true, " \n": true, "a: {{ b }}": false, "{% if x %}": false, "{# c #}": false, "a: {b: 1}": true, "#!yaml\na: '{{ x }}'": true, "#!jinja|yaml\na: 1": true, "#!jinja | yaml\na: 1": true,
		"#!py\na": false, "#!/bin/sh\na: 1": true, "#!yamlex\n": false, "#!gpg|yaml\n": false, "a: \xff": false, "\ufeffa: 1": false, "#jinja2: {}\na: 1": false, "#!jinja -s|yaml\n": false, "#!yaml_jinja\na: 1": true,
	} {
		if got := f([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}

	if plainFor(&Config{Renderer: "mako|yaml"})([]byte("a: 1")) ||
		plainFor(&Config{
			Renderer:    "jinja|yaml",
			CustomJinja: true,
		})([]byte("a: 1")) || plainFor(&Config{Renderer: "yaml", RestrictedRenderers: true})([]byte("a: 1")) {
		t.Error("read by Go what another renderer may change")
	}

	if !plainFor(&Config{Renderer: "yaml"})([]byte("a: '{{ x }}'")) {
		t.Error("yaml alone has no markers")
	}
}

func TestMerge(t *testing.T) {
	m := value.NewMap
	a := m("x", 1, "l", []any{int64(1), "a", m("k", int64(1))}, "m", m("p", 1, "q", m("r", 1)))
	b := m("l", []any{true, "b", m("k", 1.0), "b"}, "m", m("q", m("s", 2)), "z", 9)
	before := fmt.Sprint(show(a), show(b))

	for _, c := range []struct {
		strategy string
		lists    bool
		want     string
	}{
		{"smart", false, "[l:[true b [k:1] b] m:[p:1 q:[r:1 s:2]] x:1 z:9]"},
		{"recurse", true, "[l:[1 a [k:1] b b] m:[p:1 q:[r:1 s:2]] x:1 z:9]"},
		{"overwrite", true, "[l:[true b [k:1] b] m:[q:[s:2]] x:1 z:9]"},
		{"list", false, "[l:[[1 a [k:1]] [true b [k:1] b]] m:[[p:1 q:[r:1]] [q:[s:2]]] x:1]"},
		{"none", true, "[l:[true b [k:1] b] m:[p:1 q:[r:1 s:2]] x:1 z:9]"},
	} {
		if got := plainText(mergeBy(a, b, c.strategy, c.lists)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.strategy, got, c.want)
		}
	}

	if before != fmt.Sprint(show(a), show(b)) {
		t.Error("merging changed its arguments")
	}
}

func TestPillarOpts(t *testing.T) {
	root := tree(t, map[string]string{"top.sls": "base: {'*': [a]}", "a.sls": "a: 1"})
	c := New(Config{
		Roots:       base(root),
		PillarOpts:  true,
		SaltVersion: "3008.3",
		Opts:        value.NewMap("pki_dir", "/etc/salt/pki", "pillar", 1),
	})

	p := compile(t, c, Request{Grains: value.NewMap("os", "x")})
	o := p.Map("master")
	if o.Str("pki_dir") == "" || o.Str("id") != "web1" || o.Str("saltversion") != "3008.3" ||
		o.Map("grains").Str("os") != "x" || o.Map("pillar") != nil {
		t.Errorf("got %s", plainText(p))
	}

	if _, err := msgpack.Marshal(p, msgpack.Raw); err != nil {
		t.Error(err)
	}
}

// oracle has Salt compile cases.
func oracle(t *testing.T, python string, cases []map[string]any) (version int, results []map[string]any) {
	t.Helper()
	cmd := exec.Command(python, "testdata/oracle.py")
	cmd.Stdin = strings.NewReader(jsonText(t, cases))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}

	var out struct {
		Version int
		Results []map[string]any
	}

	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}

	return out.Version, out.Results
}

// BenchmarkCompileJinja is the top file and one SLS with a loop of 20.
func BenchmarkCompileJinja(b *testing.B) {
	root := tree(b,
		map[string]string{
			"top.sls": "base:\n  '*': [app]\n",
			"app.sls": "{% for i in range(20) %}\nkey{{ i }}:\n  value: {{ i }}\n  id: {{ grains['id'] }}\n{% endfor %}\n",
		})

	pool := renderer.New(renderer.Config{
		Python:     []string{python(b)},
		MaxWorkers: 1,
		Overrides:  value.NewMap("root_dir", root, "id", "m"),
	})
	defer pool.Close()

	if err := pool.Warm(b.Context()); err != nil {
		b.Fatal(err)
	}

	c := New(Config{Roots: base(root), Renderers: pool})
	for i := 0; b.Loop(); i++ {
		compile(b, c, Request{ID: fmt.Sprint("m", i), Grains: value.NewMap("os", "Debian")})
	}
}

func BenchmarkCompileNative(b *testing.B) {
	root := tree(b,
		map[string]string{
			"top.sls": "base:\n  '*': [a, b]\n  'web*': [w]\n",
			"a.sls":   "a: {x: 1, y: [1, 2, 3]}",
			"b.sls":   "b: {x: 1}\na: {z: 1}",
			"w.sls":   "include: [a]\nw: 1",
		})
	c := New(Config{Roots: base(root)})
	g := value.NewMap("os", "Debian")
	for b.Loop() {
		compile(b, c, Request{Grains: g})
	}
}
