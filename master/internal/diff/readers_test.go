package diff

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

func readers(t testing.TB, s *Service, pairs ...any) *readersReport {
	t.Helper()
	q, err := questionOf(nil, value.NewMap(pairs...))
	check.Must(t, err)
	report, err := s.Readers(t.Context(), q, func(string) {})
	check.Must(t, err)
	return report
}

// bodies are pieces of SLS without includes. K is a key; each value has FILE in it, so that a value tells
// its file. Pieces of a kind have no map where others have a value.
var bodies = map[string][]string{
	"map":  {"K: {a: FILE, b: FILE}\n", "K: {a: FILE}\n", "K:\n  a: FILE\n  d: {e: FILE}\n"},
	"text": {"K: FILE\n"},
	"list": {"K: [FILE, x-FILE]\n", "K: [FILE]\n"},
}

// templates are such pieces that need a renderer.
var templates = map[string][]string{
	"map":  {"{% from 'lib/map.jinja' import n %}\nK: {a: FILE{{ n }}}\n", "K:\n{% for i in ['a', 'd'] %}\n  {{ i }}x: FILE\n{% endfor %}\n"},
	"text": {"{% if grains.os == 'Debian' %}\nK: FILE\n{% endif %}\n", "{% for i in range(2) %}\nK{{ i }}: FILE\n{% endfor %}\n"},
	"list": {"K: [FILE{{ grains.id }}]\n"},
}

// readerTree is a generated tree: the includes and the rest of each SLS.
type readerTree struct {
	includes, bodies map[string]string
	top              string
}

// makeReaderTree makes a tree. With conflicts some SLS have a map where others have a value.
func makeReaderTree(m maker, conflicts bool, pieces ...map[string][]string) readerTree {
	tree := readerTree{includes: map[string]string{}, bodies: map[string]string{}, top: m.top()}
	for i := range 6 {
		name := fmt.Sprint("s", i)
		keys := m.Perm(6)
		for j := range 1 + m.IntN(3) {
			kind := []string{"map", "text", "list"}[keys[j]%3]
			if conflicts {
				kind = []string{"map", "text", "list"}[m.IntN(3)]
			}
			some := pieces[m.IntN(len(pieces))][kind]
			if conflicts {
				some = append(slices.Clip(some), "K: {}\n")
			}
			tree.bodies[name] += strings.NewReplacer("K", fmt.Sprint("k", keys[j]), "FILE", "from-"+name+"-").Replace(some[m.IntN(len(some))])
		}

		below := "i:a"
		if conflicts {
			below = fmt.Sprintf("k%d:a", m.IntN(6))
		}
		switch m.IntN(6) {
		case 0:
			tree.includes[name] = fmt.Sprintf("include: [s%d, s%d]\n", m.IntN(6), m.IntN(6))
		case 1:
			tree.includes[name] = fmt.Sprintf("include:\n  - s%d: {key: '%s'}\n  - s%d\n", m.IntN(6), below, m.IntN(6))
		}
	}
	return tree
}

// files returns the tree; of the SLS empty only the includes.
func (r readerTree) files(empty string) map[string]string {
	files := map[string]string{"top.sls": r.top, "lib/map.jinja": "{% set n = 1 %}\n"}
	for name, body := range r.bodies {
		files[name+".sls"] = r.includes[name] + body
		if name == empty {
			files[name+".sls"] = r.includes[name]
		}
	}
	return files
}

// leaf is a place of a pillar that is no map: the SLS of which its value has the name, and the value as text.
type leaf struct {
	from []string
	text string
}

// leafPaths adds the leaves of a pillar.
func leafPaths(v any, path string, into map[string]leaf) {
	m, isMap := v.(*value.Map)
	if isMap && m.Len() > 0 {
		for k, x := range m.All() {
			if k != "_errors" {
				leafPaths(x, strings.TrimPrefix(path+":"+value.Str(k), ":"), into)
			}
		}
		return
	}
	text := runner.JSON(v, false)
	var from []string
	for _, found := range regexp.MustCompile(`from-(s\d)-`).FindAllStringSubmatch(text, -1) {
		from = append(from, found[1])
	}
	slices.Sort(from)
	into[path] = leaf{slices.Compact(from), text}
}

// told are the files of a key, by name, those whose values it has, and its value as text where it is compared.
type told struct {
	all, gives []string
	text       string
}

// toldOf returns what Origins says of each leaf of a pillar.
func toldOf(o *pillar.Origins) map[string]told {
	out := map[string]told{}
	add := func(path []string, _ any, sources []pillar.Source) {
		var k told
		for _, s := range sources {
			k.all = append(k.all, o.Files[s.File].SLS)
			if s.Gives {
				k.gives = append(k.gives, o.Files[s.File].SLS)
			}
		}
		slices.Sort(k.all)
		slices.Sort(k.gives)
		out[strings.Join(path, ":")] = k
	}
	o.Leaves(add)
	return out
}

