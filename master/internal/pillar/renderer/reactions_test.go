package renderer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
)

// ownModules are functions whose arguments have the names that a reactor might keep for
// itself.
var ownModules = map[string]string{
	"ext/runners/own.py": `def every(tgt=None, tgt_type='x', timeout=None, ret=None, name=None, kwargs=None, text=None): pass
def create(id, name, kwargs=None, **other): pass
def few(a, b=2): pass
def none(): pass
def words(name, fun=None, state=None, order=None, key=None): pass
def any(*args, **kwargs): pass
`,
	"ext/wheel/own.py": `def every(tgt, timeout=None, name=None, ret='r'): pass
def any(**kwargs): pass
`,
}

// reactorMaster makes a master's configuration over the folders of testdata/reactions, and
// what reads its reactions.
func reactorMaster(t testing.TB) (r *Reactions, config, root string) {
	t.Helper()
	var p *Pool
	p, root = pool(t, ownModules, func(c *Config) { c.Overrides = nil })
	for _, file := range []string{"files", "real"} {
		if err := os.CopyFS(filepath.Join(root, file), os.DirFS("testdata/reactions/"+file)); err != nil {
			t.Fatal(err)
		}
	}

	config = filepath.Join(root, "master")
	text := fmt.Sprintf("id: themaster\nroot_dir: %[1]s\ncachedir: %[1]s/cache\nextension_modules: %[1]s/ext\nfile_roots: {base: [%[1]s/files]}\nreactor: []\n",
		root)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	p.cfg.ConfigFile = config
	r = p.Reactions(ReactionsConfig{})
	t.Cleanup(r.Close)
	return r, config, root
}

// reactorCase is an event and the files that react to it.
type reactorCase struct {
	Tag   string         `json:"tag"`
	Data  map[string]any `json:"data"`
	Files []string       `json:"files"`
}

// reacted is what came of a case.
type reacted struct {
	Calls  []any
	Errors []string
	Ended  string // how Salt's process of the reactor ended; "": it did not
}

// saltReacts asks Salt's own reactor.
func saltReacts(t testing.TB, config string, cases []reactorCase) (out []reacted) {
	t.Helper()
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}

	script, err := os.ReadFile("testdata/reactor_oracle.py")
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(python(t), "-c", string(script), config)
	cmd.Stdin = bytes.NewReader(in)
	var trouble strings.Builder
	cmd.Stderr = &trouble
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, trouble.String())
	}

	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}

	return out
}

// reacts compiles a case, and gives the calls the form of those of the oracle.
func reacts(t testing.TB, r *Reactions, c reactorCase) (out reacted) {
	t.Helper()
	calls, faults, err := r.Compile(t.Context(), c.Tag, fromGo(c.Data).(*value.Map), c.Files)
	if err != nil {
		out.Errors = append(out.Errors, err.Error())
	}

	for _, call := range calls {
		if call.Bool("unknown") { // what the master does not have either is refused by it
			out.Errors = append(out.Errors, call.Str("fun"))
			continue
		}

		if load := call.Map("load"); load != nil {
			call.Delete("kwarg")
			call.Update(load)
		}

		for _, ours := range []string{"id", "file", "unknown", "load"} {
			call.Delete(ours)
		}

		out.Calls = append(out.Calls, throughJSON(t, toGo(call)))
	}

	for _, fault := range faults {
		if fault.Bool("error") {
			out.Errors = append(out.Errors, fault.Str("text"))
		}
	}

	return out
}

func fromGo(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := value.NewMap()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out.Set(k, fromGo(v[k]))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fromGo(e)
		}
		return out
	case int:
		return int64(v)
	}

	return v
}

func toGo(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]any{}
		for k, e := range v.All() {
			out[value.JSONKey(k)] = toGo(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = toGo(e)
		}
		return out
	}

	return v
}

