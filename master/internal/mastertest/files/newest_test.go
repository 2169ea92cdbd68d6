package files

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// copying is a supervisor whose master serves from a copy that is made when somebody asks.
type copying struct {
	mastertest.HostileSupervisor
	from, to string

	mu    sync.Mutex
	why   string
	asked int
}

func (c *copying) Newest(_ context.Context, q control.NewestQuestion) (control.Newest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.why != "" {
		return control.Newest{Why: c.why}, nil
	}

	err := os.CopyFS(filepath.Join(c.to, fmt.Sprint(c.asked)), os.DirFS(c.from))
	if err == nil {
		next := filepath.Join(c.to, "next")
		err = os.Symlink(fmt.Sprint(c.asked), next)
		if err == nil {
			err = os.Rename(next, filepath.Join(c.to, "now"))
		}
	}

	n := control.Newest{Copy: filepath.Join(c.to, "now"), Source: c.from}
	if q.All {
		n.Others = map[string]string{"n2": "the shared volume does not answer"}
	}

	return n, err
}

// startCopying runs a master with such a supervisor, and with more options.
func startCopying(t *testing.T, options string) (*mastertest.Master, *copying) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door") // short: the path of a socket
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := localsock.Listen(filepath.Join(dir, "door"), 0o600, -1)
	check.Must(t, err)
	c := &copying{from: t.TempDir(), to: t.TempDir()}
	door := control.ServeDoor(ln, os.Geteuid(), c, slog.New(slog.DiscardHandler))
	t.Cleanup(door.Close)

	for _, tree := range []string{"salt", "pillar"} {
		check.Must(t, os.MkdirAll(filepath.Join(c.from, tree), 0o755))
	}

	check.Must(t, os.WriteFile(filepath.Join(c.from, "pillar/top.sls"), []byte("base: {'*': [x]}\n"), 0o644))
	now := filepath.Join(c.to, "now")
	return mastertest.Start(t,
		"saltern_door: "+filepath.Join(dir, "door")+"\nsaltern_node: n1\nfile_roots: {base: ["+now+
			"/salt]}\npillar_roots: {base: ["+now+"/pillar]}\n"+options), c
}

// change writes text to a state file, a pillar, and a file of its own name.
func (c *copying) change(t *testing.T, text string) {
	t.Helper()
	for name, text := range map[string]string{
		"salt/a.sls":   text,
		"salt/" + text: text,
		"pillar/x.sls": "v: " + text + "\n",
	} {
		check.Must(t, os.WriteFile(filepath.Join(c.from, name), []byte(text), 0o644))
	}
}

// servedFile returns what a minion is given of them.
func servedFile(n *mastertest.Minion) string {
	n.Master.T.Helper()
	file := n.Ask("_serve_file", "path", "a.sls", "saltenv", "base", "loc", 0).(*value.Map)
	list := n.Ask("_file_list", "saltenv", "base").([]any)
	return fmt.Sprint(file.Str("data"), " ", list[len(list)-1], " ", n.Pillar().Str("v"))
}

