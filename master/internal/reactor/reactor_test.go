package reactor

import (
	"slices"
	"strings"
	"testing"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

func parse(t *testing.T, text string) *value.Map {
	t.Helper()
	v, err := saltyaml.Decode([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.Map)
}

func TestFiles(t *testing.T) {
	m, faults := Parse(parse(t, `
reactor:
  - 'salt/minion/*/start': [/srv/start.sls, /srv/more.sls]
  - 'salt/*/web?/start': /srv/web.sls
  - broken
  - {a: x, b: y}
  - empty: []
`).List("reactor"))
	if len(faults) != 3 || m.Empty() {
		t.Errorf("faults: %v", faults)
	}
	if got := m.Files("salt/minion/web1/start"); !slices.Equal(got, []string{"/srv/start.sls", "/srv/more.sls", "/srv/web.sls"}) {
		t.Errorf("files: %v", got)
	}
	if got := m.Files("salt/auth"); got != nil {
		t.Errorf("files: %v", got)
	}
}

func TestRulesChange(t *testing.T) {
	m, _ := Parse(parse(t, "reactor: [{'a/*': [/a.sls]}, {'b': /b.sls}]").List("reactor"))
	added, ok := m.Added("c", []any{"/c.sls", "/d.sls"})
	if !ok || !slices.Equal(added.Files("c"), []string{"/c.sls", "/d.sls"}) || m.Files("c") != nil {
		t.Errorf("added: %v %v, before %v", ok, added, m)
	}
	for name, f := range map[string]func() (Map, bool){
		"same tag": func() (Map, bool) { return added.Added("c", "/x.sls") },
		"no tag":   func() (Map, bool) { return added.Added("", "/x.sls") },
		"no files": func() (Map, bool) { return added.Added("d", []any{}) },
		"unknown":  func() (Map, bool) { return added.Removed("d") },
	} {
		if got, ok := f(); ok || len(got.All()) != 3 {
			t.Errorf("%s: %v %v", name, ok, got)
		}
	}
	left, ok := added.Removed("a/*")
	if !ok || left.Files("a/x") != nil || len(left.All()) != 2 || !slices.Equal(added.Files("a/x"), []string{"/a.sls"}) {
		t.Errorf("removed: %v %v, before %v", ok, left, added)
	}
	if first, _ := left.All()[0].(*value.Map); first.List("b") == nil {
		t.Errorf("list of rules: %v", left.All())
	}
}

func TestCompile(t *testing.T) {
	got, err := compile(parse(t, `
new:
  local.state.apply:
    - tgt: web1
    - args:
      - mods: apache
legacy:
  cmd.cmd.run:
    - tgt: 'os:Debian'
    - tgt_type: grain
    - arg: [rm -rf /tmp/x]
    - kwarg: {shell: /bin/sh}
run:
  runner.event.send:
    - args:
        tag: my/tag
        data: {a: 1}
old_run:
  runner.manage.up:
    - timeout: 5
    - show_jid: True
accept:
  wheel.key.accept:
    - match: web1
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 {
		t.Fatalf("%d reactions", len(got))
	}
	if r := got[0]; r.Kind != local || r.Fun != "state.apply" || r.Target != "web1" || r.TargetType != "glob" || r.Kwargs.Str("mods") != "apache" {
		t.Errorf("new style: %+v", r)
	}
	if r := got[1]; r.Kind != local || r.Fun != "cmd.run" || r.TargetType != "grain" || len(r.Args) != 1 || r.Kwargs.Str("shell") != "/bin/sh" {
		t.Errorf("legacy: %+v", r)
	}
	if r := got[2]; r.Kind != Runner || r.Kwargs.Str("tag") != "my/tag" {
		t.Errorf("runner: %+v", r)
	}
	if r := got[3]; r.Kwargs.Len() != 1 || !r.Kwargs.Bool("show_jid") {
		t.Errorf("old runner: %v", r.Kwargs)
	}
	if r := got[4]; r.Kind != Wheel || r.Kwargs.Str("match") != "web1" {
		t.Errorf("wheel: %+v", r)
	}
}

func TestCompileFaults(t *testing.T) {
	for name, text := range map[string]string{
		"unknown kind": "a: {shell.run: [{tgt: x}]}", "no function": "a: {local: [{tgt: x}]}", "no target": "a: {local.test.ping: []}",
		"not a map": "a: [x]", "bare argument": "a: {local.test.ping: [x]}", "bad args": "a: {local.test.ping: [{tgt: x}, {args: 5}]}",
		"bad kwarg": "a: {local.test.ping: [{tgt: x}, {kwarg: 5}]}", "name is a number": "1: {local.test.ping: [{tgt: x}]}",
	} {
		if r, err := compile(parse(t, text)); err == nil || !strings.Contains(err.Error(), "reaction") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}
