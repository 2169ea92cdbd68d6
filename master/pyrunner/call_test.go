package pyrunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/pyhost"
	"saltern/master/value"
)

// Call calls a function on nobody's behalf.
func (c *Caller) Call(ctx context.Context, fun string, args []any, named *value.Map) (any, error) {
	return c.Run(ctx, Call{Fun: fun, Args: args, Named: named})
}

// odd is a runner and wheel module.
const odd = `
import os
def back(*args, **kwargs):
    return [list(args), kwargs]
def spelled(*args):
    return [repr(arg) for arg in args]
def who():
    return [__user__, __jid__, __tag__, __opts__["id"]]
def code(retcode=0):
    __context__["retcode"] = retcode
    return retcode
def fail(kind):
    raise {"value": ValueError, "exit": SystemExit, "memory": MemoryError}[kind]("as asked")
def names(folder):
    return os.listdir(folder)
`

// host is shared by all tests, since its start takes the longest time.
var host = sync.OnceValue(func() *pyhost.Host {
	return NewHost(HostConfig{
		Pythons: []string{os.Getenv("SALTERN_PYTHON")},
		Memory:  pyhost.DefaultMemory / 4,
	})
})

func TestMain(m *testing.M) {
	code := m.Run()
	host().Close()
	os.Exit(code)
}

// setUp makes a configuration with modules of an administrator.
func setUp(t testing.TB, wheel bool) (c *Caller, dir string) {
	if os.Getenv("SALTERN_PYTHON") == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}

	dir = t.TempDir()
	put(t, filepath.Join(dir, "master"),
		"root_dir: "+dir+"\nid: m1\nextension_modules: "+dir+"/ext\nrunner_dirs: ["+dir+"/own]\n")
	put(t, filepath.Join(dir, "ext/runners/odd.py"), odd)
	put(t, filepath.Join(dir, "ext/wheel/odd.py"), odd)

	return New(Config{
		Host:       host(),
		ConfigFile: filepath.Join(dir, "master"),
		Wheel:      wheel,
		Log:        slog.New(slog.DiscardHandler),
	}), dir
}

// put writes a file in place, as an editor or rsync --inplace does.
func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGrainsAreCollectedOnce: the minion objects that one call creates for the master, as the steps
// of an orchestration do, share the grains of the machine, each as a copy of its own. The next call
// collects the grains again.
func TestGrainsAreCollectedOnce(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "ext/grains/counted.py"),
		"def counted():\n    with open('"+dir+
			"/collected', 'a') as f:\n        f.write('.')\n    return {'color': open('"+dir+"/color').read()}\n")
	put(t, filepath.Join(dir, "own/paint.py"), `
import salt.minion
def colors():
    return [spill(salt.minion.MasterMinion(__opts__, states=False, rend=False).opts["grains"]) for step in range(6)]
def spill(grains):
    was = grains["color"]
    grains["color"] = "spilled"
    return was
`)

	for _, color := range []string{"red", "blue"} {
		put(t, filepath.Join(dir, "color"), color)
		put(t, filepath.Join(dir, "collected"), "")
		v, err := c.Call(t.Context(), "paint.colors", nil, nil)
		if want := fmt.Sprint(slices.Repeat([]string{color}, 6)); err != nil || fmt.Sprint(v) != want {
			t.Errorf("%v %v, want %s", v, err, want)
		}

		collected, err := os.ReadFile(filepath.Join(dir, "collected"))
		if err != nil {
			t.Fatal(err)
		}

		if len(collected) == 0 || len(collected) == 6 { // more than once on a slow machine
			t.Errorf("grains were collected %d times", len(collected))
		}
	}
}

// TestGrainsAfterAStep: if a step of a call changes this machine's own grains, as
// saltutil.sync_grains and grains.setval do, the next step sees the change.
func TestGrainsAfterAStep(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "ext/grains/own.py"), "def own():\n    return {'color': 'red'}\n")
	put(t, filepath.Join(dir, "own/steps.py"), `
import os
import salt.minion
def seen():
    grains = salt.minion.MasterMinion(__opts__, states=False, rend=False).opts["grains"]
    return [grains.get("color"), grains.get("shape"), grains.get("size")]
def write(path, text):
    path = os.path.join(os.path.dirname(__opts__["conf_file"]), path)
    with open(path, "w") as f:
        f.write(text)
    return seen()
def take():
    return [
        seen(),
        write("ext/grains/own.py", "def own():\n    return {'color': 'bright blue'}\n"),
        write("ext/grains/other.py", "def other():\n    return {'shape': 'round'}\n"),
        write("grains", "size: large\n"),
    ]
`)

	v, err := c.Call(t.Context(), "steps.take", nil, nil)
	want := "[[red <nil> <nil>] [bright blue <nil> <nil>] [bright blue round <nil>] [bright blue round large]]"
	if got := fmt.Sprint(v); err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

