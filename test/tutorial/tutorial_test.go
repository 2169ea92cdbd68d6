package tutorial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fence makes a page of ~~~ for ```, which a raw string cannot hold.
func fence(s string) string { return strings.ReplaceAll(s, "~~~", "```") }

func TestRead(t *testing.T) {
	page := fence(`# Title

~~~sh
make build
~~~

<!-- type: m1 m2 within=90s save=JOIN -->
~~~console
$ sudo one \
    --more
$ sudo two
a line
… of 3

~~~

<!-- type: m3 -->
~~~yaml
# /etc/x.conf
a: 1
~~~

<!-- type: none, it takes a disk -->
~~~console
$ mkfs /dev/vdb
~~~
`)

	want := []Step{
		{Line: 8, On: []string{"m1", "m2"}, Command: "sudo one \\\n    --more"},
		{
			Line:    8,
			On:      []string{"m1", "m2"},
			Command: "sudo two",
			Want:    []string{"a line", "… of 3"},
			Within:  90 * time.Second,
			Save:    "JOIN",
		},
		{Line: 18, On: []string{"m3"}, Path: "/etc/x.conf", Text: "# /etc/x.conf\na: 1\n"},
	}

	got, err := Read(page)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestReadFaults(t *testing.T) {
	for name, tt := range map[string]struct{ page, says string }{
		"a block of nobody":     {"~~~console\n$ a\n~~~\n", "on which machine"},
		"no machine":            {"<!-- type: within=1s -->\n~~~console\n$ a\n~~~\n", "names no machine"},
		"an unknown word":       {"<!-- type: m1 until=x -->\n~~~console\n$ a\n~~~\n", "until=x"},
		"no time":               {"<!-- type: m1 within=x -->\n~~~console\n$ a\n~~~\n", "invalid duration"},
		"output first":          {"<!-- type: m1 -->\n~~~console\na\n~~~\n", "before a command"},
		"no command":            {"<!-- type: m1 -->\n~~~console\n~~~\n", "no command"},
		"a file without a path": {"<!-- type: m1 -->\n~~~yaml\na: 1\n~~~\n", "its path"},
		"a file with a time":    {"<!-- type: m1 within=1s -->\n~~~yaml\n# /a\n~~~\n", "has no output"},
		"a block without end":   {"<!-- type: m1 -->\n~~~console\n$ a\n", "does not end"},
		"a comment alone":       {"<!-- type: m1 -->\n\n~~~console\n$ a\n~~~\n", "no block follows"},
		"a comment at the end":  {"<!-- type: m1 -->\n", "no block follows"},
		"a comment in a line":   {"see <!-- type: m1 -->\n", "line of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Read(fence(tt.page)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("read %+v, %v", got, err)
			}
		})
	}
}

// fake answers from a list, and keeps what was typed.
type fake struct {
	answers []string // "!" at the beginning: with an exit status
	typed   []string
}

func (f *fake) Run(_ context.Context, command string) (string, error) {
	f.typed = append(f.typed, command)
	if len(f.answers) == 0 {
		return "", nil
	}
	a := f.answers[0]
	f.answers = f.answers[1:]
	if text, bad := strings.CutPrefix(a, "!"); bad {
		return text, errors.New("exit status 1")
	}
	return a, nil
}

func (f *fake) Put(path, text string) error {
	f.typed = append(f.typed, path+"="+text)
	return nil
}

func TestType(t *testing.T) {
	for name, tt := range map[string]struct {
		step    Step
		answers []string
		typed   int
		fault   string
	}{
		"once":           {Step{Command: "a"}, nil, 1, ""},
		"an exit status": {Step{Command: "a"}, []string{"!no"}, 1, "exit status 1"},
		"shown": {Step{Command: "a", Want: []string{"x:", "True"}},
			[]string{"note\nx:\n    True\n"}, 1, ""},
		"not shown":                {Step{Command: "a", Want: []string{"True"}}, []string{"False\n"}, 1, `"True"`},
		"in another order":         {Step{Command: "a", Want: []string{"x", "y"}}, []string{"y\nx\n"}, 1, `"y"`},
		"part of a line":           {Step{Command: "a", Want: []string{"rue"}}, []string{"True\n"}, 1, `"rue"`},
		"anything":                 {Step{Command: "a", Want: []string{"n…x … y…"}}, []string{"n1 x is y\n"}, 1, ""},
		"anything, and not enough": {Step{Command: "a", Want: []string{"ab…bc"}}, []string{"abc\n"}, 1, "ab…bc"},
		"again until it is shown": {Step{Command: "a", Want: []string{"x"}, Within: time.Second},
			[]string{"!", "y", "x"}, 3, ""},
		"again until the time is out": {Step{Command: "a", Want: []string{"x"}, Within: time.Second}, nil, 6, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.step.On = []string{"m1"}
				f := &fake{answers: tt.answers}
				err := Type(t.Context(), []Step{tt.step}, map[string]Machine{"m1": f},
					func(string, string, int, time.Duration) {})
				if len(f.typed) != tt.typed || (err == nil) != (tt.fault == "") ||
					err != nil && !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("typed %q: %v", f.typed, err)
				}
			})
		})
	}
}

// TestTypeWords: what a command prints goes into later commands and files, on other
// machines too; a machine that is not there is an error.
func TestTypeWords(t *testing.T) {
	m1, m2 := &fake{answers: []string{"note\nsca1.x\n"}}, &fake{}
	steps := []Step{
		{On: []string{"m1"}, Command: "show", Save: "JOIN"},
		{On: []string{"m2"}, Command: "echo 'JOIN' | join"},
		{On: []string{"m1", "m2"}, Path: "/a", Text: "JOIN\n"},
		{On: []string{"m3"}, Command: "x"},
	}

	var said []string
	err := Type(t.Context(), steps, map[string]Machine{"m1": m1, "m2": m2},
		func(where, command string, times int, _ time.Duration) {
			said = append(said, fmt.Sprint(where, " ", command, " ", times))
		})
	if err == nil || !strings.Contains(err.Error(), `"m3"`) {
		t.Errorf("a machine that is not there: %v", err)
	}

	if want := []string{"show", "/a=sca1.x\n"}; !reflect.DeepEqual(m1.typed, want) {
		t.Errorf("m1: %q", m1.typed)
	}

	if want := []string{"echo 'sca1.x' | join", "/a=sca1.x\n"}; !reflect.DeepEqual(m2.typed, want) {
		t.Errorf("m2: %q", m2.typed)
	}

	if len(said) != 2 || said[0] != "m1 show 1" {
		t.Errorf("said %q", said)
	}
}

// TestPages: all tutorials can be read, and name a machine for each block.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil {
		t.Fatal(err)
	}

	n := 0
	for _, p := range append(pages, "../../README.md") {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}

		steps, err := Read(string(text))
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}

		n += len(steps)
	}

	if n < 20 {
		t.Errorf("only %d steps found", n)
	}
}