// TestReadersOfGeneratedTrees: in generated trees, a key comes from the files that its values name. Without the
// contents of a file, a key goes for those minions that have it from this file alone, and for no other.
func TestReadersOfGeneratedTrees(t *testing.T) {
	t.Parallel()
	trees, _ := strconv.Atoi(cmp.Or(os.Getenv("N"), "10"))
	seed, _ := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	py := os.Getenv("SALTERN_PYTHON")

	confined := renderer.New(renderer.Config{Python: []string{py}, Overrides: value.NewMap("root_dir", t.TempDir(), "id", "m"), Confined: true})
	defer confined.Close()
	pool := renderer.New(renderer.Config{Python: []string{py}, Overrides: value.NewMap("root_dir", t.TempDir(), "id", "m")})
	defer pool.Close()
	keys := 0
	for i := range trees {
		m := maker{rand.New(rand.NewPCG(seed, uint64(i)))}
		pieces := []map[string][]string{bodies}
		isTemplate := py != "" && i%5 == 0 // Python takes a hundred times as long
		if isTemplate {
			pieces = append(pieces, templates)
		}
		run := &readerRun{T: t, pool: pool, tree: makeReaderTree(m, i%2 == 1, pieces...)}
		run.name = fmt.Sprintf("tree %d (SEED=%d)", i, seed)
		run.change = func(c *pillar.Config) {
			c.Strategy = []string{"smart", "overwrite", "none", "list", "recurse"}[(i/2+i/10)%5]
			if isRemoved := i%2 == 0; isRemoved && c.Strategy == "overwrite" { // then what was replaced does not come back
				c.Strategy = "recurse"
			}
			run.listed = c.Strategy == "list"
			c.MergeLists = i%4 < 2
			c.IncludesOverride = i%5 == 0
		}
		if !isTemplate {
			run.tree.top = strings.ReplaceAll(run.tree.top, "{{ grains.id }}", "m0001")
		}
		s, root := newService(t, run.tree.files(""), manyMinions(6), func(c *Config) { run.change(&c.Pillar) })
		served, err := s.side(t.Context(), Request{readers: true}, What{}, "", confined)
		check.Must(t, err)
		keys += run.compare(served.pillars, root, i%2 == 0 && !run.listed)
	}
	t.Logf("%d keys of %d trees", keys, trees)
}

// readerRun is the test of one tree.
type readerRun struct {
	*testing.T
	name   string
	tree   readerTree
	pool   *renderer.Pool
	change func(*pillar.Config)
	// listed means that the pillars are merged by the strategy list, which adds no key: the pillar has those
	// of the request only.
	listed bool
}

// request returns the request for the pillar of a minion.
func (r *readerRun) request(id string, grains *value.Map) pillar.Request {
	req := pillar.Request{ID: id, Grains: grains}
	if r.listed {
		req.Override = value.NewMap("k0", "x", "k1", []any{"x"}, "k2", value.NewMap("a", "x"), "k3", value.NewMap(), "k4", []any{}, "k5", nil)
	}
	return req
}

// compile returns the leaves of the pillars of all minions.
func (r *readerRun) compile(dir string) map[string]map[string]leaf {
	cfg := pillar.Config{Roots: map[string][]string{"base": {dir}}, Renderers: r.pool}
	r.change(&cfg)
	c := pillar.New(cfg)
	out := map[string]map[string]leaf{}
	for id, grains := range manyMinions(6) {
		p, err := c.Compile(r.Context(), r.request(id, grains))
		check.Must(r, err)
		out[id] = map[string]leaf{}
		leafPaths(p, "", out[id])
	}
	return out
}

