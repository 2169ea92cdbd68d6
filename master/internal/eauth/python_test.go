package eauth

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/loginurl"
	"saltern/master/internal/userfile"
	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/test/await"
)

// fakePython is a shell script in the place of a Python.
func fakePython(t *testing.T, name, body string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPythonsAreTriedInOrder(t *testing.T) {
	real := salts(t)
	bare := fakePython(t, "bare", `exit 3`)
	broken := fakePython(t, "broken", `echo boom >&2; exit 1`)
	endless := fakePython(t, "endless", `exec yes`)
	for name, tt := range map[string]struct {
		pythons []string
		ok      bool
		fault   string
	}{
		"first has no Salt":        {[]string{"/nowhere/python", bare, real}, true, ""},
		"first answers":            {[]string{real, broken}, true, ""},
		"a fault is no invitation": {[]string{broken, real}, false, "status 1"},
		"none has Salt":            {[]string{bare}, false, "saltern_renderer_python"},
		"an endless answer":        {[]string{endless}, false, "are allowed"},
		"none is there":            {[]string{"/nowhere/python"}, false, "saltern_renderer_python"},
	} {
		p := NewPython(tt.pythons, master(t, "external_auth: {auto: {ann: [test.ping]}}\n"), "")
		v, err := p.Login(t.Context(), "auto", "ann", "secret")
		if v.OK != tt.ok || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		p.Close()
	}
}

// salts is a Python that has Salt's library.
func salts(t *testing.T) string {
	t.Helper()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test logins")
	}
	return python
}