func throughJSON(t testing.TB, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sameReaction compares what came of a case here and with Salt. Salt's process of the
// reactor ends by an unknown kind; here the other reactions go on.
func sameReaction(t *testing.T, c reactorCase, got, want reacted) {
	t.Helper()
	calls := got.Calls
	if want.Ended != "" && len(calls) > len(want.Calls) {
		calls = calls[:len(want.Calls)]
	}

	same := len(calls) == len(want.Calls) && (len(calls) == 0 || reflect.DeepEqual(calls, want.Calls))
	refused := len(want.Errors) > 0 || want.Ended != ""
	if same && refused == (len(got.Errors) > 0) {
		return
	}

	var files strings.Builder
	for _, path := range c.Files {
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&files, "%s:\n%s\n", path, text)
	}

	t.Errorf("%s\ngot  %v, %q\nwant %v, %q %s", files.String(), got.Calls, got.Errors, want.Calls,
		want.Errors, want.Ended)
}

// TestReactionsAreSalts: files as administrators write them, and generated ones of all forms,
// ask for the same calls, in the same order, as with Salt's reactor, or are refused as by it
// (findings M1, M2, M3). SALTERN_REACTIONS sets how many are generated, from a random seed
// or SALTERN_REACTIONS_SEED (make test-reactions).
func TestReactionsAreSalts(t *testing.T) {
	t.Parallel()
	r, config, root := reactorMaster(t)
	var cases []reactorCase
	real, err := filepath.Glob(root + "/real/*.sls")
	if err != nil || len(real) < 20 {
		t.Fatalf("%v: %d files", err, len(real))
	}

	data := map[string]any{
		"id":   "ink1",
		"act":  "pend",
		"data": map[string]any{"id": "vm7"},
		"path": "/etc/x",
		"list": []any{1, "é", nil, true},
	}

	for _, path := range real {
		cases = append(cases, reactorCase{"salt/minion/ink1/start", data, []string{path}})
	}

	cases = append(cases,
		reactorCase{"several", data,
			[]string{root + "/real/a*.sls", root + "/real/missing.sls", root + "/real/names.sls"}},
		reactorCase{"all", data, []string{root + "/real/*.sls"}},
	)

	generated, seed := 100, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("SALTERN_REACTIONS")); err == nil {
		generated = n
		seed = uint64(time.Now().UnixNano())
	}

	if n, err := strconv.ParseUint(os.Getenv("SALTERN_REACTIONS_SEED"), 10, 64); err == nil {
		seed = n
	}

	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	for n := range generated {
		path := fmt.Sprintf("%s/generated%d.sls", root, n)
		if err := os.WriteFile(path, []byte(g.file()), 0o600); err != nil {
			t.Fatal(err)
		}

		files := []string{path}
		if n > 0 && g.odds(5) {
			files = append(files, cases[g.IntN(len(cases))].Files...)
		}

		cases = append(cases,
			reactorCase{"tag/" + g.pick("a", "b c", "é"),
				map[string]any{"id": g.pick("m1", "m2.example"), "n": g.IntN(5)}, files})
	}

	for i, want := range saltReacts(t, config, cases) {
		sameReaction(t, cases[i], reacts(t, r, cases[i]), want)
	}
}

// generator writes reaction files.
type generator struct{ *rand.Rand }

func (g generator) odds(n int) bool { return g.IntN(n) == 0 }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

var (
	reactionIDs  = []string{"a", "b", "c", "'x y'", "é", "d_{{ data['id'] }}", "m{{ data['n'] }}"}
	reactionFuns = []string{"local.test.ping", "local.state.sls", "cmd.cmd.run", "caller.test.arg"}
	masterFuns   = []string{"own.every", "own.any", "own.every", "own.few", "own.create", "own.words",
		"own.none", "manage.up", "cache.clear_all", "cache.grains", "error.error", "fileserver.update",
		"no.such", "state.orchestrate", "test.arg"}
	wheelFuns     = []string{"own.every", "own.any", "key.accept", "key.delete", "no.such", "config.values"}
	argumentNames = []string{"tgt", "tgt", "tgt_type", "expr_form", "timeout", "ret", "name", "kwargs",
		"text", "id", "a", "b", "class", "match", "fun", "state", "key", "metadata", "jid", "message",
		"mods", "saltenv"}
)

// file writes a file of one of the forms that Salt's renderers read.
func (g generator) file() string {
	switch g.IntN(12) {
	case 0: // JSON is YAML as well
		return g.pick("#!json\n", "#!jinja|json\n", "#!yaml\n") +
			fmt.Sprintf(`{"%s": {"%s": [{"tgt": "*"}, {"args": {"a": 1, "text": "{{ data['id'] }}"}}]}}`, g.pick("a", "é"), g.function())
	case 1:
		return g.program()
	case 2:
		return "#!jinja|yaml\n" + g.reactions()
	}
	return g.reactions()
}

