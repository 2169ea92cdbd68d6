package pillar

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// parityTree is a pillar of the kinds that people write.
var parityTree = map[string]string{
	"p/top.sls": `base:
  '*':
    - common
    - loop
    - "glob_*"
  'G@os:Debian and web*':
    - web
    - order: 2
  'role:db':
    - match: grain
    - db
    - nosuch
    - order: 1
  'web1,web2':
    - match: list
    - listed
  'w.b\d':
    - match: pcre
    - pcre
  '*2':
    - ignored.one
    - inc_missing
    - ignore_missing: True
  'grp':
    - match: nodegroup
    - grouped
  '10.0.0.0/8':
    - match: ipcidr
    - cidr
dev:
  'web1': [devonly]
nowhere:
  '*': [lost]
`,
	"p/common.sls": "a: 1\ndeep: {x: {y: 1, z: [1, 2]}}\nlist: [1, two, {k: v}]\noctal: 0644\nyes: on\ntime: 1:30\ndate: 2026-01-02\nnull_: ~\nfloat: 1.5\nmulti: |\n  x\n  y\nbin: !!binary aGVsbG//\n1: intkey\ntrue: boolkey\n",
	"p/loop.sls":   "{% for i in range(20) %}\nkey{{ i }}:\n  value: {{ i }}\n  id: {{ grains['id'] }}\n  os: {{ salt['grains.get']('os', 'none') }}\n  p: {{ pillar.get('a', 'nothing') }}\n{% endfor %}\n",
	"p/glob_a.sls": "ga: 1", "p/glob_b/init.sls": "gb: {{ slspath }}/{{ tplfile }}/{{ sls }}/{{ tpldir }}/{{ saltenv }}", "p/glob_b/c.sls": "gc: 1",
	"p/web/init.sls":  "include:\n  - .extra\n  - common\n  - db.keys\n  - mapped:\n      key: from:mapped\n      defaults: {d1: dv, d2: [1, 2]}\nweb: {port: 80}\ndeep: {x: {y: 2, z: [2, 3]}}\nlist: [1, new]\n",
	"p/web/extra.sls": "extra: {{ opts['id'] }}\nweb: {port: 81, tls: no}\n", "p/extra.sls": "rootextra: yes\n",
	"p/mapped.sls": "md: {{ d1 }}\nml: {{ d2 | tojson }}\n", "p/db/init.sls": "#!py\ndef run():\n    return {'db': __grains__['id'], 'opts': __opts__['id'], 'got': __salt__['grains.get']('os'), 't': (1, 2)}\n",
	"p/db/keys.sls":   "{% from 'lib/map.jinja' import name with context %}{% import_yaml 'lib/data.yaml' as data %}\nkeys: {{ name }}\ndata: {{ data.v | yaml }}\n",
	"p/lib/map.jinja": "{% set name = grains['id'] ~ '-' ~ salt['test.echo']('e') %}", "p/lib/data.yaml": "v: {q: [1, 2]}\n",
	"p/listed.sls": "listed: true\nlist: [1, new, other]\n", "p/pcre.sls": "pcre: {{ salt['pillar.get']('a', 'none') }}\n", "p/grouped.sls": "grouped: 1\n", "p/cidr.sls": "cidr: {{ grains.ipv4[0] }}\n",
	"p/inc_missing.sls": "include: [gone, '.gone2']\nim: 1\n", "dev/devonly.sls": "dev: {{ saltenv }}\na: dev\n", "dev/top.sls": "dev:\n  '*': [second]\n", "dev/second.sls": "second: {{ opts.get('pillarenv') }}\n",
	"p/empty.sls": "", "p/bad_yaml.sls": "a: [1\n", "p/bad_jinja.sls": "a: {{ nosuch.attr }}\n", "p/scalar.sls": "just text\n", "p/listsls.sls": "- 1\n- 2\n", "p/badinc.sls": "include: common\nb: 1\n", "p/dup.sls": "a: 1\na: 2\n",
	"errs/top.sls": "base:\n  '*': [bad_yaml, bad_jinja, scalar, listsls, badinc, dup, empty, only_space, common, false_, zero]\n", "errs/only_space.sls": "  \n \n", "errs/false_.sls": "no", "errs/zero.sls": "0",
	"badtop/top.sls": "base:\n  '*': 5\n", "badtop2/top.sls": "base:\n  '*': [\n", "badtop3/top.sls": "{{ nosuch }}", "strtop/top.sls": "base:\n  '*': ab\n", "strtop/a.sls": "sa: 1", "inctop/top.sls": "include: [more, more.top]\nbase:\n  '*': [a]\n", "inctop/a.sls": "ia: 1", "inctop/more.sls": "base:\n  'web*': [b]\n  '*': [c]\n", "inctop/b.sls": "ib: 1", "inctop/c.sls": "ic: 1",
	"jtop/top.sls": "base:\n  '{{ grains.id }}':\n    - {{ 'a' if grains.os == 'Debian' else 'b' }}\n", "jtop/a.sls": "ja: 1", "jtop/b.sls": "jb: 1",
	"pt/top.sls": "base:\n  '*': [one]\n  'a:1': [{match: pillar}, two]\n  'ext_key:yes_it_is': [{match: pillar}, three]\n", "pt/one.sls": "a: 1", "pt/two.sls": "two: 1", "pt/three.sls": "three: {{ pillar.ext_key }}\next_key: over",
	"dyn/qa/p/top.sls": "qa:\n  '*': [x]\n", "dyn/qa/p/x.sls": "x: qa", "m/top.sls": "base:\n  '*': [m1, m2]\n", "m/m1.sls": "l: [1, 1, {a: 1}]\nd: {a: 1, b: {c: 1}}\ns: 1\n", "m/m2.sls": "include: [m3]\nl: [1, 2, {a: 1}, {a: 2}, 2]\nd: {b: {e: 2}}\ns: [1]\nn: ~\n", "m/m3.sls": "l: [m3]\nd: {b: 5}\nn: {x: 1}\n",
	"ext/pillar/extra.py": "def ext_pillar(minion_id, pillar, *a, **k):\n    return {'ext_key': 'yes_it_is', 'ext_id': minion_id, 'saw': sorted(str(x) for x in pillar), 'd': {'ext': list(a)}}\n",
	"ext/pillar/em.py":    "def ext_pillar(minion_id, pillar, extra_minion_data=None, **k):\n    return {'emd': extra_minion_data, 'k': k, 'gid': __grains__['id'], 'oid': __opts__['id']}\n",
	"ext/pillar/boom.py":  "def ext_pillar(minion_id, pillar, *a):\n    raise ValueError('boom ' + minion_id)\n",
}