// compare compares what Origins says with the pillars, and with those of trees that lack a file if removal is
// set. It returns how many keys it has compared.
func (r *readerRun) compare(c *pillar.Compiler, root string, removal bool) (keys int) {
	found := map[string]map[string]told{}
	pillars := r.compile(root + "/served")
	for id, grains := range manyMinions(6) {
		o, err := c.Origins(r.Context(), r.request(id, grains))
		check.Must(r, err)
		found[id] = toldOf(o)
		for key, want := range pillars[id] {
			var got told
			o.Find(strings.Split(key, ":"), func(_ []string, v any, sources []pillar.Source) {
				got.text = runner.JSON(v, false)
				for _, s := range sources {
					got.all = append(got.all, o.Files[s.File].SLS)
					if s.Gives {
						got.gives = append(got.gives, o.Files[s.File].SLS)
					}
				}
			})
			slices.Sort(got.all)
			slices.Sort(got.gives)
			found[id][key] = got
			isTold := got.all != nil || r.listed && len(want.from) == 0
			isRight := len(want.from) == 0 || slices.Equal(got.gives, want.from)
			if r.listed && !isRight { // an empty map in the list has no name
				isNamed := func(file string) bool { return slices.Contains(got.gives, file) }
				isRight = !slices.ContainsFunc(want.from, func(file string) bool { return !isNamed(file) })
				for _, file := range got.gives {
					isRight = isRight && (slices.Contains(want.from, file) || strings.Contains(r.tree.bodies[file], "{}"))
				}
			}
			if key != "" && !(isTold && isRight && got.text == want.text) {
				r.Fatalf("%s: %s has %s from %v, told %v\n%q", r.name, id, key, want, got, r.tree.files(""))
			}
			keys++
		}
		for key := range found[id] {
			if _, there := pillars[id][key]; !there {
				r.Fatalf("%s: %s has no %s\n%q", r.name, id, key, r.tree.files(""))
			}
		}
	}

	for name := range r.tree.bodies {
		if !removal {
			break
		}
		without := r.compile(write(r, fmt.Sprint(root, "/without-", name), r.tree.files(name)))
		for id, leaves := range pillars {
			for key := range leaves {
				_, stays := without[id][key]
				if alone := slices.Equal(found[id][key].all, []string{name}); key != "" && stays == alone {
					r.Fatalf("%s: without %s, %s of %s stays: %v; told %v\n%q", r.name, name, key, id, stays, found[id][key], r.tree.files(""))
				}
			}
		}
	}
	return keys
}

const (
	firstMessage  = "-----BEGIN PGP MESSAGE-----\n\nhQEMA1st\n=AAAA\n-----END PGP MESSAGE-----\n"
	secondMessage = "-----BEGIN PGP MESSAGE-----\n\nhQEMA2nd\n=BBBB\n-----END PGP MESSAGE-----\n"
)

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// withSecrets is a tree with two PGP messages in a file.
var withSecrets = map[string]string{
	"top.sls":       "base:\n  '*': [common]\n  'os:Debian': [{match: grain}, roles.deb]\n  m0005: [other]\n",
	"common.sls":    "db:\n  port: 1\n  password: M4RK-common\nport: 2\n",
	"roles/deb.sls": "include:\n  - secrets.db\n  - common:\n      key: copy\nport: 3\n",
	"secrets/db.sls": "#!yaml|gpg\ndb:\n  password: |\n  " + strings.ReplaceAll(indent(firstMessage), "\n  ", "\n    ") + "\nother: |\n" +
		indent(secondMessage),
	"other.sls": "#!yaml|gpg\nagain: \"x " + strings.ReplaceAll(firstMessage, "\n", `\n`) + "\"\n",
}

// TestReaders: the answers to each kind of question, none of which has a value.
func TestReaders(t *testing.T) {
	t.Parallel()
	s, root := newService(t, withSecrets, manyMinions(6), func(c *Config) {
		c.Pillar.ExtPillar = []any{value.NewMap("cmd_yaml", "cat /x")}
	})
	note := "the ext_pillar \"cmd_yaml\" is not run: what it gives is not told\n"
	common := root + "/served/common.sls"
	for _, tt := range []struct {
		name  string
		pairs []any
		code  int
		want  string
	}{
		{"a key of two files", []any{"key", "db:password"}, codeRead, "db:password: 6 of 6 minions get it\n" + note + `
db:password: 3 minions: m0000, m0002, m0004
  replaced: common ` + common + `:3
    top of base: *
    top of base: os:Debian > roles.deb (below copy)
  secrets.db ` + root + `/served/secrets/db.sls:3
    top of base: os:Debian > roles.deb

db:password: 3 minions: m0001, m0003, m0005
  common ` + common + `:3
    top of base: *
`},
		{"below a key of an include", []any{"key", "copy:*:password"}, codeRead, "copy:*:password: 3 of 6 minions get it\n" + note + `
copy:db:password: 3 minions: m0000, m0002, m0004
  common ` + common + `:3
    top of base: *
    top of base: os:Debian > roles.deb (below copy)
`},
		{"nobody", []any{"key", "nosuch"}, codeUntold, "nosuch: 0 of 6 minions get it\n" + note},
		{"a file", []any{"file", "secrets/db.sls", "tgt", "x"}, codeRead, "secrets/db.sls: 3 of 6 minions get it\n" + note + `
3 minions: m0000, m0002, m0004
  secrets.db ` + root + `/served/secrets/db.sls
    top of base: os:Debian > roles.deb
    gives db, other
`},
		{"a message", []any{"file", "secrets.db", "block", 2}, codeRead, "PGP message 2 of secrets.db: 3 of 6 minions get it\n" + note + `
other: 3 minions: m0000, m0002, m0004
  secrets.db ` + root + `/served/secrets/db.sls:10
    top of base: os:Debian > roles.deb
`},
		{"another file's message", []any{"file", "other", "block", "all"}, codeRead, "the PGP messages of other: 1 of 6 minions get it\n" + note + `
again: m0005
  other ` + root + `/served/other.sls:2
    top of base: m0005
`},
		{"no such message", []any{"file", "other", "block", 2}, codeUntold, "PGP message 2 of other: 0 of 6 minions get it\n" + note +
			root + "/served/other.sls: it has 1 PGP messages\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report := readers(t, s, tt.pairs...)
			if text := report.Text(false); text != tt.want || report.Code() != tt.code {
				t.Errorf("code %d, got\n%s\nwant\n%s", report.Code(), text, tt.want)
			}
			if all := report.Text(true) + runner.JSON(report.Data(), false); strings.Contains(all, "M4RK") || strings.Contains(all, "hQEMA") {
				t.Errorf("it has a value: %s", all)
			}
		})
	}

	for want, pairs := range map[string][]any{
		"name a key":           {},
		"needs file=":          {"key", "x", "block", 1},
		"number of a PGP":      {"file", "x", "block", -1},
		"too many parts":       {"key", strings.Repeat("x:", 100)},
		"unexpected keyword":   {"nosuch", 1},
		"is too long":          {"key", strings.Repeat("x", 5000)},
		"format is":            {"key", "x", "format", "junit"},
		"takes 8 arguments":    nil,
		"number of a PGP mess": {"file", "x", "block", "1; rm"},
	} {
		args := []any{}
		if pairs == nil {
			args = make([]any, 9)
		}
		if _, err := questionOf(args, value.NewMap(pairs...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", pairs, err)
		}
	}
}

