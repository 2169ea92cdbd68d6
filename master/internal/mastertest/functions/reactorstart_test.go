package functions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestReactionsAreCalledAsBySalt: forms of reactions that a reader of our own refused, dropped
// or gave other arguments (findings M1, M2, M3). What is wanted is what Salt 3008.3 does.
func TestReactionsAreCalledAsBySalt(t *testing.T) {
	t.Parallel()
	python := mastertest.SaltPython(t)
	srv := t.TempDir()
	tests := []struct{ name, file, want string }{
		{"short form", "x:\n  runner.fileserver.envs\n",
			`runner.fileserver.envs [{"sources": false, "backend": null}]`},
		{"list", "x: {runner: [test.arg, {a: 1}]}\n", `runner.test.arg [{"a": 1}]`},
		{"tgt", "clear: {runner.cache.clear_grains: [{tgt: m6}]}\n",
			`runner.cache.clear_grains [{"tgt_type": "glob", "tgt": "m6"}]`},
		{"timeout", "x: {runner.manage.up: [{timeout: 2}, {tgt: m6}]}\n",
			`runner.manage.up [{"gather_job_timeout": null, "timeout": 2, "tgt_type": "glob", "tgt": "m6"}]`},
		{"name", "x: {runner.error.error: [{name: Exception}, {message: x}]}\n",
			`runner.error.error [{"message": "x", "name": "Exception"}]`},
		{"kwargs", "x: {runner.test.arg: [{kwargs: {a: 1}}]}\n", `runner.test.arg [{"kwargs": {"a": 1}}]`},
		{"wheel", "x: {wheel.key.print: [{match: m6}]}\n", `wheel.key.print`},
		{"own function of this master", "x: {runner.presence.minions: [{name: y}]}\n", `runner.presence.minions`},
		{"import",
			"{% import_yaml 'reactor/d.yaml' as d %}\n{% from 'reactor/map.jinja' import v %}\nx: {runner.test.arg: [{args: {a: {{ d.a }}, v: {{ v }}}}]}\n",
			`runner.test.arg [{"a": 5, "v": "map"}]`},
		{"grains", "x: {runner.test.arg: [{args: {id: {{ grains.id }}, kernel: {{ grains.kernel }}}}]}\n",
			`runner.test.arg [{"id": "m1", "kernel": "Linux"}]`},
	}

	for path, text := range map[string]string{
		"base/reactor/d.yaml":    "a: 5\n",
		"base/reactor/map.jinja": "{% set v = 'map' %}\n",
	} {
		full := filepath.Join(srv, path)
		check.Must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		check.Must(t, os.WriteFile(full, []byte(text), 0o600))
	}

	rules := ""
	for i, tt := range tests {
		check.Must(t, os.WriteFile(fmt.Sprintf("%s/%d.sls", srv, i), []byte(tt.file), 0o600))
		rules += fmt.Sprintf("- 'my/%d': %s/%d.sls\n", i, srv, i)
	}

	check.Must(t,
		os.WriteFile(srv+"/caller.sls", []byte("x:\n  caller.file.write: [{args: ["+srv+"/called, text]}]\n"), 0o600))
	rules += "- my/caller: " + srv + "/caller.sls\n"
	check.Must(t, os.WriteFile(srv+"/rules", []byte(rules), 0o600))
	r := mastertest.Start(t,
		"saltern_renderer_python: "+python+"\nfile_roots: {base: ["+srv+"/base]}\nreactor: "+srv+"/rules\n")

	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sub := r.Parts.Bus.Subscribe("test", 100, func(tag string) bool { return strings.HasSuffix(tag, "/new") })
			defer sub.Close()
			r.Parts.Fire(fmt.Sprint("my/", i), value.NewMap())
			select {
			case e := <-sub.C:
				got := e.Data.Str("fun")
				if args, ok := e.Data.Get("fun_args"); ok {
					got += " " + runner.JSON(args, false)
				}
				if !strings.HasPrefix(got, tt.want) || e.Data.Str("user") != "Reactor" {
					t.Errorf("got  %s, by %s\nwant %s", got, e.Data.Str("user"), tt.want)
				}
			case <-await.Context(t).Done():
				t.Errorf("nothing is called; the log: %s", r.Log)
			}
		})
	}

	r.Parts.Fire("my/caller", value.NewMap())
	await.That(t, "a function on this host", func() bool { _, err := os.Stat(srv + "/called"); return err == nil })
}