func init() {
	for _, n := range []string{"bad_yaml", "bad_jinja", "scalar", "listsls", "badinc", "dup", "empty", "common"} {
		parityTree["errs/"+n+".sls"] = parityTree["p/"+n+".sls"]
	}
}

type parityCase struct {
	name               string
	roots              map[string][]string
	order              []string
	fetch              bool // Salt fetches before
	change             func(*Config)
	opts               map[string]any
	python             map[string]any // options of our Python, where they are fewer; see pools
	grains             map[string]any
	id                 string
	saltenv, pillarenv string
	override, extra    map[string]any
	// chain is ext_pillar, where it does not stand in opts: cases with other chains then share a worker.
	chain []any
	known bool // Salt has a key and the grains of the minion
}

func toMap(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := value.NewMap()
		for _, k := range slices.Sorted(maps.Keys(v)) { // as encoding/json does
			m.Set(k, toMap(v[k]))
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = toMap(x)
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = x
		}
		return out
	case map[string][]string:
		m := value.NewMap()
		for k, x := range v {
			m.Set(k, toMap(x))
		}
		return m
	case int:
		return int64(v)
	}

	return v
}

func parityCases(root string) []parityCase {
	dirs := func(pairs ...string) map[string][]string {
		out := map[string][]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = append(out[pairs[i]], root+"/"+pairs[i+1])
		}
		return out
	}

	deb := map[string]any{"os": "Debian", "role": "db", "ipv4": []any{"10.1.2.3", "127.0.0.1"}}
	ext := func(names ...any) (func(*Config), map[string]any) {
		var l []any
		for i := 0; i < len(names); i += 2 {
			l = append(l, map[string]any{names[i].(string): names[i+1]})
		}
		return func(c *Config) { c.ExtPillar = toMap(l).([]any) }, map[string]any{"ext_pillar": l}
	}

	grp := func(c *Config) { c.Nodegroups = value.NewMap("grp", "L@web1,db9 or E@x.*") }
	grpOpts := map[string]any{"nodegroups": map[string]any{"grp": "L@web1,db9 or E@x.*"}}
	cases := []parityCase{
		{
			name:   "web1",
			roots:  dirs("base", "p", "dev", "dev"),
			order:  []string{"base", "dev"},
			grains: deb,
			id:     "web1",
			change: grp,
			opts:   grpOpts,
		},
		{
			name:   "other order",
			roots:  dirs("base", "p", "dev", "dev"),
			order:  []string{"dev", "base"},
			grains: deb,
			id:     "web1",
			change: grp,
			opts:   grpOpts,
		},
		{
			name:   "web2",
			roots:  dirs("base", "p"),
			grains: map[string]any{"os": "RedHat"},
			id:     "web2",
			change: grp,
			opts:   grpOpts,
		},
		{name: "bare", roots: dirs("base", "p"), id: "x"},
		{
			name:      "pillarenv",
			roots:     dirs("base", "p", "dev", "dev"),
			order:     []string{"base", "dev"},
			grains:    deb,
			id:        "web1",
			pillarenv: "dev",
		},
		{name: "unknown pillarenv", roots: dirs("base", "p"), grains: deb, id: "web1", pillarenv: "nosuch"},
		{
			name:    "saltenv",
			roots:   dirs("base", "p", "dev", "dev"),
			order:   []string{"base", "dev"},
			grains:  deb,
			id:      "web1",
			saltenv: "dev",
		},
		{
			name:     "override",
			roots:    dirs("base", "p"),
			grains:   deb,
			id:       "web1",
			override: map[string]any{"deep": map[string]any{"x": map[string]any{"o": 1}}, "a": []any{7}, "new": nil},
		},
		{name: "errors", roots: dirs("base", "errs"), id: "m"},
		{
			name:  "string top",
			roots: dirs("base", "strtop"),
			id:    "m",
		}, {
			name:  "bad top",
			roots: dirs("base", "badtop"),
			id:    "m",
		}, {
			name:  "bad top yaml",
			roots: dirs("base", "badtop2"),
			id:    "m",
		}, {name: "bad top jinja", roots: dirs("base", "badtop3"), id: "m"},
		{
			name:  "included top",
			roots: dirs("base", "inctop"),
			id:    "web1",
		}, {
			name:   "jinja top",
			roots:  dirs("base", "jtop"),
			id:     "m",
			grains: deb,
		}, {
			name:  "no top",
			roots: dirs("base", "nosuchdir"),
			id:    "m",
		}, {name: "two roots", roots: dirs("base", "m", "base", "p"), id: "m"},
		{
			name:      "dynamic",
			roots:     map[string][]string{"base": {root + "/m"}, "__env__": {root + "/dyn/__env__/p"}},
			order:     []string{"base", "__env__"},
			id:        "m",
			pillarenv: "qa",
		},
		{
			name:    "dynamic by saltenv",
			roots:   map[string][]string{"base": {root + "/m"}, "__env__": {root + "/dyn/__env__/p"}},
			order:   []string{"__env__", "base"},
			id:      "m",
			saltenv: "qa",
		},
		{
			name:    "pillarenv from saltenv",
			roots:   dirs("base", "p", "dev", "dev"),
			order:   []string{"base", "dev"},
			id:      "web1",
			saltenv: "dev",
			change:  func(c *Config) { c.PillarenvFromEnv = true },
			opts:    map[string]any{"pillarenv_from_saltenv": true},
		},
		{
			name:   "show errors",
			roots:  dirs("base", "errs"),
			id:     "m",
			change: func(c *Config) { c.ShowRenderErrors = true },
			opts:   map[string]any{"pillar_safe_render_error": false},
		},
		{
			name:   "includes override",
			roots:  dirs("base", "m"),
			id:     "m",
			change: func(c *Config) { c.IncludesOverride = true },
			opts:   map[string]any{"pillar_includes_override_sls": true},
		},
		{
			name:   "env order",
			roots:  dirs("base", "p", "dev", "dev"),
			order:  []string{"base", "dev"},
			id:     "web1",
			grains: deb,
			change: func(c *Config) { c.EnvOrder = []string{"dev", "base"} },
			opts:   map[string]any{"env_order": []any{"dev", "base"}},
		},
	}

	for _, s := range []string{"smart", "recurse", "list", "overwrite", "none", "aggregate", "bogus"} {
		for _, l := range []bool{false, true} {
			cases = append(cases,
				parityCase{
					name:    fmt.Sprintf("strategy %s %v", s, l),
					roots:   dirs("base", "m"),
					id:      "m",
					saltenv: "base",
					change: func(c *Config) {
						c.Strategy = s
						c.MergeLists = l
					},
					opts: map[string]any{"pillar_source_merging_strategy": s, "pillar_merge_lists": l},
				})
		}
	}

	for i, names := range [][]any{
		{"extra", []any{"x"}},
		{"extra", "text", "boom", "x", "em", map[string]any{"z": 1}},
		{"nosuch", 1},
	} {
		for _, first := range []bool{false, true} {
			change, opts := ext(names...)
			opts["ext_pillar_first"] = first
			cases = append(cases,
				parityCase{
					name:     fmt.Sprintf("ext %d %v", i, first),
					roots:    dirs("base", "pt"),
					id:       "m",
					grains:   deb,
					extra:    map[string]any{"e": "md"},
					override: map[string]any{"d": map[string]any{"ov": 1}},
					opts:     opts,
					change:   func(c *Config) { change(c); c.ExtPillarFirst = first },
				})
		}
	}

	return cases
}

