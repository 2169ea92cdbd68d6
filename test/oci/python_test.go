package oci

import (
	"path/filepath"
	"testing"

	"saltern/test/lab"
)

// TestPython: with Python a pillar with Jinja, an ext_pillar of Python and a state with
// Jinja work; without, the page says that pillars do not.
func TestPython(t *testing.T) {
	e := newEngine(t, "oci-python", "-python")
	net, base := network(t)
	options := `{ext_pillar: [{cmd_yaml: "echo outside: true"}]}`
	e.up(t, net,
		e.project(t, "../../examples/compose/one.yaml", "SALTERN_NET="+base, "SALTERN_MASTER_OPTIONS="+options))
	e.healthy(t, "salt1")
	srv := filepath.Join(t.TempDir(), "srv")
	lab.WriteTree(t, srv, map[string]string{
		"pillar/top.sls": "base:\n  '*': [sizes]\n", "pillar/sizes.sls": "double: {{ 21 * 2 }}\nname: {{ grains.id }}\n",
		"salt/file.sls": "{{ grains.id }}-{{ pillar.double }}:\n  test.succeed_without_changes\n",
	})

	e.must(t, "cp", srv+"/.", "salt1:/var/lib/saltern/cluster/srv/")
	minion(t, "web1", base+".11")
	e.accept(t, "salt1", "web1")
	for _, want := range []string{"double:\n    42", "name:\n    web1", "outside:\n    True"} {
		e.until(t, "salt1", want, "salt-run", "pillar.show_pillar", "web1")
	}

	e.until(t, "salt1", "web1-42", "salt", "-t", "60", "web1", "state.apply", "file")
	for _, program := range []string{"git", "gpg"} {
		e.must(t, "exec", "salt1", program, "--version")
	}
}