// TestEditedFunction: a runner, a utility that it calls and an option are edited 50 times in a row,
// and each call sees the last edit. Sizes and whole seconds, by which Python distinguishes compiled
// files, stay the same.
func TestEditedFunction(t *testing.T) {
	c, dir := setUp(t, false)
	before := host().Stats()
	options, err := os.ReadFile(filepath.Join(dir, "master"))
	if err != nil {
		t.Fatal(err)
	}

	for n := 10; n < 60; n++ {
		put(t, filepath.Join(dir, "own/edited.py"),
			fmt.Sprintf("def now():\n    return [%d, __utils__['own.value'](), __opts__['own_option']]\n", n))
		put(t, filepath.Join(dir, "ext/utils/own.py"), fmt.Sprintf("def value():\n    return %d\n", n))
		put(t, filepath.Join(dir, "master"), fmt.Sprintf("%sown_option: %d\n", options, n))

		if v, err := c.Call(t.Context(), "edited.now", nil, nil); err != nil ||
			fmt.Sprint(v) != fmt.Sprint([]int{n, n, n}) {
			t.Fatalf("%v %v, want three times %d", v, err, n)
		}
	}

	if err := os.Remove(filepath.Join(dir, "own/edited.py")); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if v, err := c.Call(t.Context(), "edited.now", nil, nil); !errors.As(err, new(*UnknownError)) {
			t.Errorf("a function that was removed: %v %v", v, err)
		}
	}

	if now := host().Stats(); now.Restarts != before.Restarts {
		t.Errorf("before %+v, now %+v", before, now)
	}
}

// TestJobOfFunction: a function sees the job that its caller passes, both as a runner and as a
// wheel function.
func TestJobOfFunction(t *testing.T) {
	for form, wheel := range map[string]bool{"run": false, "wheel": true} {
		t.Run(form, func(t *testing.T) {
			c, _ := setUp(t, wheel)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					job := Job{
						JID:    fmt.Sprintf("2026112800000000%04d", i),
						User:   fmt.Sprint("user", i),
						Minion: []string{"", "web1"}[i%2],
					}

					v, err := c.Run(t.Context(), Call{Fun: "odd.who", Job: job})
					want := fmt.Sprint([]any{job.User, job.JID, "salt/" + form + "/" + job.JID,
						[]string{"m1", "web1"}[i%2]})
					if err != nil || fmt.Sprint(v) != want {
						t.Errorf("%v %v, want %s", v, err, want)
					}
				})
			}

			all.Wait()
			v, err := c.Call(t.Context(), "odd.who", nil, nil)
			if seen, _ := v.([]any); err != nil || len(seen) != 4 || len(seen[1].(string)) != 20 || seen[0] == "" {
				t.Errorf("on nobody's behalf: %v %v", v, err)
			}
		})
	}
}

// TestOutcomesOfFunctions are in the words of Salt's own master.
func TestOutcomesOfFunctions(t *testing.T) {
	c, _ := setUp(t, false)
	for _, tt := range []struct {
		fun    string
		args   []any
		named  *value.Map
		part   string
		failed bool
	}{
		{fun: "odd.code", part: "0"},
		{fun: "odd.code", args: []any{2}, part: "2", failed: true},
		{
			fun:   "odd.code",
			named: value.NewMap("x", 1),
			part:  "Passed invalid arguments: code() got an unexpected keyword argument 'x'",
		},
		{
			fun:    "odd.fail",
			args:   []any{"value"},
			part:   "Exception occurred in runner odd.fail: Traceback (most recent call last):\n",
			failed: true,
		},
		{fun: "odd.fail", args: []any{"value"}, part: "\nValueError: as asked\n", failed: true},
		{fun: "odd.fail", args: []any{"exit"}, part: "SystemExit: as asked", failed: true},
		{fun: "odd.fail", args: []any{"memory"}, part: "MemoryError: as asked", failed: true},
	} {
		v, err := c.Call(t.Context(), tt.fun, tt.args, tt.named)
		var f *Failure
		if errors.As(err, &f) {
			v = f.Return
		} else if err != nil {
			t.Error(err)
		}

		if text := fmt.Sprint(v); (f != nil) != tt.failed || !strings.Contains(text, tt.part) ||
			strings.Contains(text, "in outcome") {
			t.Errorf("%s %v: %q, failed %v", tt.fun, tt.args, text, f != nil)
		}
	}
}