// TestParity compiles the same trees with Salt's own Pillar class and here,
// with all cases through the same workers, twice.
func TestParity(t *testing.T) {
	python(t)
	root := tree(t, parityTree)
	parity(t, root, parityCases(root), 2)
}

func parity(t *testing.T, root string, cases []parityCase, rounds int) {
	t.Helper()
	parityWith(t, pools{}, root, cases, rounds)
}

// pools are the renderers of cases by the options of their Python. To start one takes 0.6 s of a
// processor, so cases share it where only our own code obeys the options that differ.
type pools map[string]*renderer.Pool

func parityWith(t *testing.T, started pools, root string, cases []parityCase, rounds int) {
	t.Helper()
	py := python(t)
	var wire []map[string]any
	base := func(opts map[string]any) map[string]any {
		o := map[string]any{
			"id":                "themaster",
			"root_dir":          root,
			"cachedir":          root + "/cache",
			"extension_modules": root + "/ext",
			"file_roots":        map[string]any{"base": []any{root + "/salt"}},
		}

		for k, v := range opts {
			o[k] = v
		}

		return o
	}

	for _, c := range cases {
		o := base(c.opts)
		var roots []string // a JSON object with the order of the case
		order := c.order
		for e := range c.roots {
			if !slices.Contains(order, e) {
				order = append(order, e)
			}
		}

		for _, e := range order {
			roots = append(roots, fmt.Sprintf("%q:%s", e, jsonText(t, c.roots[e])))
		}

		if c.chain != nil {
			o["ext_pillar"] = c.chain
		}
		o["pillar_roots"] = json.RawMessage("{" + strings.Join(roots, ",") + "}")
		w := map[string]any{
			"opts":     o,
			"id":       c.id,
			"grains":   c.grains,
			"override": c.override,
			"extra":    c.extra,
			"fetch":    c.fetch,
			"known":    c.known,
		}

		if c.grains == nil {
			w["grains"] = map[string]any{}
		}

		if c.saltenv != "" {
			w["saltenv"] = c.saltenv
		}

		if c.pillarenv != "" {
			w["pillarenv"] = c.pillarenv
		}

		wire = append(wire, w)
	}

	version, want := oracle(t, py, wire)
	for round := range rounds {
		for i, c := range cases {
			if version < 3008 && len(c.roots) > 1 {
				continue // older releases take environments in the order of a hash
			}

			own := c.opts
			if c.python != nil {
				own = c.python
			}

			over := base(own)
			over["pillar_roots"] = toMap(c.roots)
			if !c.known {
				delete(over, "nodegroups")
			}
			key := jsonText(t, own)
			pool := started[key]
			if pool == nil {
				pool = renderer.New(renderer.Config{
					Python:     []string{py},
					Overrides:  toMap(over).(*value.Map),
					MaxWorkers: 1,
				})
				t.Cleanup(pool.Close)
				started[key] = pool
			}

			cfg := Config{Roots: c.roots, RootOrder: c.order, Renderers: pool}
			if c.chain != nil {
				cfg.ExtPillar = toMap(c.chain).([]any)
			}
			if c.change != nil {
				c.change(&cfg)
			}

			grains, _ := toMap(c.grains).(*value.Map)
			override, _ := toMap(c.override).(*value.Map)
			extra, _ := toMap(c.extra).(*value.Map)
			p, err := New(cfg).Compile(t.Context(),
				Request{
					ID:        c.id,
					Grains:    grains,
					Saltenv:   c.saltenv,
					Pillarenv: c.pillarenv,
					Override:  override,
					Extra:     extra,
				})

			if e, ok := want[i]["error"]; ok {
				t.Logf("%s: Salt itself fails: %v; here: %s %v", c.name, e, plainText(p), err)
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}

			compare(t, fmt.Sprintf("%s (round %d)", c.name, round), p, want[i]["pillar"])
		}
	}
}

// compare checks values and the order of keys. Errors are compared without
// repetitions: Salt reports one several times.
func compare(t *testing.T, name string, got *value.Map, want any) {
	t.Helper()
	var g any
	if err := json.Unmarshal([]byte(jsonText(t, show(got))), &g); err != nil {
		t.Fatal(err)
	}

	gt, wt := jsonText(t, once(g)), jsonText(t, once(want))
	if gt == wt {
		return
	}

	at := 0
	for at < len(gt) && at < len(wt) && gt[at] == wt[at] {
		at++
	}

	from := max(0, at-200)
	t.Errorf("%s: differs at %d\n got …%s\nwant …%s", name, at, gt[from:min(len(gt), at+400)],
		wt[from:min(len(wt), at+400)])
}

// once removes repeated errors, and the places in files that error texts of
// the template engine name.
func once(v any) any {
	m, _ := v.(map[string]any)
	pairs, _ := m["m"].([]any)
	for _, p := range pairs {
		kv := p.([]any)
		if kv[0] == "_errors" {
			var out []any
			for _, e := range kv[1].([]any) {
				if !slices.Contains(out, e) {
					out = append(out, e)
				}
			}
			kv[1] = out
		}
	}

	return v
}