// program writes a file in Python.
func (g generator) program() string {
	result := g.pick(
		fmt.Sprintf("{'a': {%q: [{'tgt': data['id']}, {'args': {'a': data['n'], 'text': tag}}]}}", g.function()),
		fmt.Sprintf("{name: {%q: [{'arg': [name, __opts__['id']]}]} for name in ('z', 'y', 'x')}", g.function()),
		fmt.Sprintf("{'a': {%q: [{'args': [{'a': (1, 2)}, {'text': b'x'.decode()}]}]}} if data['n'] > 1 else {}", g.function()),
		"None", "[]", "{'a': None}", "{1: {'runner.own.none': []}}",
	)
	return "#!py\ndef run():\n    return " + result + "\n"
}

// reactions writes a few reactions, now and then with something odd.
func (g generator) reactions() string {
	var out strings.Builder
	if g.odds(8) {
		out.WriteString("{% import_yaml 'reactor/hosts.yaml' as conf %}\n{% set who = conf.channel %}\n")
	}
	if g.odds(12) {
		out.WriteString(g.pick("include:\n  - reactor.hosts\n", "extend: {a: {runner: [{tgt: x}]}}\n", "exclude: [{id: a}]\n"))
	}

	for range 1 + g.IntN(4) {
		if g.odds(6) {
			out.WriteString(g.block())
			continue
		}

		id := g.pick(reactionIDs...)
		switch g.IntN(16) {
		case 0:
			fmt.Fprintf(&out, "%s:\n  %s\n", id, g.function())
		case 1:
			kind, fun, _ := strings.Cut(g.function(), ".")
			fmt.Fprintf(&out, "%s: {%s: [%s, %s]}\n", id, kind, fun, strings.Join(g.arguments(), ", "))
		case 2:
			fmt.Fprintf(&out, "%s: %s\n", id,
				g.pick("5", "null", "text", "[a]", "{}", "{runner.own.any: {tgt: x}}",
					"{runner.own.any: null}", "{runner: []}", "{shell.x: []}",
					"{local.test.ping: [{tgt: x}], runner.own.any: []}"))
		case 3:
			fmt.Fprintf(&out, "%s:\n  %s:\n    - %s\n  %s: []\n", id, g.function(), g.argument(), g.function())
		default:
			fmt.Fprintf(&out, "%s:\n  %s:\n", id, g.function())
			for _, a := range g.arguments() {
				fmt.Fprintf(&out, "    - %s\n", a)
			}
		}
	}

	if g.odds(40) {
		out.WriteString(g.pick("{{ nosuch.x.y }}", "a: b: c", "{% if %}", "- a", "\tx: y"))
	}

	return out.String()
}

// block writes reactions that depend on the event.
func (g generator) block() string {
	one := fmt.Sprintf("  %s:\n    - tgt: %s\n    - %s\n", g.function(), g.value(0), g.argument())
	return g.pick(
		"{% if data['n'] > 2 and tag.startswith('tag/') %}\nwhen:\n"+one+"{% endif %}\n",
		"{% if 'web' in data['id'] %}\nweb:\n"+one+"{% else %}\nother:\n"+one+"{% endif %}\n",
		"{% for n in range(data['n']) %}\nloop_{{ n }}:\n"+one+"{% endfor %}\n",
		"{% macro call(who) %}\n{{ who }}:\n"+one+"{% endmacro %}\n{{ call('first') }}\n{{ call(data['id']) }}\n",
		"{% set low = {'tgt': data['id'], 'list': [1, {'a': none}]} %}\nset:\n  runner.own.any:\n    - args: {{ low | json }}\n",
		"{% raw %}\nraw:\n"+one+"{% endraw %}\n",
	)
}

func (g generator) function() string {
	switch g.IntN(3) {
	case 0:
		return g.pick(reactionFuns...)
	case 1:
		return "wheel." + g.pick(wheelFuns...)
	}
	return "runner." + g.pick(masterFuns...)
}