// generated returns a random value that a caller may pass, and the value that comes back from
// Python: text for integers beyond 64 bits, bytes for text that is not UTF-8.
func generated(r *rand.Rand, depth int) (given, back any) {
	kinds := 9
	if depth > 0 {
		kinds = 11
	}

	switch r.IntN(kinds) {
	case 0:
		return nil, nil
	case 1:
		b := r.IntN(2) == 0
		return b, b
	case 2:
		n := r.Int64() - r.Int64()
		return n, n
	case 3:
		n := uint64(math.MaxInt64) + 1 + r.Uint64N(math.MaxInt64)
		return n, n
	case 4:
		n := new(big.Int).Lsh(big.NewInt(r.Int64()+1), 70)
		return n, n.String()
	case 5:
		f := r.NormFloat64()
		return f, f
	case 6:
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b, b
	case 7:
		s := strings.Repeat([]string{"a=b", "ä", "\x00", "--out=x", "1", "no", "日本", "\n", "None"}[r.IntN(9)],
			r.IntN(50))
		return s, s
	case 8: // no text: a name of a file may be so
		s := fmt.Sprintf("na\xefve%d", r.IntN(100))
		return s, []byte(s)
	case 9:
		var g, b []any
		for range r.IntN(5) {
			x, y := generated(r, depth-1)
			g, b = append(g, x), append(b, y)
		}
		return append([]any{}, g...), append([]any{}, b...)
	}

	g, b := value.NewMap(), value.NewMap()
	for i := range r.IntN(5) {
		x, y := generated(r, depth-1)
		key := []any{nil, int64(i) + 10, fmt.Sprint("key ", i), true, float64(i) + 0.5}[r.IntN(5)]
		g.Set(key, x)
		b.Set(key, y)
	}

	return g, b
}

// spelled writes a value so that types show.
func spelled(v any) string {
	switch v := v.(type) {
	case *value.Map:
		var text []string
		for k, x := range v.All() {
			text = append(text, spelled(k)+": "+spelled(x))
		}
		return "{" + strings.Join(text, ", ") + "}"
	case []any:
		var text []string
		for _, x := range v {
			text = append(text, spelled(x))
		}
		return "[" + strings.Join(text, ", ") + "]"
	}

	return fmt.Sprintf("%T(%#v)", v, v)
}

// TestTypesComeBack: a caller's values arrive in Python with their types, and come back with them.
func TestTypesComeBack(t *testing.T) {
	c, _ := setUp(t, false)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		var args, want []any
		for range 20 {
			g, b := generated(r, 4)
			args, want = append(args, g), append(want, b)
		}

		named, back := generated(r, 4)
		v, err := c.Call(t.Context(), "odd.back", args, value.NewMap("named", named))
		if got, want := spelled(v), spelled([]any{want, value.NewMap("named", back)}); err != nil || got != want {
			t.Fatalf("seed %d: %v\ngiven %s\ngot   %s\nwant  %s", seed, err, spelled(args), got, want)
		}
	}

	v, err := c.Call(t.Context(), "odd.spelled",
		[]any{nil, true, int64(1) << 62, 1.5, "1", []byte("b"), []any{}, value.NewMap(nil, "x", int64(1), "y")},
		nil)
	if got, want := fmt.Sprint(v), "[None True 4611686018427387904 1.5 '1' b'b' [] {None: 'x', 1: 'y'}]"; err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

// A name of a file that is no text comes as bytes.
func TestNamesThatAreNoText(t *testing.T) {
	c, _ := setUp(t, false)
	folder := t.TempDir()
	put(t, filepath.Join(folder, "na\xefve"), "")
	v, err := c.Call(t.Context(), "odd.names", []any{folder}, nil)
	if names, _ := v.([]any); err != nil || len(names) != 1 || !bytes.Equal(names[0].([]byte), []byte("na\xefve")) {
		t.Errorf("%s %v", spelled(v), err)
	}
}

// TestUnknownFunctionsStartNothing, however many ask at once.
func TestUnknownFunctionsStartNothing(t *testing.T) {
	c, _ := setUp(t, false)
	before := host().Stats().Tasks
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if _, err := c.Call(context.Background(), "odd.nosuch", nil, nil); !errors.As(err, new(*UnknownError)) {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if n := host().Stats().Tasks - before; n > 2 { // who asks while the first answer is under way asks anew
		t.Errorf("%d processes", n)
	}
}

// TestResultsToReturners (M4): a result reaches the administrator's returners in order, and the
// error names those that fail or do not exist.
func TestResultsToReturners(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "ext/returners/mine.py"),
		"def returner(ret):\n    with open("+fmt.Sprintf("%q", dir+"/got")+
			", 'a') as f:\n        f.write(ret['fun'] + ' ' + ret['jid'] + '\\n')\n")
	put(t, filepath.Join(dir, "ext/returners/bad.py"), "def returner(ret):\n    raise ValueError('as asked')\n")
	result := value.NewMap("fun", "a.b", "jid", "1")
	if err := c.Return(t.Context(), []string{"mine"}, result); err != nil {
		t.Error(err)
	}

	err := c.Return(t.Context(), []string{"bad", "none", "mine"}, result)
	if err == nil || !strings.Contains(err.Error(), "bad: as asked; there is no returner none") {
		t.Errorf("%v", err)
	}

	if got, err := os.ReadFile(filepath.Join(dir, "got")); err != nil || string(got) != "a.b 1\na.b 1\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBadModuleHarmsNoOther: a module that ends the process which loads it keeps no other module
