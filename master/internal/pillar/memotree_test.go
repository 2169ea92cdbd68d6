package pillar

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"saltern/master/value"
)

// treeMaker makes pillar trees of what people write in templates, and of what they
// should not.
type treeMaker struct {
	*rand.Rand
	key   int
	small bool // one or two SLS, and seldom anything else
}

// pieces of SLS; K is a key of its own, G a grain, P a path of the pillar.
var pieces = []string{
	"K: {{ grains['G'] | tojson }}\n",
	"K: {{ grains.G | json }}\n",
	"K: {{ grains.get('G', 'none') | tojson }}\n",
	"K: {{ grains['G'] }}\n",
	"K: {{ (grains['nosuch'] | default('dflt')) ~ grains.id }}\n",
	"K: {{ salt['grains.get']('G', 'none') | yaml }}\n",
	"K: {{ salt.grains.get('net:eth0:ip') }}\nKb: [{{ salt['grains.get']('net|eth0', delimiter='|') | tojson }}]\n",
	"K: {{ salt['grains.get']('numbers:1', 'no') }}\n",
	"K: {{ salt['grains.get']('numbers:7', 'no') }}\n",
	"K: {{ salt['grains.get']('tags:0', 'no') }}\n",
	"K: {{ salt['grains.has_value']('net:eth1') }}\n",
	"K: {{ salt['pillar.get']('P', 'none') | tojson }}\n",
	"K: {{ salt.pillar.get('P', {'a': 1}, merge=True) | tojson }}\n",
	"K: {{ pillar.get('app', {}) | tojson }}\n",
	"K: {{ pillar['app']['port'] | default(0) }}\n",
	"K: {{ pillar.nosuch | default('d') }}\n",
	"{% if grains.os == 'Debian' %}\nK: {{ grains.G | tojson }}\n{% elif 'site' in grains and grains['cpus'] > 2 %}\nK: {{ grains.site }}\n{% else %}\nK: {{ pillar.get('tier') }}\n{% endif %}\n",
	"{% for t in grains.get('tags', []) %}\nK_{{ loop.index }}: {{ t }}-{{ loop.length }}-{{ grains['role'] }}\n{% endfor %}\n",
	"K:\n{% for k, v in grains.net.items() %}\n  {{ k }}: {{ v | tojson }}\n{% endfor %}\n",
	"K:\n{% for k, v in grains['net'] | dictsort %}\n  {{ k }}: {{ v.ip }}\n{% else %}\n  nothing: 1\n{% endfor %}\n",
	"{% set ns = namespace(n=0) %}{% for i in range(grains.cpus) %}{% set ns.n = ns.n + i %}{% endfor %}\nK: {{ ns.n }}\n",
	"{% macro m(x, y='d') %}{{ x }}/{{ y }}/{{ grains.site }}{% endmacro %}\nK: {{ m(grains['role']) }}\nKb: {{ m(1, y=grains.os) }}\n",
	"{% macro c() %}<{{ caller() }}>{% endmacro %}\nK: {% call c() %}{{ grains.role }}{% endcall %}\n\n",
	"{% macro g(grains) %}{{ grains.x }}{% endmacro %}\nK: {{ g({'x': grains['site']}) }}\n",
	"{% from 'lib/map.jinja' import settings, both with context %}\nK: {{ settings | tojson }}\nKb: {{ both(1) }}\n",
	"{% import 'lib/plain.jinja' as p %}\nK: {{ p.add(grains['cpus']) }}\n",
	"{% import_yaml 'lib/data.yaml' as data %}\nK: {{ data[grains.os] | default(data.other) | tojson }}\n",
	"{% import_json 'lib/data-' ~ grains.os ~ '.json' as data %}\nK: {{ data.v }}\n",
	"{% include 'lib/part.jinja' %}\n",
	"{% include 'lib/gone.jinja' ignore missing %}\nK: 1\n",
	"{% load_yaml as x %}\na: {{ grains.role }}\nb: [1, 2]\n{% endload %}\nK: {{ x | tojson }}\n",
	"{% set d = {'a': 1} %}{% do d.update({'b': grains.site}) %}\nK: {{ d | tojson }}\n",
	"{% set l = [] %}{% for t in grains['tags'] %}{% do l.append(t ~ '!') %}{% endfor %}\nK: {{ l | tojson }}\n",
	"{% set d = {} %}{% do grains.get('nosuch', d).update({'x': 1}) %}\nK: {{ d | tojson }}\n",
	"{% set d = {} %}{% do salt['pillar.get']('gone:such', d).update({'x': 1}) %}\nK: {{ d | tojson }}\n",
	"{% set map = salt['grains.filter_by']({'Debian': {'pkg': 'apache2'}, 'RedHat': {'pkg': 'httpd'}, 'default': {}}, grain='os', merge=salt['pillar.get']('app', {}), base='default') %}\nK: {{ map | tojson }}\n",
	"K: {{ salt['slsutil.merge']({'a': {'b': 1}}, {'a': {'c': grains.G}}) | tojson }}\n",
	"K: {{ sls }}-{{ slspath }}-{{ tplfile }}-{{ tpldir }}-{{ saltenv }}\n",
	"K: [{{ grains.nosuch is defined }}, {{ grains['tags'] is sequence }}, {{ grains.net is mapping }}, {{ 'x' in grains }}, {{ grains['flag'] is sameas true }}]\n",
	"K: [{{ grains.G is string }}, {{ grains.G is none }}, {{ grains['os'] in ['Debian', 'x'] }}, {{ grains.cpus is odd }}]\n",
	"K: {{ grains['tags'] | map('upper') | join(',') }}-{{ grains.tags | select('match', 't.*') | list | tojson }}\n",
	"K: {{ '%s-%05d' | format(grains['os'], grains['cpus']) }} {{ '{}:{}'.format(grains.site, 1) }}\n",
	"K: {{ grains['net'] }}\n",
	"K: {{ grains.tags[1:] | tojson }} \nKb: {{ grains['fqdn'].split('.')[0] }}\n",
	"K: {{ 'a' if grains['role'] == 'r1' else grains.role }}\n",
	"K: {{ odict([('b', grains.site), ('a', 1)]) | tojson }}\n",
	"{% set get = salt['grains.get'] %}{% set gg = grains.get %}\nK: {{ get('role') }}{{ gg('os') }}\n",
	"{% set grains2 = {'a': grains.role} %}{% for grains in [grains2] %}\nK: {{ grains.a }}\n{% endfor %}\n",
	"{% filter upper %}K: {{ grains.site }}{% endfilter %}\n\n",
	"K: {{ grains.text | yaml_dquote }}\nKb: {{ grains['text'] | base64_encode }}\n",
	"K: {{ mine_ }}\n", "K: {{ dflt | default(grains.site) }}\n",
	"K: {{ grains.net.eth0.ip | default('?') }}\nKb: {{ grains['net']['eth0']['secret'] }}\n",
	"K: {{ {'x': grains.role, 'y': [grains['secret']]} | tojson }}\n",
	"{% block b %}K: {{ self.name | default(grains.role) }}{% endblock %}\n\n",
	"K: {{ grains.secret }}\n", "K: {{ pillar['secret'] }}\n", "K: {{ salt['pillar.get']('app:secret') }}\n", "K: {{ grains['net'] | length }}\n",
}