// TestReactionIsPublished: all that Salt's client makes of a reaction gets to minions, at any
// place of its arguments.
func TestReactionIsPublished(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t,
		"saltern_renderer_python: "+mastertest.SaltPython(t)+"\nreactor: [{my/event: %DIR%/r.sls}, {my/odd: %DIR%/odd.sls}]\n")
	r.AcceptedMinion("min1", "min6")
	r.AddFile("r.sls",
		"x:\n  cmd: [state.single, {ret: r1}, {tgt: 'min1,min2'}, {tgt_type: list}, {metadata: {a: 1}}, {ret_config: other}, {arg: [one, 2]}, {kwarg: {name: n}}]\n")
	sub := r.Parts.Bus.Subscribe("test", 100, func(tag string) bool {
		return strings.HasPrefix(tag, "salt/job/") && strings.HasSuffix(tag, "/publish")
	})
	defer sub.Close()

	// By these nobody is reached, and the log says why.
	odd := []string{"tgt: null", "tgt: 5", "tgt: {a: b}", "tgt: ''", "{tgt: '*'}, {tgt_type: null}",
		"{tgt: '*'}, {tgt_type: [glob]}", "{tgt: '*'}, {tgt_type: nosuch}", "{tgt: '*'}, {jid: none}"}
	text := ""
	for n, arguments := range odd {
		text += fmt.Sprintf("x%d:\n  local.test.ping: [%s]\n", n, arguments)
	}

	r.AddFile("odd.sls", text)
	r.Parts.Fire("my/odd", value.NewMap())
	r.Parts.Fire("my/event", value.NewMap())
	select {
	case e := <-sub.C:
		e.Data.Delete("jid")
		e.Data.Delete("_stamp")
		e.Data.Delete("user")
		const want = `{"fun": "state.single", "arg": ["one", 2, {"__kwarg__": true, "name": "n"}], "tgt": "min1,min2", "ret": "r1", "tgt_type": "list", "ret_config": "other", "metadata": {"a": 1}}`
		if got := runner.JSON(e.Data, false); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	case <-await.Context(t).Done():
		t.Errorf("no job is published; the log: %s", r.Log)
	}

	for n := range odd {
		if !strings.Contains(r.Log.String(), fmt.Sprintf("Reactor 'x%d' failed to execute local", n)) {
			t.Errorf("of %q the log says nothing: %s", odd[n], r.Log)
		}
	}
}

// The reactor hears what happens before its goroutine runs.
func TestReactorHearsTheStart(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "reactor:\n  - 'salt/master/*/start': /nowhere/start.sls\n")
	await.That(t, "reaction to the start", func() bool { return strings.Contains(r.Log.String(), "/nowhere/start.sls") })
}

// TestReactorFromFileServer: a reaction's file may be one of the file server, in
// base or in another environment, as with Salt (cp.cache_file).
func TestReactorFromFileServer(t *testing.T) {
	t.Parallel()
	python := mastertest.SaltPython(t)
	srv := t.TempDir()
	for path, text := range map[string]string{
		"base/reactor/r.sls": "x:\n  runner.no.such_a: [{args: {a: 1}}]\n",
		"dev/r2.sls":         "y:\n  runner.no.such_b: [{args: {a: 1}}]\n",
	} {
		full := filepath.Join(srv, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	r := mastertest.Start(t, "saltern_renderer_python: "+python+"\nfile_roots: {base: ["+srv+"/base], dev: ["+srv+"/dev]}\n"+
		"reactor:\n  - 'my/event': ['salt://reactor/r.sls', 'salt://r2.sls?saltenv=dev', 'salt://missing.sls', 'salt://../base/reactor/r.sls']\n")
	sub := r.Parts.Bus.Subscribe("test", 100, event.Prefix("salt/run/"))
	defer sub.Close()

	r.Parts.Fire("my/event", value.NewMap())
	seen := map[string]bool{}
	await.That(t, "both reactions", func() bool {
		select {
		case e := <-sub.C:
			seen[e.Data.Str("fun")] = true
		case <-time.After(100 * time.Millisecond):
		}
		return seen["runner.no.such_a"] && seen["runner.no.such_b"]
	})

	for _, want := range []string{"path=salt://missing.sls", "path=salt://../base/reactor/r.sls"} {
		await.That(t, "the missing file is named: "+want, func() bool { return strings.Contains(r.Log.String(), want) })
	}
}
