package diff

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// pieces of SLS; K is a key, N a number.
var pieces = []string{
	"K: N\n",
	"K: {a: N, b: [N, 2], c: {d: x}}\n",
	"K: {a: N}\n",
	"K: [N, {x: 1}]\n",
	"K: true\n", "K: 1.0\n", "K: ''\n", "K: {}\n", "K: null\n", "1: N\n", "true: N\n",
	"K_password: p4ssw0rd-N\n",
	"K: {token: t0k3n-N, port: N}\n",
	"K: {{ grains.os }}-N\n",
	"K: {{ grains['ip'] }}\n",
	"K: {{ salt['grains.get']('role') }}\n",
	"{% if grains.os == 'Debian' %}\nK: N\n{% endif %}\n",
	"{% for i in range(3) %}\nK{{ i }}: {{ i + N }}\n{% endfor %}\n",
	"{% from 'lib/map.jinja' import n %}\nK: {{ n }}\n",
	"{% import_yaml 'lib/data.yaml' as data %}\nK: {{ data[grains.os] }}\n",
	"include: [s0]\nK: N\n",
	"include:\n  - s1:\n      key: K\n      defaults: {d: N}\n",
	"include: [gone]\nK: N\n",
	"{# a comment #}\nK: N\n",
	"K: {{ nosuch.x }}\n",
	"K: {{ salt['test.echo'](N) }}\n",
	"K: {{ salt['cmd.run']('echo N') }}\n",
	"{% if grains.role == 'r1' %}\nK: {{ salt['test.echo']('x') }}\n{% endif %}\n",
	"#!yaml\nK: N\n",
}

// maker makes pillar trees.
type maker struct{ *rand.Rand }

func (m maker) sls() string {
	var text strings.Builder
	for range 1 + m.IntN(3) {
		piece := pieces[m.IntN(len(pieces))]
		if strings.HasPrefix(piece, "#!") || strings.HasPrefix(piece, "include") {
			piece = pieces[m.IntN(10)]
		}
		text.WriteString(strings.NewReplacer("K", fmt.Sprint("k", m.IntN(6)), "N", fmt.Sprint(m.IntN(4))).Replace(piece))
	}
	return text.String()
}

func (m maker) piece() string {
	return strings.NewReplacer("K", fmt.Sprint("k", m.IntN(6)), "N", fmt.Sprint(m.IntN(4))).Replace(pieces[m.IntN(len(pieces))])
}

func (m maker) tree() map[string]string {
	files := map[string]string{
		"lib/map.jinja": fmt.Sprintf("{%% set n = %d %%}\n", m.IntN(3)),
		"lib/data.yaml": fmt.Sprintf("Debian: %d\nRedHat: %d\n", m.IntN(3), m.IntN(3)),
	}
	for i := range 5 {
		files[fmt.Sprintf("s%d.sls", i)] = m.sls()
		if m.IntN(3) == 0 {
			files[fmt.Sprintf("s%d.sls", i)] = m.piece()
		}
	}
	files["top.sls"] = m.top()
	return files
}

func (m maker) top() string {
	top := "base:\n"
	for i, target := range []string{"'*'", "'m000[0-2]'", "'os:Debian'", "'role:r1'", "{{ grains.id }}"} {
		if m.IntN(3) == 0 && i > 0 {
			continue
		}
		top += fmt.Sprintf("  %s:\n    - s%d\n    - s%d\n", target, m.IntN(6), m.IntN(5))
		if strings.Contains(target, ":") {
			top += "    - match: grain\n"
		}
	}
	return top
}

// changed returns the tree after a commit.
func (m maker) changed(files map[string]string) map[string]string {
	next := with(files)
	for range 1 + m.IntN(3) {
		switch m.IntN(5) {
		case 0:
			next["top.sls"] = m.top()
		case 1:
			next["lib/map.jinja"] = fmt.Sprintf("{%% set n = %d %%}\n", m.IntN(3))
		case 2:
			delete(next, fmt.Sprintf("s%d.sls", m.IntN(5)))
		default:
			next[fmt.Sprintf("s%d.sls", m.IntN(5))] = m.sls()
		}
	}
	return next
}