// TestReadersOfTemplates: a file that a template imports has the readers of the template; what has an effect
// is not run, and named.
func TestReadersOfTemplates(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, map[string]string{
		"top.sls":       "base: {'*': [web, loop], 'm0001': [users], 'm0002': [hidden]}\n",
		"web.sls":       "{% if grains.os == 'Debian' %}{% from 'lib/map.jinja' import n %}\nport: {{ n }}\n{% endif %}\n",
		"loop.sls":      "{% for i in [1, 2] %}\nkey{{ i }}: {{ grains.id }}\n{% endfor %}\nother: 1\n",
		"users.sls":     "{{ salt['cmd.run']('touch MARK') }}\nuser: 1\n",
		"hidden.sls":    "{{ salt[grains.role ~ 'M4RK'[:1] ~ '4RK.x']() }}\nuser: 1\n",
		"lib/map.jinja": "{% set n = 80 %}\n",
	}, manyMinions(4), nil)

	for name, tt := range map[string]struct{ pairs, want []any }{
		"import": {[]any{"file", "lib/map.jinja"}, []any{"lib/map.jinja: 2 of 4 minions", "2 minions: m0000, m0002\n  web ", "gives port", "imports " + root + "/served/lib/map.jinja"}},
		"loop":   {[]any{"key", "key2"}, []any{"key2: 4 of 4", "loop " + root + "/served/loop.sls\n", "users calls cmd.run; 1 minions, such as m0001"}},
		"line":   {[]any{"key", "other"}, []any{"served/loop.sls:4\n"}},
		"untold": {[]any{"key", "user", "tgt", "*"}, []any{"user: 0 of 4", "users calls cmd.run", "hidden calls what the template computes"}},
	} {
		report := readers(t, s, tt.pairs...)
		for _, want := range tt.want {
			if text := report.Text(false); !strings.Contains(text, want.(string)) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if name == "untold" && report.Code() != codeUntold {
			t.Errorf("code %d", report.Code())
		}
	}
}

// TestReadersOfGit: each source has the commit that has touched its line last.
func TestReadersOfGit(t *testing.T) {
	t.Parallel()
	s, up := gitService(t, func(up *gitrepo.Repo) {
		up.Commit("master", "web.sls", "port: 80\nhost: a\n")
	})
	first := strings.TrimSpace(up.Git("rev-parse", "master~1"))
	second := strings.TrimSpace(up.Git("rev-parse", "master"))
	for key, commit := range map[string]string{"port": first, "host": second} {
		report := readers(t, s, "key", key)
		if len(report.Groups) != 1 {
			t.Fatalf("%s", report.Text(false))
		}
		o := report.Groups[0].origins[0]
		if o.change.Commit != commit || o.path != "web.sls" || !strings.Contains(report.Text(false), o.remote+" web.sls:") {
			t.Errorf("%s: %+v, want %s\n%s", key, o, commit, report.Text(false))
		}
	}
	if o := readers(t, s, "file", "web").Groups[0].origins[0]; o.change.Commit != second || o.line != 0 {
		t.Errorf("the file: %+v", o)
	}
}
