package renderer

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/value"
)

// shapes are pillar templates as shops write them, one for each thing that many of them do.
var shapes = map[string]string{
	"values of grains":        "host: {{ grains['id'] }}\nrole: {{ grains.role }}\nos: {{ grains.get('os', 'none') }}\ncpus: {{ grains.num_cpus * 2 }}\n",
	"branch by grain":         "{% if grains['os_family'] == 'Debian' %}\nservice: ssh\n{% elif grains.os_family in ['RedHat', 'Suse'] %}\nservice: sshd\n{% else %}\nservice: none\n{% endif %}\n",
	"branch by name":          "{% if grains['id'].startswith('web') and 'db' not in grains.id %}\nweb: true\n{% endif %}\nlast: {{ grains['id'].split('.')[-1] }}\n",
	"include by role":         "include:\n{% for role in grains.get('roles', []) %}\n  - roles.{{ role }}\n{% endfor %}\n  - common\n",
	"loop over list":          "users:\n{% for user in ['anna', 'bert'] %}\n  {{ user }}:\n    uid: {{ 1000 + loop.index }}\n    home: /home/{{ user }}\n    first: {{ loop.first }}\n{% endfor %}\n",
	"loop over dictionary":    "{% set ports = {'http': 80, 'https': 443} %}\nports:\n{% for name, port in ports.items() %}\n  {{ name }}: {{ port }}\n{% endfor %}\n",
	"nested loops":            "{% for a in range(3) %}\nk{{ a }}:\n{% for b in range(2) %}\n  - {{ a }}-{{ b }}{% if not loop.last %} # more{% endif %}\n{% endfor %}\n{% endfor %}\n",
	"imported YAML":           "{% import_yaml 'map.yaml' as map %}\nlist: {{ map.list }}\nof: {{ map.by_os.get(grains.os_family, 'none') }}\n",
	"imported YAML of a name": "{% set name = 'map' %}\n{% import_yaml name ~ '.yaml' as map %}\nkeys: {{ map.keys() | list }}\n",
	"imported macro":          "{% from 'lib.jinja' import user with context %}\nusers:\n  {{ user('anna', 1000) | indent(2) }}\n  {{ user('bert', 1001, shell='/bin/sh') | indent(2) }}\n",
	"imported values":         "{% from 'lib.jinja' import defaults as d %}\na: {{ d.a }}\nb: {{ d['b'] }}\n",
	"own macro":               "{% macro line(name, on=true, more=[]) %}\n{{ name }}: {enabled: {{ on }}, more: {{ more }}}\n{% endmacro %}\n{{ line('a') }}\n{{ line('b', false, ['x', 1]) }}\n",
	"changes a list":          "{% set hosts = [] %}\n{% for i in range(3) %}{% do hosts.append('h%02d' % i) %}{% endfor %}\nhosts: {{ hosts }}\nsum: {{ hosts | length }}\n",
	"changes a dictionary":    "{% set d = {'a': 1} %}{% do d.update({'b': [2, {'c': none}]}) %}\nd: {{ d }}\nj: {{ d | json }}\ny: {{ d | yaml(false) | indent(2) }}\n",
	"namespace":               "{% set ns = namespace(found=false) %}{% for r in grains.roles %}{% if r == 'web' %}{% set ns.found = true %}{% endif %}{% endfor %}\nfound: {{ ns.found }}\n",
	"inline YAML":             "{% load_yaml as m %}\nDebian: {pkg: apache2}\nRedHat: {pkg: httpd}\n{% endload %}\npkg: {{ m[grains.os_family].pkg }}\n",
	"filter by":               "{% set m = salt['grains.filter_by']({'Debian': {'p': 1}, 'default': {'p': 2}}, default='default') %}\np: {{ m.p }}\n",
	"functions":               "a: {{ salt['grains.get']('deep:key', 'none') }}\nb: {{ salt['pillar.get']('x:y', 3) }}\nc: {{ salt['config.get']('nosuch:x', [1]) }}\n",
	"conditional values":      "a: {{ 'big' if grains.num_cpus > 3 else 'small' }}\nb: {{ grains.get('nosuch') or 'other' }}\nc: {{ grains.nosuch | default('d') }}\n",
	"filters of text":         "a: {{ 'Some Text' | lower | replace(' ', '-') }}\nb: {{ ['a', 'b'] | join(',') }}\nc: {{ '%s:%d' | format('x', 5) }}\nd: {{ 'a b' | yaml_dquote }}\ne: {{ 'x' ~ 1 ~ none }}\nf: {{ 'plain' | upper | truncate(3, true, '') }}\n",
	"filters of lists":        "a: {{ [3, 1, 2] | sort | first }}\nb: {{ [1, 1, 2] | unique | list }}\nc: {{ ['b', 'A'] | sort }}\nd: {{ {'b': 1, 'a': 2} | dictsort }}\ne: {{ [1, 2, 3][1:] }}\n",
	"hashes":                  "a: {{ 'secret' | md5 }}\nb: {{ 'x' | base64_encode }}\nc: {{ 'x' | sha256 }}\n",
	"white space marks":       "list:\n  {%- for i in [1, 2] %}\n  - {{ i }}\n  {%- endfor %}\nend: true\n",
	"comments":                "{# not seen: {{ nosuch }} #}\na: 1 {#- nor this -#}\n\nb: 2\n",
	"raw":                     "a: '{% raw %}{{ left as it is }}{% endraw %}'\n",
	"block scalar":            "motd: |\n  Welcome to {{ grains.id }}\n{% for r in grains.roles %}\n    * {{ r }}\n{% endfor %}\n  bye\n",
	"key of PGP":              "key: |\n  -----BEGIN PGP MESSAGE-----\n\n  hQEMA{{ grains.num_cpus }}/x+y=\n  =abcd\n  -----END PGP MESSAGE-----\n",
	"anchors":                 "a: &a {x: 1}\nb:\n  <<: *a\n  y: {{ grains.num_cpus }}\n",
	"words of YAML":           "a: {{ true }}\nb: {{ none }}\nc: {{ 'yes' }}\nd: '{{ 'yes' }}'\ne: {{ '0644' }}\nf: {{ 1.0 }}\ng: {{ 1e16 }}\nh: {{ '12:30' }}\ni: {{ 2 ** 40 }}\n",
	"empty":                   "{% if false %}a: 1{% endif %}\n",
	"names of the SLS":        "a: {{ sls }}\nb: {{ tpldir }}\nc: {{ slspath }}\nd: {{ tplfile.split('/')[-1] }}\n",
	"undefined":               "a: {{ nosuch.key }}\n",
	"syntax":                  "a: {% if %}\n",
	"twice the same key":      "a: 1\n{% for i in [1] %}a: 2\n{% endfor %}",
	"tab":                     "a:\n\tb: 1\n",
	"brace of YAML":           "a: {{ {} }}\nb: {{ [] }}\nc: {{ {'k': 'it\\'s', 'l': \"x\\ny\"} }}\n",
	"other renderer":          "#!jinja|json\n{\"a\": {{ grains.roles | tojson }}}\n",
	"Python":                  "#!py\ndef run():\n    return {'a': __grains__['id']}\n",
	"header":                  "#!jinja|yaml\n#jinja2: {\"trim_blocks\": true}\n{% if true %}\na: 1\n{% endif %}\n",
	"long text":               "{% for i in range(200) %}k{{ i }}: {v: {{ i }}, w: \"x{{ i }}\"}\n{% endfor %}",
}

