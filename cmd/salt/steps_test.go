package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/master/pyrunner"
	"saltern/test/screen"
)

// TestWhoSeesSteps: the steps of an orchestration are for a person at a terminal. In all other cases
// salt-run of Python gets the command line as it is.
func TestWhoSeesSteps(t *testing.T) {
	terminal := screen.New(t, screen.Options{Width: 80, Height: 24}).Tty()
	file, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	saltRun := filepath.Join(filepath.Dir(python), "salt-run")
	if err := os.WriteFile(saltRun, []byte("#!"+python+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		words  string
		stderr *os.File
		want   bool
	}{
		{"state.orchestrate x", terminal, true},
		{"state.orch x", terminal, true},
		{"--out highstate state.sls x pillar={a: 1}", terminal, true},
		{"state.orchestrate x", file, false},
		{"--out json state.orchestrate x", terminal, false},
		{"state.orchestrate x --out=yaml", terminal, false},
		{"--out=quiet state.orchestrate x", terminal, false},
		{"--quiet state.orchestrate x", terminal, false},
		{"--async state.orchestrate x", terminal, false},
		{"-d state.orchestrate", terminal, false},
		{"state.show_highstate x", terminal, false},
		{"", terminal, false},
	} {
		t.Run(tt.words, func(t *testing.T) {
			h := newHouse(t, nil, "")
			e := &env{stdin: strings.NewReader(""), stdout: tt.stderr, stderr: tt.stderr, getenv: os.Getenv}
			words := append([]string{"-c", h.dir}, strings.Fields(tt.words)...)
			started, code := e.startTool(e.runParser(), words, true)
			if started == nil {
				t.Fatalf("exit code %d", code)
			}

			program, args := (&runCall{tool: started}).pythonCommand(saltRun)
			want, prefix := saltRun, []string{saltRun}
			if tt.want {
				want, prefix = python, []string{python, "-c", stepsScript, saltRun}
			}
			if program != want || !slices.Equal(args, append(prefix, words...)) {
				t.Errorf("%s %q", program, args)
			}
		})
	}
}

const orchestration = `
one: {salt.runner: [{name: test.arg}, {arg: [1]}]}
two: {test.configurable_test_state: [{changes: False}, {result: False}, {comment: "bad \x1b[2J\nmore"}]}
three: {test.nop: [{require: [{test: two}]}]}
four: {salt.runner: [{name: state.orchestrate}, {mods: inner}]}
five: {test.nop: [{onchanges: [{test: three}]}]}
six: {cmd.run: [{name: 'sleep 1'}, {parallel: True}]}
`

// TestStepsOfAnOrchestration: each step is printed as it ends, with those of inner orchestrations,
// and the result is the one that salt-run itself prints.
func TestStepsOfAnOrchestration(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	saltRun := filepath.Join(filepath.Dir(python), "salt-run")
	if pyrunner.Of(saltRun) == "" {
		t.Fatalf("%s has no Python", saltRun)
	}

	dir := t.TempDir()
	for name, text := range map[string]string{
		"master":          "root_dir: " + dir + "\nid: m1\nfile_roots: {base: [" + dir + "/roots]}\n",
		"roots/outer.sls": orchestration,
		"roots/inner.sls": "deep: {test.nop: []}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "var/cache/salt/master/proc"), 0o755); err != nil {
		t.Fatal(err)
	}

	run := func(words ...string) (out, errs string, code int) {
		words = append(words, "-c", dir, "-l", "quiet", "--out", "json", "state.orchestrate", "outer")
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		b, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(b), stderr.String(), cmd.ProcessState.ExitCode()
	}

	changing := regexp.MustCompile(`("(duration|start_time|pid|__jid__)": ).*|\d\d:\d\d:\d\d\.\d+`)
	wantOut, _, wantCode := run(saltRun)
	out, errs, code := run(python, "-c", stepsScript, saltRun)
	same := func(s string) []string { return strings.Split(changing.ReplaceAllString(s, "$1"), "\n") }
	for i, want := range same(wantOut) {
		if lines := same(out); i >= len(lines) || lines[i] != want {
			t.Fatalf("line %d differs, want %s, got\n%s", i+1, want, out)
		}
	}
	if code != wantCode || code != 1 {
		t.Errorf("exit code %d, want %d", code, wantCode)
	}

	var lines []string
	for line := range strings.Lines(errs) {
		if strings.Contains(line, "[") {
			lines = append(lines, regexp.MustCompile(` \(\d+\.\d s\)`).ReplaceAllString(strings.TrimRight(line, "\n"), ""))
		}
	}
	want := []string{
		"[1/6] one: done",
		"[2/6] two: failed: bad ?[2J",
		"[3/6] three: failed: One or more requisite failed: outer.two",
		"  [1/1] deep: done",
		"[4/6] four: done",
		"[5/6] five: not run",
		"[...] six: runs beside the others",
		"[6/6] six: done",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s\nall\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"), errs)
	}
}