// Finding B4: a job is served what was written before it began, twenty times in a row, and
// so is salt-call, for which no job begins. When that is not possible, it is said.
func TestJobIsServedWhatWasWritten(t *testing.T) {
	r, c := startCopying(t, "")
	n := r.AcceptedMinion("web1", "min6")
	r.ListenToBus()
	for i := range 20 {
		text := fmt.Sprintf("z%03d", i)
		c.change(t, text)
		if i%2 == 0 {
			r.Publish("web1", "state.apply")
		} else {
			n.SignIn()
		}

		if got, want := servedFile(n), strings.TrimSpace(strings.Repeat(text+" ", 3)); got != want {
			t.Fatalf("round %d: served %q, want %q", i, got, want)
		}
	}

	if c.asked > 30 {
		t.Errorf("the supervisor was asked %d times for 20 jobs", c.asked)
	}

	r.WantQuiet("files that are new", "salt/job", "salt/auth", "minion/refresh")

	c.change(t, "zz")
	if _, err := r.Parts.Runs.Call(t.Context(), "fileserver.update", nil, value.NewMap()); err == nil ||
		!strings.Contains(err.Error(), "n2: the shared volume does not answer") {
		t.Errorf("an update that another node did not make: %v", err)
	}

	if list := fmt.Sprint(runFunction(r, "fileserver.file_list")); !strings.Contains(list, "zz") {
		t.Errorf("a runner lists %s", list)
	}

	c.mu.Lock()
	c.why = "the shared volume does not answer"
	c.mu.Unlock()

	c.change(t, "zzz")
	r.Publish("web1", "state.apply")
	r.NewEvents()
	if got := servedFile(n); got != "zz zz zz" {
		t.Errorf("while the volume hangs, served %q", got)
	}

	said := 0
	for _, e := range r.NewEvents() {
		if e.Tag == event.TagOldFiles {
			said++
			if e.Data.Str("id") != "web1" || e.Data.Str("node") != "n1" || e.Data.Str("why") != c.why ||
				e.Data.Str("as_of") == "" {
				t.Errorf("said: %v", e.Data)
			}
		}
	}

	if said != 1 {
		t.Errorf("it was said %d times that files are of before", said)
	}

	// Whoever waits for a job is told before the return of the minion.
	var heard []string
	tool := client.New(client.Config{
		Interface: r.Host, RetPort: r.Parts.Options.RetPort, SockDir: r.Path("run"), CacheDir: r.Path("cache"),
		MasterUser: local.CurrentUser(), User: local.CurrentUser(), Timeout: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		OldFiles: func(o client.OldFiles) {
			heard = append(heard, fmt.Sprint(o.Minion, " ", o.Node, " ", !o.AsOf.IsZero(), " ", o.Why))
		},
	})
	defer tool.Close()

	err := tool.Run(t.Context(), client.Request{
		Target:     "web1",
		TargetType: "glob",
		Fun:        "state.apply",
	}, func(j client.Job) {
		servedFile(n)
		n.Ask("_return", "jid", j.JID, "fun", "state.apply", "return", "done", "success", true)
	}, func(ret client.Return) bool {
		heard = append(heard, fmt.Sprint(ret.Ret))
		return true
	})
	if want := "[web1 n1 true the shared volume does not answer done]"; err != nil || fmt.Sprint(heard) != want {
		t.Errorf("the tool hears %v (%v), want %s", heard, err, want)
	}
}

// What the wheel functions write below the roots is written on the shared storage, where a pass
// finds it, and never into the copy; without the storage it is refused with the cause.
func TestRootsAreWrittenOnTheSharedStorage(t *testing.T) {
	r, c := startCopying(t, "")
	write := func(fun, data, path string) (string, bool) {
		t.Helper()
		m, ok := r.AskInClear("wheel", "fun", fun, "data", data, "path", path, "key", r.Key, "user",
			local.CurrentUser()).(*value.Map)
		if !ok {
			t.Fatalf("no answer to %s", fun)
		}

		d := m.Map("data")
		return fmt.Sprint(d.Value("return")), d.Bool("success")
	}

	for fun, tree := range map[string]string{"file_roots": "salt", "pillar_roots": "pillar"} {
		for i := range 3 {
			name, text := fmt.Sprintf("w/%d.sls", i%2), fmt.Sprintf("text %d", i)
			dest := filepath.Join(c.from, tree, name)
			if got, ok := write(fun+".write", text, name); !ok || got != "Wrote data to file "+dest {
				t.Fatalf("%s.write: %v %s", fun, ok, got)
			}

			for _, at := range []string{c.from, filepath.Join(c.to, "now")} {
				if b, err := os.ReadFile(filepath.Join(at, tree, name)); string(b) != text {
					t.Errorf("%s.write: below %s is %q %v", fun, at, b, err)
				}
			}
		}
	}

	c.mu.Lock()
	c.why = "the shared volume does not answer"
	c.mu.Unlock()

	for _, fun := range []string{"file_roots.write", "pillar_roots.write"} {
		if got, ok := write(fun, "late", "late.sls"); ok || !strings.Contains(got, c.why) {
			t.Errorf("%s without the storage: %v %s", fun, ok, got)
		}
	}

	for _, at := range []string{"salt/late.sls", "now/salt/late.sls", "pillar/late.sls", "now/pillar/late.sls"} {
		for _, top := range []string{c.from, c.to} {
			if _, err := os.Lstat(filepath.Join(top, at)); err == nil {
				t.Errorf("%s was written all the same", at)
			}
		}
	}

	if m := r.AskInClear("wheel", "fun", "config.update_config", "file_name", "x", "yaml_contents",
		value.NewMap("timeout", 7), "key", r.Key, "user", local.CurrentUser()).(*value.Map); m.Map("data").Bool("success") {
		t.Errorf("options that nobody reads were written: %s", mastertest.PlainText(m))
	}
}