// from working, whether it was there from the start or came with a function that is not listed yet.
// Python does not list its functions again for each call.
func TestBadModuleHarmsNoOther(t *testing.T) {
	for _, wheel := range []bool{false, true} {
		t.Run(fmt.Sprint("wheel ", wheel), func(t *testing.T) {
			c, dir := setUp(t, wheel)
			lists := filepath.Join(dir, "lists")
			for _, kind := range []string{"runners", "wheel"} {
				put(t, filepath.Join(dir, "ext", kind, "bad.py"),
					"import os\nopen('"+lists+"', 'a').write('x')\nos._exit(3)\n")
			}

			for range 3 {
				if got, err := c.Call(t.Context(), "odd.back", []any{"a"}, nil); err != nil {
					t.Fatalf("%v, %v", got, err)
				}
			}

			if b, err := os.ReadFile(lists); err != nil || len(b) != 1 {
				t.Errorf("loaded %d times, %v", len(b), err)
			}
			runners := filepath.Join(dir, "ext/runners")
			c.storeListing(value.NewMap("functions", []any{"odd.who"}, "dirs", []any{runners}), time.Now())
			put(t, filepath.Join(runners, "new.py"), "")
			if _, err := c.Call(t.Context(), "odd.back", nil, nil); err != nil {
				t.Errorf("a function that an old list lacks: %v", err)
			}
			for _, fun := range []string{"odd.nothing", "bad.x"} {
				if got, err := c.Call(t.Context(), fun, nil, nil); err == nil {
					t.Errorf("%s, which is not there: %v", fun, got)
				}
			}
		})
	}
}

// TestModulesThatHangAreNamed: modules that hang as they are loaded are left out of the list of
// functions, within seconds, and the log names them. The others are in it.
func TestModulesThatHangAreNamed(t *testing.T) {
	hung := map[string]string{
		"loops":   "while True: pass\n",
		"waits":   "import socket\npair = socket.socketpair()\npair[0].recv(1)\n",
		"reads":   "import os\nos.mkfifo(__file__ + '.fifo')\nopen(__file__ + '.fifo').read()\n",
		"catches": "import time\nfor i in range(2):\n    try:\n        time.sleep(60)\n    except Exception:\n        pass\n",
	}
	c, dir := setUp(t, false)
	c.loadWithin = time.Second
	for name, text := range hung {
		put(t, filepath.Join(dir, "ext/runners", name+".py"), text+"def f(): return 1\n")
	}

	began := time.Now()
	if v, err := c.Call(t.Context(), "odd.back", []any{int64(1)}, nil); err != nil {
		t.Errorf("a function of another module: %v, %v", v, err)
	}
	if took := time.Since(began); took > listWithin/2 {
		t.Errorf("the call waited %v", took)
	}

	// A module that was only slow can be called, and an unknown function is known not to be there.
	put(t, filepath.Join(dir, "ext/runners/waits.py"), "def f(): return 1\n")
	c.list.trusted = true // not so if the files were written just before
	if v, err := c.Call(t.Context(), "waits.f", nil, nil); err != nil || v != int64(1) {
		t.Errorf("a module that was slow: %v, %v", v, err)
	}
	if v, err := c.Call(t.Context(), "odd.nothing", nil, nil); !errors.As(err, new(*UnknownError)) {
		t.Errorf("an unknown function: %v, %v", v, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil || !c.list.names["odd.back"] {
		t.Fatal("there is no list of functions")
	}
	for name := range hung {
		if c.list.names[name+".f"] != (name == "catches") && name != "waits" {
			t.Errorf("%s.f is in the list: %v", name, c.list.names[name+".f"])
		}
	}
}

// TestOddKeysOfAResult: keys that only Python can have are texts in the result, as Salt's outputters
// show them. The call failed.
func TestOddKeysOfAResult(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "ext/runners/keys.py"),
		"def f(): return {'a': [{(1, 'x'): {frozenset([2]): 3}}], 4: 5, None: 6, 1.5: 7, b'b': True}\n")
	v, err := c.Call(t.Context(), "keys.f", nil, nil)
	want := "{'a': [{\"(1, 'x')\": {'frozenset({2})': 3}}], 4: 5, None: 6, 1.5: 7, 'b': True}"
	if got := value.Repr(v); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
