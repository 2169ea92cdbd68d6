package functions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

const ownWheel = `
def hi(x, y=2):
    open(__opts__["cachedir"] + "/called", "a").write("x")
    return {"hi": x, "y": y, "user": __opts__["user"]}
def fail():
    raise ValueError("as asked")
`

// An administrator's own wheel functions are called with data, with the
// permissions of those of the master.
func TestOwnWheelModules(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t,
		"saltern_renderer_python: "+mastertest.SaltPython(t)+
			"\nextension_modules: %DIR%/ext\nreactor:\n  - own/react: [%DIR%/react.sls]\n"+
			"external_auth:\n  auto:\n    ann: ['@own']\n    eve: ['@wheels_of_others', '@runner', '.*']\n    jo: ['@wheel']\n    kim: [{'@own': [fail]}]\n")

	write := func(path, text string) {
		t.Helper()
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.Must(t, os.WriteFile(path, []byte(text), 0o644))
		old := time.Now().Add(-time.Minute)
		check.Must(t, os.Chtimes(path, old, old))
	}

	write(r.Path("ext", "wheel", "own.py"), ownWheel)
	root := []any{"key", r.Key, "user", local.CurrentUser()}
	as := func(user string) []any { return []any{"eauth", "auto", "username", user, "password", "x"} }
	called := func() int {
		b, _ := os.ReadFile(r.Path("cache", "called"))
		return len(b)
	}

	call := func(who []any, fun string, more ...any) *value.Map {
		t.Helper()
		m, ok := r.AskInClear("wheel", append(append([]any{"fun", fun}, more...), who...)...).(*value.Map)
		if !ok {
			t.Fatalf("no answer to %s", fun)
		}
		return m
	}

	for _, who := range [][]any{root, as("ann"), as("jo")} {
		d := call(who, "own.hi", "x", []any{int64(1), nil, "--help"}).Map("data")
		ret := d.Map("return")
		if !d.Bool("success") || fmt.Sprint(ret.List("hi")) != "[1 <nil> --help]" ||
			ret.Str("user") != local.CurrentUser() {
			t.Errorf("%v: %s", who, mastertest.PlainText(d))
		}
	}

	if n := called(); n != 3 {
		t.Errorf("called %d times", n)
	}

	for _, who := range [][]any{as("eve"), as("kim"), {"key", "wrong", "user", local.CurrentUser()}, nil} {
		if m := call(who, "own.hi", "x", 1); m.Map("error").Str("name") == "" {
			t.Errorf("%v may call it: %s", who, mastertest.PlainText(m))
		}
	}

	if n := called(); n != 3 {
		t.Errorf("called %d times after refusals", n)
	}

	for _, c := range []struct {
		fun, part string
		success   bool
	}{
		{"own.fail", "ValueError: as asked", false}, {"own.hi", "Passed invalid arguments: hi() missing", true}, {"own.nosuch", "no such wheel function", false}, {"own", "no such wheel function", false},
	} {
		d := call(root, c.fun).Map("data")
		if text, _ := d.Get("return"); !strings.Contains(fmt.Sprint(text), c.part) || d.Bool("success") != c.success {
			t.Errorf("%s: %s", c.fun, mastertest.PlainText(d))
		}
	}

	// A reaction calls them, too.
	write(r.Path("react.sls"), "x:\n  wheel.own.hi:\n    - args:\n      - x: 9\n")
	before := called()
	r.Parts.Fire("own/react", value.NewMap())
	await.That(t, "the reaction", func() bool { return called() == before+1 })

	// From the file roots, by the runner that Salt has for it: it removes what is
	// not there.
	write(r.Path("roots", "_wheel", "shared.py"), "def now():\n    return 5\n")
	if v, err := r.Parts.Runs.Call(t.Context(), "saltutil.sync_wheel", nil, nil); err != nil {
		t.Fatalf("saltutil.sync_wheel: %v, %v", v, err)
	}

	if d := call(root, "shared.now").Map("data"); d.Value("return") != int64(5) {
		t.Errorf("a synchronised module: %s", mastertest.PlainText(d))
	}
}