// alone are pieces whose result is for one minion only.
var alone = []string{
	"K: {{ opts.id }}\n", "K: {{ opts['grains']['role'] }}\n", "K: {{ salt['test.echo'](grains.role) }}\n", "K: {{ salt['config.get']('role') }}\n",
	"K: {{ salt.test.echo('x') }}\n", "K: {{ grains | length }}\n", "K: {{ grains | tojson }}\n", "K:\n{% for k, v in grains.items() %}\n  {{ k }}: {{ v | tojson }}\n{% endfor %}\n",
	"K: {{ salt['grains.items']() | tojson }}\n", "{% set g = grains %}\nK: {{ g.secret }}\n", "{% set s = salt %}\nK: {{ s['grains.get']('secret') }}\n",
	"{% macro m(g) %}{{ g.secret }}{% endmacro %}\nK: {{ m(grains) }}\n", "K: {{ [grains] | map(attribute='secret') | first }}\n", "K: {{ dict(a=grains).a.secret }}\n",
	"K: {{ pillar | tojson }}\n", "K: {{ salt['pillar.raw']() | tojson }}\n", "K: {{ grains.values() | list | length }}\n", "K: {{ show_full_context().grains.secret }}\n",
	"K: {{ salt['grains.item']('secret') | tojson }}\n", "K: {{ ('%(secret)s' | format(**grains)) }}\n", "K: {{ salt['match.glob'](grains['id']) }}\n",
	"K: {{ grains.copy().secret }}\n",
}

