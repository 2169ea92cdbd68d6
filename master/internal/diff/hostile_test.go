package diff

import (
	"strings"
	"testing"
)

// TestDefaultsOfIncludesAreNoOptions: compile_template of Salt takes what an include gives as defaults for
// its own arguments. One of them replaces the options by which an import finds its files, with
// modules of the ref.
func TestDefaultsOfIncludesAreNoOptions(t *testing.T) {
	t.Parallel()
	python(t)
	opts := `{file_client: local, fileserver_backend: [evil], extension_modules: "{{ tplpath | replace('/a.sls', '') }}/ext",
    cachedir: /nonexistent, file_roots: {}, pillar_roots: {}, id: x, __role: master, __fs_update: true, hash_type: sha256,
    optimization_order: [0], file_ignore_regex: [], file_ignore_glob: [], fileserver_limit_traversal: false, grains: {}}`
	given := map[string]string{
		"context":  "{context: {fileclient: null, _pillar_rend: false, opts: " + opts + "}}",
		"direct":   "{opts: " + opts + "}",
		"client":   "{fileclient: null}",
		"pillar":   "{_pillar_rend: false}",
		"renderer": "{renderers: {}}",
		"path":     "{tmplpath: /etc/passwd}",
		"tpldir":   "{tpldir: ../../served}",
		"pillars":  "{context: {pillar: {x: 1}}}",
	}
	for name, defaults := range given {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := newService(t, served, manyMinions(1), nil)
			report := compareFolder(t, s, root, with(served,
				"top.sls", "base: {'*': [a, c]}\n",
				"a.sls", "include:\n  - b:\n      defaults: "+defaults+"\nz: {{ grains.os }}\n",
				"b.sls", "{% import 'x' as y %}\nb: 1\n",
				"c.sls", "c: {{ grains.os }}\n",
				"x", "{% set x = 1 %}\n",
				"ext/fileserver/evil.py", "import salt.utils.yamlloader as y\ny.SaltYamlSafeLoader.get_single_data = lambda self: {'PWNED': 1}\n"))
			text := report.Text(false)
			if !strings.Contains(text, "\n  b is given ") || strings.Contains(text, "PWNED") {
				t.Errorf("not refused:\n%s", text)
			}
			t.Log(text)
		})
	}
}