// master writes a configuration.
func master(t *testing.T, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "master")
	if err := os.WriteFile(path, []byte("root_dir: "+dir+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// module is one of an administrator: the password is the name backwards. It tells who it is.
const module = `import os, time
def auth(username, password):
    if username == "dies":
        os._exit(1)
    if username == "slow":
        time.sleep(0.5)
    return password == username[::-1]
def groups(username, **kwargs):
    return [str(os.getpid()), "ops"]
def acl(username, **kwargs):
    if username == "boom":
        raise ValueError("boom")
    return ["test." + username] if username != "nobody" else None
`

// A Python is kept for the next log-in, one for each at the same time; one that has ended is
// replaced, and Close ends them.
func TestKeptPython(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}

	p := NewPython([]string{salts(t)},
		master(t, "auth_dirs: ["+dir+"]\nexternal_auth: {mine: {ann: [test.ping]}}\n"), "")
	defer p.Close()

	login := func(user string) (pid string) {
		t.Helper()
		v, err := p.Login(t.Context(), "mine", user, reversed(user))
		if err != nil || !v.OK || len(v.Groups) != 2 || v.Groups[1] != "ops" {
			t.Fatalf("%s: %+v, %v", user, v, err)
		}

		want := []any{"test." + user}
		if user == "nobody" || user == "boom" {
			want = nil
		}

		if !slices.Equal(v.Permissions, want) || (v.Permissions == nil) != (want == nil) {
			t.Errorf("%s may %v", user, v.Permissions)
		}

		return v.Groups[0]
	}

	first := login("ann")
	for _, user := range []string{"bob", "nobody", "boom", "ann"} {
		if pid := login(user); pid != first {
			t.Errorf("%s: by %s, not %s", user, pid, first)
		}
	}

	if v, err := p.Login(t.Context(), "mine", "ann", "ann"); v.OK || err != nil {
		t.Errorf("a wrong password: %+v, %v", v, err)
	}

	began := time.Now()
	var slow sync.WaitGroup
	for range maxPythons + 2 {
		slow.Go(func() { login("slow") })
	}

	slow.Wait()
	t.Logf("%d at once: %s", maxPythons+2, time.Since(began))
	if n := len(p.idle); n != maxPythons {
		t.Errorf("%d are kept", n)
	}

	if _, err := p.Login(t.Context(), "mine", "dies", "seid"); err == nil {
		t.Error("a Python that ends has answered")
	}

	for _, w := range p.idle { // all end while nobody needs them
		pid := w.kept.PID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the end of a Python is seen", func() bool { return !w.kept.Alive() })
	}

	last := login("ann")
	p.endIdle(time.Now())
	if n, err := strconv.Atoi(last); err != nil || syscall.Kill(n, 0) == nil || len(p.idle) > 0 {
		t.Errorf("%s is still there, %d are kept", last, len(p.idle))
	}

	login("ann")
	p.Close()
	if len(p.idle) > 0 {
		t.Error("some are kept after the end")
	}
}

// TestModuleThatForks: the answer for one user never counts for the next one, although a module
// forks and both processes come back.
func TestModuleThatForks(t *testing.T) {
	dir := t.TempDir()
	text := "import os\ndef auth(username, password):\n    if username == 'ann':\n        os.fork()\n    return username == 'ann'\n"
	if err := os.WriteFile(filepath.Join(dir, "forks.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	p := NewPython([]string{salts(t)},
		master(t, "auth_dirs: ["+dir+"]\nexternal_auth: {forks: {ann: [test.ping]}}\n"), "")
	defer p.Close()

	for range 3 {
		if v, err := p.Login(t.Context(), "forks", "ann", "x"); err != nil || !v.OK {
			t.Errorf("ann: %+v, %v", v, err)
		}
		if v, err := p.Login(t.Context(), "forks", "bob", "x"); err != nil || v.OK {
			t.Errorf("bob: %+v, %v", v, err)
		}
	}
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// What eauth_acl_module says counts in the place of the system's own, as in Salt.
func TestACLModule(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}

	p := NewPython([]string{salts(t)},
		master(t, "auth_dirs: ["+dir+"]\neauth_acl_module: mine\nexternal_auth: {auto: {ann: [test.ping]}}\n"),
		"")
	defer p.Close()

	for user, want := range map[string]string{"ann": "['test.ann']", "nobody": "[]", "boom": "[]"} {
		for range 2 {
			got, err := p.Permissions(t.Context(), "auto", user, "x")
			if err != nil || (got == nil) != (want == "[]") || got != nil && value.Repr(got) != want {
				t.Errorf("%s may %v, %v", user, got, err)
			}
		}

		if v, err := p.Login(t.Context(), "auto", user, "x"); err != nil || !v.OK ||
			(v.Permissions == nil) != (want == "[]") {
			t.Errorf("%s: %+v, %v", user, v, err)
		}
	}
}

// Salt's own modules file and rest decide as ours.
func TestSaltsFileAndREST(t *testing.T) {
	python := salts(t)
	users := filepath.Join(t.TempDir(), "users")
	text := "dean:goneFishing\n gene:Ocean:Man \nsum:" +
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" + "\nempty:\ngene:other\n"
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := map[string]string{
			"dean":  `["test.*", {"w*": ["@runner"]}]`,
			"gene":  "null",
			"sum":   "false",
			"empty": `{"a": 1}`,
		}[r.PostFormValue("username")]
		if !ok || r.PostFormValue("password") == "wrong" {
			w.WriteHeader(http.StatusForbidden)
		}

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()

	for _, options := range []string{"", ", ^hashtype: sha256", ", ^field_separator: 'n', ^username_field: 1"} {
		conf := master(t,
			"external_auth: {file: {^filename: "+users+options+"}, rest: {^url: '"+server.URL+"', gene: ['@wheel']}}\n")
		salt := NewPython([]string{python}, conf, "")
		v, err := saltyaml.Decode([]byte("{^filename: "+users+options+"}"), "options")
		if err != nil {
			t.Fatal(err)
		}

		section, _ := v.(*value.Map)
		file, err := userfile.New(section)
		if err != nil {
			t.Fatal(err)
		}

		address, err := loginurl.New(value.NewMap("^url", server.URL, "gene", []any{"@wheel"}))
		if err != nil {
			t.Fatal(err)
		}

		ours := map[string]Backend{"file": File(file, nil), "rest": REST(address)}
		right := 0
		for _, user := range []string{"dean", "gene", "sum", "empty", "eve", "de"} {
			for _, password := range []string{"goneFishing", "Ocean", "Ocean:Man", "test", "", "wrong",
				" goneFishing", "other"} {
				for system, ask := range ours {
					want, werr := salt.Login(t.Context(), system, user, password)
					got, gerr := ask(t.Context(), user, password)
					if got.OK != want.OK || value.Repr(got.Permissions) != value.Repr(want.Permissions) {
						t.Errorf("%s%s, %s with %q: %+v, %v; Salt %+v, %v", system, options, user, password,
							got, gerr, want, werr)
					}

					if want.OK {
						right++
					}
				}
			}
		}

		t.Logf("%q: %d of 96 let in", options, right)
		salt.Close()
	}
}

// Neither the working directory nor PYTHONPATH says what a login imports.
func TestFinding20Login(t *testing.T) {
	python := salts(t)
	hostile := t.TempDir()
	for _, name := range []string{"json.py", "msgpack.py", "salt.py"} {
		if err := os.WriteFile(filepath.Join(hostile, name), []byte("raise ImportError('hostile')\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}

	file := master(t, "external_auth: {auto: {ann: [test.ping]}}\n")
	t.Chdir(hostile)
	t.Setenv("PYTHONPATH", hostile)
	p := NewPython([]string{python}, file, "")
	defer p.Close()

	v, err := p.Login(t.Context(), "auto", "ann", "x")
	if err != nil || !v.OK {
		t.Errorf("login: %v, %v", v, err)
	}
}