// leaves flattens a pillar, independently of what compares.
func leaves(v any, path string, into map[string]string) {
	m, ok := v.(*value.Map)
	if !ok || m.Len() == 0 {
		into[path] = fmt.Sprintf("%T %s", v, runner.JSON(v, false))
		return
	}
	for k, x := range m.All() {
		leaves(x, strings.TrimPrefix(path+":"+value.Str(k), ":"), into)
	}
}

func without(p *value.Map, key string) *value.Map {
	p = p.Clone()
	p.Delete(key)
	return p
}

// TestEqualsPillarsBeforeAndAfter: what a comparison reports is what differs between the pillars
// that the master serves before and after a merge, in generated trees.
func TestEqualsPillarsBeforeAndAfter(t *testing.T) {
	t.Parallel()
	py := python(t)
	trees, _ := strconv.Atoi(cmp.Or(os.Getenv("N"), "6"))
	seed, _ := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	minions := manyMinions(6)
	told := 0
	pool := renderer.New(renderer.Config{Python: []string{py}, Overrides: value.NewMap("root_dir", t.TempDir(), "id", "m")})
	defer pool.Close()
	for i := range trees {
		m := maker{rand.New(rand.NewPCG(seed, uint64(i)))}
		before := m.tree()
		after := m.changed(before)
		trusted := i%2 == 1
		s, root := newService(t, before, minions, func(c *Config) { c.Trusted = trusted })
		dir := write(t, root+"/after", after)
		r, err := requestOf("pillar.diff", nil, value.NewMap("folder", dir))
		check.Must(t, err)
		report, err := s.Compare(t.Context(), r, func(string) {})
		check.Must(t, err)

		compile := func(dir, id string) map[string]string {
			c := pillar.New(pillar.Config{Roots: map[string][]string{"base": {dir}}, Renderers: pool})
			p, err := c.Compile(t.Context(), pillar.Request{ID: id, Grains: minions[id]})
			check.Must(t, err)
			flat := map[string]string{}
			leaves(without(p, "_errors"), "", flat)
			return flat
		}

		if len(report.Refused) > 0 {
			continue // what is left out may be a part of any pillar
		}

		found := map[string][]change{}
		for _, g := range report.Groups {
			for _, id := range g.minions {
				found[id] = g.changes
			}
		}
		for id := range minions {
			told++
			a, b := compile(root+"/served", id), compile(dir, id)
			if why := disagree(a, b, found[id]); why != "" {
				t.Errorf("tree %d (SEED=%d, trusted %v), %s: %s\nbefore %v\nafter %v\nfiles %q\n%q\n%s", i, seed, trusted, id, why, a, b,
					before, after, report.Text(false))
				break
			}
		}
	}
	if told < trees {
		t.Errorf("only %d pillars were compared", told)
	}
	t.Logf("%d pillars of %d trees", told, trees)
}

// disagree returns in what way changes are not the difference between two pillars, or "".
func disagree(a, b map[string]string, changes []change) string {
	covered := func(leaf string) bool {
		for _, c := range changes {
			if leaf == c.path || strings.HasPrefix(leaf, c.path+":") || c.path+":" == leaf+":" {
				return true
			}
		}
		return false
	}
	differs := map[string]bool{}
	for leaf, v := range a {
		if w, there := b[leaf]; !there || v != w {
			differs[leaf] = true
		}
	}
	for leaf := range b {
		if _, there := a[leaf]; !there {
			differs[leaf] = true
		}
	}

	for leaf := range differs {
		// An empty map that gets a key is a change of the key.
		emptied := strings.HasSuffix(a[leaf], " {}") || strings.HasSuffix(b[leaf], " {}")
		if !covered(leaf) && !emptied {
			return "nothing is reported of " + leaf
		}
	}
	for _, c := range changes {
		real := c.path == "_errors"
		for leaf := range differs {
			real = real || leaf == c.path || strings.HasPrefix(leaf, c.path+":")
		}
		if !real {
			return "reported, but not different: " + c.path
		}
	}
	return ""
}