// TestShapes renders the shapes for two minions in a process that keeps what it can, twice, and as
// Salt does.
func TestShapes(t *testing.T) {
	files := map[string]string{
		"pillar/map.yaml":  "list: [1, two, {three: 3}]\nby_os:\n  Debian: deb\n  RedHat: rpm\n",
		"pillar/lib.jinja": "{% set defaults = {'a': grains.id, 'b': [1, 2]} %}\n{% macro user(name, uid, shell='/bin/bash') -%}\n{{ name }}:\n  uid: {{ uid }}\n  shell: {{ shell }}\n  at: {{ grains.id }}\n{%- endmacro %}\n",
	}

	kept, _ := oneWorker(t, files, false)
	fresh, _ := oneWorker(t, files, true)
	failed := 0
	for name, text := range shapes {
		for i, os := range []string{"Debian", "RedHat", "Debian"} {
			grains := value.NewMap("id", fmt.Sprintf("web%d.example", i), "role", "web", "roles", []any{"web", fmt.Sprint("r", i)},
				"os", os, "os_family", os, "num_cpus", int64(2+2*i), "deep", value.NewMap("key", int64(i)))
			got := said(render(t, kept, "m", grains, text))
			want := said(render(t, fresh, "m", grains, text))
			if got != want {
				t.Errorf("%s, minion %d\n has %s\nwant %s", name, i, got, want)
			}
			if strings.HasPrefix(want, "error") {
				failed++
			}
		}
	}

	if stats := kept.Stats(); failed > 3*8 || stats.YAMLInGo < 2*uint64(len(shapes)) {
		t.Errorf("%d fail, %d of %d are read in Go", failed, stats.YAMLInGo, 3*len(shapes))
	}
}
