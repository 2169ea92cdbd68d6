package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/fakemaster"
)

const shout = `
def output(data, **kwargs):
    return "\\n".join(f"{k} SAYS {v!r} ({__opts__['color']}, {kwargs['_retcode']})" for k, v in data.items())
`

const broken = `
def output(data, **kwargs):
    raise RuntimeError("no today")
`

// Outputters of the administrator are Salt's: one Python shows all returns.
func TestOwnOutputters(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	m := fakemaster.New(t, "a", "b")
	m.Minion = answers
	asUser(t, m)
	ext := t.TempDir()
	h := newHouse(t, m, "saltern_renderer_python: "+python+"\nextension_modules: "+ext+"\n")
	own := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(ext, "output"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(ext, "output", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	own("shout.py", shout)
	own("broken.py", broken)
	own("other.py", "__virtualname__ = 'called_otherwise'\ndef __virtual__():\n    return __virtualname__\n"+shout)
	h.want(h.run("salt", "*", "test.ping", "--out=shout"), 0, "a SAYS True (False, 0)\nb SAYS True (False, 0)\n", "")
	h.want(h.run("salt", "a", "test.fail", "--out=called_otherwise"), 1, "a SAYS 'bad' (False, 3)\n",
		"ERROR: Minions returned with non-zero exit code\n")
	h.want(h.run("salt", "a", "test.ping", "--out=nosuch"), 0, "a:\n    True\n",
		"[ERROR   ] Invalid outputter nosuch specified, fall back to nested\n")
	h.want(h.run("salt", "a", "test.ping", "--out=broken"), 0, "a:\n    True\n",
		"[ERROR   ] The outputter broken cannot be used, fall back to nested: RuntimeError: no today\n")
	h.want(h.run("salt", "a", "test.ping", "--out=json", "--out-indent=-1"), 0, "{\"a\": true}\n", "")
	h.tty = true
	h.run("salt", "a", "test.hostile", "--out=shout")

	if strings.Contains(h.out, "\x1b[2J") || !strings.Contains(h.out, "a SAYS 'x?[2Jy'") {
		t.Errorf("on a terminal: %q", h.out)
	}

	h.tty = false
	own("nested.py", shout) // in place of Salt's
	h.want(h.run("salt", "a", "test.ping"), 0, "a SAYS True (False, 0)\n", "")
}

// Without Python, or without such an outputter, it is said what happens.
func TestOutputtersThatAreNotThere(t *testing.T) {
	m := fakemaster.New(t, "a")
	m.Minion = answers
	asUser(t, m)
	ext := t.TempDir()
	h := newHouse(t, m, "saltern_renderer_python: "+ext+"/no-python\nextension_modules: "+ext+"\n")
	h.want(h.run("salt", "a", "test.ping", "--out=progress"), 0, "a:\n    True\n",
		"[ERROR   ] The outputter progress is not there: there is no progress bar here; fall back to nested\n")
	h.want(h.run("salt", "a", "test.ping", "--out=virt_query"), 0, "a:\n    True\n",
		"[ERROR   ] The outputter virt_query is not there: Salt 3008 has it no more; fall back to nested\n")
	h.want(h.run("salt", "a", "test.arg", "x", "--out=table"), 0,
		"a:\n----------\n    -----\n    | x |\n    -----\n", "")

	if err := os.MkdirAll(filepath.Join(ext, "output"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(ext, "output", "shout.py"), []byte(shout), 0o600); err != nil {
		t.Fatal(err)
	}

	h.want(h.run("salt", "a", "test.ping", "--out=shout"), 0, "a:\n    True\n",
		"[ERROR   ] The outputter shout cannot be used, fall back to nested: no Python with Salt's library was found (tried "+ext+"/no-python)\n")
}