// altering pieces change what later templates see.
var altering = []string{
	"{% do grains.update({'added': grains.id}) %}\nK: {{ grains.added }}\n", "{% do grains['tags'].append('ALTERED') %}\nK: {{ grains.tags | tojson }}\n",
	"{% do salt['pillar.get']('app').update({'z': grains.id}) %}\nK: {{ pillar.app | tojson }}\n", "{% set x = grains.pop('site', 'gone') %}\nK: {{ x }}\n",
	"{% do pillar['app'].clear() %}\nK: 1\n", "{% do grains['net'].setdefault('lo', {}).update({'x': 1}) %}\nK: 1\n", "{% do opts.update({'pillar_merge_lists': True}) %}\nK: 1\n",
	"{% do grains['tags'].append('ALTERED') %}\nK: {{ salt['test.echo'](1) }}\n",
}

// faulty pieces are an error for some or all minions.
var faulty = []string{
	"K: {{ grains['nosuch'].x }}\n", "{% if grains.os == 'Debian' %}\nK: [\n{% endif %}\n", "K: {{ raise('no: ' ~ grains.role) }}\n", "{% if grains['cpus'] == 1 %}{{ 1 / 0 }}{% endif %}\n",
	"{% do grains['tags'].append('ALTERED') %}K: {{ nosuch.y }}\n", "{% include 'lib/gone.jinja' %}\n", "K: {{ grains['G']['x']['y'] }}\n", "K: {{ salt['no.such']() }}\n",
}

// chancy pieces have another value each time; their keys begin with rnd.
var chancy = []string{
	"rndK: x{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}\n", "rndK: {{ salt['random.rand_int'](1, 1000000000000) }}\n", "rndK: {{ 256 | random_hash }}{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}\n",
	"rndK: {{ [[1, 2, 3]] | map('random_sample', 1) | list | length }}{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}\n", "rndK: x{{ lipsum() | length }}{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}\n",
	"{% macro dice() %}{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}-{{ range(0, 99999) | random }}{% endmacro %}\nrndK: x{{ dice() }}\n", "rndK: x{% for i in range(15) %}{{ [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] | random }}{% endfor %}\n",
}

var grainNames = []string{"os", "role", "site", "cpus", "tags", "net", "flag", "nothing", "empty", "ratio",
	"fqdn", "text", "numbers", "secret", "id"}
var pillarPaths = []string{"app", "app:port", "tier", "secret", "app:names", "app:nosuch", "gone:such"}

func (m *treeMaker) pick(of []string) string { return of[m.IntN(len(of))] }

func (m *treeMaker) piece(of []string) string {
	m.key++
	return strings.NewReplacer("K", fmt.Sprintf("k%d", m.key), "grains.G", "grains."+m.pick(grainNames),
		"'G'", "'"+m.pick(grainNames)+"'", "'P'", "'"+m.pick(pillarPaths)+"'").Replace(m.pick(of))
}

func (m *treeMaker) sls() string {
	var b strings.Builder
	for range 1 + m.IntN(5) {
		switch n := m.IntN(100); {
		case n < 1:
			b.WriteString(m.piece(altering))
		case n < 3:
			b.WriteString(m.piece(faulty))
		case n < 6:
			b.WriteString(m.piece(alone))
		case n < 8:
			b.WriteString(m.piece(chancy))
		default:
			b.WriteString(m.piece(pieces))
		}
	}

	return b.String()
}

