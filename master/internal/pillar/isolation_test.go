package pillar

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// TestMinionsDoNotMix compiles for many minions at once over few workers and
// looks for one's secrets in another's pillar.
func TestMinionsDoNotMix(t *testing.T) {
	root := tree(t, map[string]string{
		"p/top.sls":           "base:\n  '*': [jinja, py, plain]\n{% if grains.get('role') %}\n  'role:{{ grains.role }}':\n    - match: grain\n    - byrole\n{% endif %}\n",
		"p/jinja.sls":         "a: {{ grains.secret }}\nb: {{ salt['grains.get']('secret') }}\nc: {{ opts.id }}\nd: {{ salt['seen.it']() }}\n",
		"p/py.sls":            "#!py\ndef run():\n    return {'e': __grains__['secret'], 'f': __opts__['id'], 'g': __salt__['grains.get']('secret'), 'h': __salt__['seen.it']()}\n",
		"p/plain.sls":         "plain: [1, {x: 1}]\n",
		"p/byrole.sls":        "role: {{ grains.role }}\n",
		"ext/modules/seen.py": "_ALL = []\ndef it():\n    _ALL.append(__grains__['secret'])\n    __context__.setdefault('seen', []).append(__grains__['secret'])\n    return ' '.join(_ALL + __context__['seen'])\n",
		"ext/pillar/ep.py":    "def ext_pillar(minion_id, pillar, *a):\n    return {'i': minion_id, 'j': __grains__['secret'], 'k': pillar['a'], 'l': __salt__['seen.it']()}\n",
	})

	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 2,
		Overrides: value.NewMap("id", "themaster", "root_dir", root, "extension_modules", root+"/ext",
			"pillar_roots", value.NewMap("base", []any{root + "/p"}), "ext_pillar", []any{value.NewMap("ep", nil)}),
	})

	t.Cleanup(pool.Close)
	c := New(Config{Roots: base(root + "/p"), Renderers: pool, ExtPillar: []any{value.NewMap("ep", nil)}})
	secret := func(i int) string { return fmt.Sprintf("SECRET%02dX", i) }
	first := make([]string, 12)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range first {
		wg.Go(func() {
			for range 4 {
				id := fmt.Sprintf("min%02d", i)
				g := value.NewMap("secret", secret(i))
				if i%3 == 0 {
					g.Set("role", "r"+id)
				}

				text := plainText(compile(t, c, Request{ID: id, Grains: g}))
				for j := range first {
					if j != i && (strings.Contains(text, secret(j)) ||
						strings.Contains(text, fmt.Sprintf("min%02d", j))) {
						t.Errorf("minion %d sees minion %d: %s", i, j, text)
					}
				}

				if strings.Count(text, secret(i)) < 8 || strings.Contains(text, "_errors") ||
					strings.Contains(text, "role:r"+id) != (i%3 == 0) {
					t.Errorf("minion %d: %s", i, text)
				}

				mu.Lock()
				if first[i] == "" {
					first[i] = text
				} else if first[i] != text {
					t.Errorf("minion %d gets different pillars:\n%s\n%s", i, first[i], text)
				}
				mu.Unlock()
			}
		})
	}

	wg.Wait()
	if s := pool.Stats(); s.Forks > 2 || s.Sessions != 48 {
		t.Errorf("%+v", s)
	}
}