func (g generator) arguments() (list []string) {
	for range 1 + g.IntN(4) {
		list = append(list, g.argument())
	}
	if g.odds(2) {
		list = append(list, "tgt: '*'")
	}
	for i, a := range list {
		if strings.HasPrefix(a, "{") || strings.HasPrefix(a, "[") || !strings.Contains(a, ": ") {
			continue
		}
		list[i] = "{" + a + "}"
	}
	return list
}

func (g generator) argument() string {
	switch g.IntN(12) {
	case 0:
		return "args: " + g.pick("[{a: 1}, {text: x}]", "{a: 1, b: [1, {c: d}]}", "[1, two]", "[]", "5",
			"[{a: 1, b: 2}]")
	case 1:
		return "arg: " + g.pick("[1, two]", "[[a], {b: c}]", "text", "[]")
	case 2:
		return "kwarg: " + g.pick("{a: 1}", "{}", "[{a: 1}]", "null")
	case 3:
		return "order: " + g.pick("1", "2", "first", "last", "-1", "'5'", "100")
	case 4:
		return "names: " + g.pick("[a, b]", "[a, {b: [{tgt: z}, {text: 1}]}]", "[]", "x")
	case 5:
		return g.pick("require", "watch", "onchanges", "require_in", "prereq") + ": " +
			g.pick("[{runner: a}]", "[{local: b}]", "[a]", "[{wheel: c}, {runner: b}]", "x", "[{runner: {a: b}}]")
	case 6:
		return g.pick("{a: 1, b: 2}", "word", "5", "{}")
	}

	return g.pick(argumentNames...) + ": " + g.value(2)
}

func (g generator) value(depth int) string {
	if depth > 0 && g.odds(3) {
		return g.pick("["+g.value(depth-1)+", "+g.value(depth-1)+"]", "{k: "+g.value(depth-1)+"}",
			"{1: "+g.value(depth-1)+", x: null}")
	}
	return g.pick("1", "-2.5", "text", "'*'", "true", "null", "''", "\"{{ data['id'] }}\"",
		"{{ data['n'] }}", "{{ tag | json }}", "{{ grains['id'] }}", "{{ opts['id'] }}", "os:Debian",
		"G@a and m*", "0x10", "'5'")
}

// TestTimesInEvents: a time in the data of an event, which Salt packs as an extension of
// MessagePack, is a time in the files of reactions, as in Salt's own reactor. An extension that
// cannot be read as a time stays as it is.
func TestTimesInEvents(t *testing.T) {
	t.Parallel()
	p, root := pool(t, map[string]string{
		"r.sls": "x: {runner.test.arg: [{args: [{year: {{ data.when.year }}}, {odd: {{ data.odd.code }}}]}]}\n",
	}, func(*Config) {})
	r := p.Reactions(ReactionsConfig{
		Options: func(context.Context) *value.Map { return value.NewMap() },
		Renew:   time.Hour,
	})
	defer r.Close()

	data := value.NewMap(
		"when", value.Ext{Type: 78, Data: []byte("20540128T01:02:03.734824")},
		"odd", value.Ext{Type: 78, Data: []byte("soon")},
	)
	calls, faults, err := r.Compile(t.Context(), "t", data, []string{root + "/r.sls"})
	if err != nil || len(faults) != 0 || len(calls) != 1 {
		t.Fatalf("%v, %v, %v", calls, faults, err)
	}
	if got := calls[0].Map("kwarg"); got.Value("year") != int64(2054) || got.Value("odd") != int64(78) {
		t.Errorf("%v", calls[0])
	}
}