// files is a tree below p/.
func (m *treeMaker) files() map[string]string {
	f := map[string]string{
		"p/lib/map.jinja": "{% set settings = {'os': grains['os'], 'port': salt['pillar.get']('app:port', 80)} %}\n{% macro both(x) %}{{ x }}{{ grains.role }}{{ sls }}{% endmacro %}\n",
		"p/lib/plain.jinja": "{% macro add(n) %}{{ n + " + fmt.Sprint(m.IntN(100)) +
			" }}{% endmacro %}\n", "p/lib/data.yaml": fmt.Sprintf("Debian: {a: %d}\nother: [1, 2]\n", m.IntN(1000)),
		"p/lib/part.jinja": "part: {{ grains.site }}\nlocalpart: {{ dflt | default('none') }}\n", "p/lib/data-Debian.json": `{"v": 1}`, "p/lib/data-RedHat.json": `{"v": "` + fmt.Sprint(m.IntN(1000)) + `"}`,
		"p/rel/near.jinja": "{% set near = grains.role ~ '-near' %}\n", "p/rel/init.sls": "{% from './near.jinja' import near with context %}\nnear: {{ near }}\n", "p/plain.sls": "plain: {x: [1, 2]}\n",
		"p/inc.sls": "include:\n  - mapped:\n      key: from:mapped\n      defaults: {mine_: {{ grains.site }}, dflt: 5}\n  - s0\ninc: {{ grains.role }}\n", "p/mapped.sls": "md: {{ mine_ }}\nme: {{ dflt }}{{ grains.os }}\n",
		"p/py.sls": "#!py\ndef run():\n    return {'py': __grains__['id'], 'py2': __salt__['grains.get']('secret')}\n",
	}

	n, seldom := 2+m.IntN(4), 4
	if m.small {
		n, seldom = 1+m.IntN(2), 12
	}

	var names []string
	for i := range n {
		f[fmt.Sprintf("p/s%d.sls", i)] = m.sls()
		names = append(names, fmt.Sprintf("s%d", i))
	}

	for _, extra := range []string{"rel", "inc", "plain", "py"} {
		if m.IntN(seldom) == 0 {
			names = append(names, extra)
		}
	}

	m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	f["p/top.sls"] = "base:\n  '*': [" + strings.Join(names, ", ") + "]\n"
	if m.IntN(seldom) < 2 {
		f["p/top.sls"] += "{% if grains['os'] == 'Debian' %}\n  'role:{{ grains.role }}':\n    - match: grain\n    - rel\n{% endif %}\n"
	}

	return f
}

func secretOf(i int) string { return fmt.Sprintf("S3CR3T-%d-X", i) }

// minion makes the grains and the pillar of minion i: few roles, and of each some
// things that no other has.
func (m *treeMaker) minion(i int) (grains, pillar *value.Map) {
	net := value.NewMap("eth0", value.NewMap("ip", fmt.Sprintf("10.0.0.%d", i%2)), "eth1", value.NewMap("ip", "::1"))
	app := value.NewMap("port", int64(80+i%2), "names", []any{"a"})
	if i%3 == 0 {
		net.Map("eth0").Set("secret", secretOf(i))
		app.Set("secret", secretOf(i))
	}

	kv := [][2]any{
		{"os", []string{"Debian", "RedHat"}[i%2]}, {"role", fmt.Sprintf("r%d", i/2%2)}, {"site", fmt.Sprintf("s%d", i%3)}, {"cpus", int64(i % 4 / 2)}, {"tags", []any{"t" + fmt.Sprint(i%2), "u"}}, {"net", net},
		{"flag", i%2 == 0}, {"nothing", nil}, {"empty", value.NewMap()}, {"ratio", []any{1.5, int64(1), 1.0, true}[i%4]}, {"fqdn", fmt.Sprintf("h%d.example.org", i%3)},
		{"text", "Zoë: \"x\" {{ no }}\n#"}, {"numbers", value.NewMap(int64(1), "int", "2", "text")}, {"secret", secretOf(i)}, {"unread", secretOf(i)},
	}

	if i%6 == 5 {
		kv[4][1], kv[5][1] = []any{}, value.NewMap("eth1", value.NewMap("ip", "::1"), "eth0",
			value.NewMap("ip", "10.0.0.1"))
	}

	if i%7 == 6 {
		kv = append(kv[:2], kv[3:]...) // no site
	}

	if i%2 == 1 {
		kv[0], kv[len(kv)-1] = kv[len(kv)-1], kv[0]
	}

	grains = value.NewMap()
	for _, e := range kv {
		grains.Set(e[0], e[1])
	}

	pillar = value.NewMap("app", app, "secret", secretOf(i))
	if i%3 == 0 {
		pillar.Set("tier", "gold")
	}

	return grains, pillar
}