// Who orders a job by the API reads in a header of the answer that its minions were served
// files of before. The body stays as Salt's.
func TestAPISaysThatFilesAreOld(t *testing.T) {
	r, c := startCopying(t, mastertest.APIOptions+"rest_cherrypy: {host: 127.0.0.1, port: 1, disable_ssl: true}\n")
	a := mastertest.ServeAPI(t, r)
	n := r.AcceptedMinion("web1", "min6")
	token := a.Token("alice")
	apply := func() (body string, old []string) {
		t.Helper()
		r.ListenToBus()
		defer r.Bus.Close()

		type answer struct {
			code   int
			body   string
			header http.Header
		}

		answers := make(chan answer, 1)
		go func() {
			code, body, header := a.Do("POST", "/",
				`[{"client": "local", "tgt": "web1", "fun": "state.apply"}]`, "X-Auth-Token", token)
			answers <- answer{code, body, header}
		}()

		var jid string
		await.That(t, "the job begins", func() bool {
			for _, e := range r.NewEvents() {
				if e.Data.Str("fun") == "state.apply" && strings.HasSuffix(e.Tag, "/new") {
					jid = e.Data.Str("jid")
				}
			}
			return jid != ""
		})

		servedFile(n)
		n.Ask("_return", "jid", jid, "fun", "state.apply", "return", "done", "success", true)
		got := <-answers
		if got.code != 200 {
			t.Fatalf("%d %s", got.code, got.body)
		}

		return got.body, got.header["X-Saltern-Old-Files"]
	}

	c.change(t, "one")
	fresh, said := apply()
	if len(said) > 0 {
		t.Errorf("of new files: %s", said)
	}

	c.mu.Lock()
	c.why = "the volume \"cluster\"\r\ndoes not answer"
	c.mu.Unlock()

	stale, said := apply()
	if len(said) != 1 || !strings.HasPrefix(said[0], `node="n1"; as_of="20`) ||
		!strings.Contains(said[0], "does not answer") {
		t.Errorf("of files of before: %q", said)
	}

	if stale != fresh {
		t.Errorf("the body is %s, and was %s", stale, fresh)
	}
}

// A runner that only Python has reads what was written before it was called, and an event of
// it says when that is not possible.
func TestPythonRunnerReadsTheNewestFiles(t *testing.T) {
	dir := t.TempDir()
	check.Must(t,
		os.WriteFile(filepath.Join(dir, "see.py"),
			[]byte("def saw():\n    return open(__opts__['file_roots']['base'][0] + '/a.sls').read()\n"),
			0o644))

	old := time.Now().Add(-time.Minute)
	check.Must(t, os.Chtimes(filepath.Join(dir, "see.py"), old, old))
	r, c := startCopying(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\nrunner_dirs: ["+dir+"]\n")
	r.ListenToBus()
	saw := func() any {
		t.Helper()
		run := r.Parts.Runs.Announce("see.saw", runner.Caller{User: "ann", Person: true}, nil, value.NewMap())
		return run.Do(t.Context(), func(err error) { t.Error(err) }).Value("return")
	}

	for i := range 5 {
		text := fmt.Sprintf("z%03d", i)
		c.change(t, text)
		if got := saw(); got != text {
			t.Fatalf("round %d: it saw %v", i, got)
		}
	}

	asked := c.asked
	for range 10 { // reactions come without end, and have no pass each
		_, err := r.Parts.Runs.Call(t.Context(), "see.saw", nil, nil)
		check.Must(t, err)
	}

	if n := c.asked - asked; n > 5 {
		t.Errorf("the supervisor was asked %d times for ten runners that nobody waits for", n)
	}

	r.NewEvents()
	c.mu.Lock()
	c.why = "the shared volume does not answer"
	c.mu.Unlock()

	c.change(t, "zz")
	saw()
	said := slices.DeleteFunc(r.NewEvents(),
		func(e event.Event) bool { return !strings.HasSuffix(e.Tag, "/"+event.OldFilesOfRun) })
	if len(said) != 1 || !strings.HasPrefix(said[0].Tag, "salt/run/") || said[0].Data.Str("why") != c.why ||
		said[0].Data.Str("node") != "n1" {
		t.Errorf("said: %v", said)
	}

	var heard []client.OldFiles
	tool := client.New(client.Config{
		Interface: r.Host, RetPort: r.Parts.Options.RetPort, SockDir: r.Path("run"), CacheDir: r.Path("cache"),
		MasterUser: local.CurrentUser(), User: local.CurrentUser(), Timeout: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		OldFiles: func(o client.OldFiles) { heard = append(heard, o) },
	})
	defer tool.Close()

	for _, fun := range []string{"see.saw", "fileserver.file_list", "pillar.show_pillar"} {
		heard = nil
		_, err := tool.Runner(t.Context(), fun, nil, value.NewMap(), value.NewMap(),
			func(what string, _ *value.Map) { t.Errorf("%s: progress %s", fun, what) })
		if err != nil || len(heard) != 1 || heard[0].Node != "n1" || heard[0].Minion != "" || heard[0].Why != c.why {
			t.Errorf("%s: its caller heard %v %v", fun, heard, err)
		}
	}
}