// TestReactionsOfALostWorker: a Python that dies, and other options, cost no reaction; when
// there is nothing to do no worker is kept.
func TestReactionsOfALostWorker(t *testing.T) {
	t.Parallel()
	p, root := pool(t,
		map[string]string{
			"r.sls":        "{% import_yaml 'v.yaml' as v %}\nx: {runner.test.arg: [{args: {v: {{ v }}}}]}\n",
			"salt/v.yaml":  "1",
			"other/v.yaml": "2",
		},
		func(c *Config) {
			c.MaxWorkers = 1
		})

	options := value.NewMap()
	r := p.Reactions(ReactionsConfig{Options: func(context.Context) *value.Map { return options }, Renew: time.Hour})
	defer r.Close()

	pillar, err := p.Session(t.Context(), Minion{ID: "m"}) // takes the only place
	if err != nil {
		t.Fatal(err)
	}
	defer pillar.Close()

	want := func(v int64) {
		t.Helper()
		calls, faults, err := r.Compile(t.Context(), "t", value.NewMap(), []string{root + "/r.sls"})
		if err != nil || len(faults) != 0 || len(calls) != 1 || calls[0].Map("kwarg").Value("v") != v {
			t.Fatalf("%v, %v, %v", calls, faults, err)
		}
	}

	session := func() *Session {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.session
	}

	want(1)
	before := session()
	want(1)
	if session() != before {
		t.Error("each event starts a worker")
	}

	dies := root + "/dies.sls"
	text := fmt.Sprintf("#!py\nimport os\ndef run():\n    if not os.path.exists(%[1]q):\n        open(%[1]q, 'w').close()\n        os.kill(os.getpid(), 9)\n    return {'x': {'runner.test.arg': []}}\n",
		root+"/mark")
	if err := os.WriteFile(dies, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	if calls, _, err := r.Compile(t.Context(), "t", value.NewMap(), []string{dies}); err != nil || len(calls) != 1 {
		t.Errorf("by a worker that dies: %v, %v", calls, err)
	}

	want(1)
	options = value.NewMap("file_roots", value.NewMap("base", []any{root + "/other"}))
	want(2)
	before = session()
	r.mu.Lock()
	r.cfg.Renew = time.Millisecond
	r.mu.Unlock()

	want(2)
	if session() == before {
		t.Error("a worker is used for longer than it may")
	}

	await.That(t, "the end of an idle worker", func() bool { return p.Stats().Workers == 1 })
}

// TestReactionFaultsAreNamed: one bad file stops no other one, as with Salt, and the log can
// say where it is bad; values that cannot be sent cost their own reaction only.
func TestReactionFaultsAreNamed(t *testing.T) {
	t.Parallel()
	r, _, root := reactorMaster(t)
	good := root + "/good.sls"
	for name, tt := range map[string]struct {
		text  string
		calls int
		want  []string
	}{
		"jinja":       {"# hunter2\nx:\n  {{ a\n", 1, []string{"bad.sls", "line 3"}},
		"yaml":        {"x:\n  - a\n b: c\n", 1, []string{"bad.sls", "line 3"}},
		"undefined":   {"x: {{ nosuch.y }}\n", 1, []string{"bad.sls", "nosuch"}},
		"whole event": {"x:\n  runner.own.any: null\n", 0, []string{"bad.sls", "'x'"}},
		"missing a name": {"\nx:\n  runner.own.few: [{b: 1}]\n", 1,
			[]string{"'x'", "own.few", "takes at least", "bad.sls:2"}},
		"unknown kind": {"x:\n  shell.run: [{b: 1}]\n", 1, []string{"'x'", "shell.run", "bad.sls:1"}},
		"a secret": {"x:\n  local.test.ping: [{tgt: a}, {args: {a: 1}}, {arg: [hunter2]}]\n", 2,
			[]string{"ignoring 'arg'", "bad.sls:1"}},
		"cannot be sent": {"#!py\ndef run():\n    return {'x': {'runner.own.any': [{'args': {'a': object()}}]}}\n",
			1, []string{"'x'", "own.any"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.sls")
			for path, text := range map[string]string{
				good: "good:\n  runner.own.any: [{args: {a: 1}}]\n",
				bad:  tt.text,
			} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			calls, faults, err := r.Compile(t.Context(), "t", value.NewMap(), []string{bad, good})
			if err != nil || len(calls) != tt.calls || len(faults) != 1 {
				t.Fatalf("%v, %v, %v", calls, faults, err)
			}

			f := faults[0]
			text := fmt.Sprintf("%s %s:%v", f.Str("text"), f.Str("file"), f.Value("line"))
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q lacks %q", text, want)
				}
			}

			if strings.Contains(text, "hunter2") {
				t.Errorf("%q tells a secret", text)
			}
		})
	}
}

func BenchmarkReaction(b *testing.B) {
	r, _, root := reactorMaster(b)
	data := value.NewMap("id", "ink1", "act", "pend")
	for b.Loop() {
		if _, faults, err := r.Compile(b.Context(), "salt/minion/ink1/start", data,
			[]string{root + "/real/cache.sls"}); err != nil || len(faults) > 0 {
			b.Fatal(faults, err)
		}
	}
}
