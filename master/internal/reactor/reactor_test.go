package reactor

import (
	"slices"
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
  - 'salt/other': [/srv/other.sls, 5]
`).List("reactor"))
	if len(faults) != 4 || m.Empty() {
		t.Errorf("faults: %v", faults)
	}

	if got := m.Files("salt/minion/web1/start"); !slices.Equal(got,
		[]string{"/srv/start.sls", "/srv/more.sls", "/srv/web.sls"}) {
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
	if !ok || left.Files("a/x") != nil || len(left.All()) != 2 ||
		!slices.Equal(added.Files("a/x"), []string{"/a.sls"}) {
		t.Errorf("removed: %v %v, before %v", ok, left, added)
	}

	if first, _ := left.All()[0].(*value.Map); first.List("b") == nil {
		t.Errorf("list of rules: %v", left.All())
	}
}
