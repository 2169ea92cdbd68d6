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
