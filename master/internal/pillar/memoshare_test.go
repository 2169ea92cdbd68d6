package pillar

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/logged"
)

// otherPythons are those of older releases of Salt beside SALTERN_PYTHON, with
// which the memo is to work as well.
func otherPythons(t *testing.T) []string {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(python(t)), "../../salt-300*/bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		all = []string{python(t)}
	}
	return all
}

// TestMemoShares has a template for each feature of Jinja and Salt: which are
// recorded, and that what is for one minion only is known as that, with every
// release of Salt that is there.
func TestMemoShares(t *testing.T) {
	for _, program := range otherPythons(t) {
		release := filepath.Base(filepath.Dir(filepath.Dir(program)))
		t.Run(release, func(t *testing.T) { testMemoShares(t, program) })
	}
}

func testMemoShares(t *testing.T, program string) {
	var log logged.Buffer
	root := t.TempDir()
	m := &treeMaker{Rand: rand.New(rand.NewPCG(1, 1))}
	files := m.files()
	var names []string
	for _, of := range []struct {
		kind string
		list []string
	}{{"shared", pieces}, {"alone", alone}, {"altering", altering}, {"chancy", chancy}} {
		for i := range of.list {
			names = append(names, fmt.Sprintf("%s%d", of.kind, i))
			files[fmt.Sprintf("p/%s%d.sls", of.kind, i)] = m.piece(of.list[i : i+1])
		}
	}

	writeTree(t, root, files)
	pool := renderer.New(renderer.Config{
		Python:         []string{program},
		MaxWorkers:     1,
		RequestTimeout: time.Hour,
		Overrides: value.NewMap("id", "themaster", "root_dir", root, "cachedir", root+"/cache",
			"pillar_roots", value.NewMap("base", []any{root + "/p"})),
	})

	t.Cleanup(pool.Close)
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, name := range names {
		log.Reset()
		store := memo.New(memo.Config{})
		c := New(Config{Roots: base(root + "/p"), Renderers: pool, ExtPillarFirst: true, Memo: store, Log: logger})
		if err := os.WriteFile(filepath.Join(root, "p/top.sls"), []byte("base:\n  '*': ["+name+"]\n"),
			0o644); err != nil {
			t.Fatal(err)
		}

		text := files["p/"+name+".sls"]
		for range 2 {
			grains, pillar := m.minion(0)
			compile(t, c, Request{ID: "min0", Grains: grains, Override: pillar})
		}

		s := store.Stats()

		// These are rendered for each minion as well, or fail; the others show that most is not.
		except := slices.ContainsFunc([]string{"sameas", "ignore missing", "mine_", "numbers"},
			func(s string) bool { return strings.Contains(text, s) })
		switch {
		case strings.HasPrefix(name, "shared") && !except && (s.Hits != 1 || s.Misses != 1 || s.Alone != 0):
			t.Errorf("it is not shared: %s\n%+v\n%.2000s", text, s, log.String())
		case !strings.HasPrefix(name, "shared") && (s.Hits != 0 || s.Misses != 0 || s.Alone < 2):
			t.Errorf("it is taken for shared: %s\n%+v", text, s)
		}
	}
}

// TestMemoAltered has templates that change grains, the pillar or options, in ways of
// their own, before one that could be shared: that one is rendered with what they
// did, as without a memo.
func TestMemoAltered(t *testing.T) {
	const reader = "site: {{ grains.get('site', 'gone') }}\ntags: {{ grains['tags'] | tojson }}\nport: {{ salt['pillar.get']('app:port', 'none') }}\nlists: {{ salt['pillar.get']('app', {'names': ['b']}, merge=True) | tojson }}\n"
	changes := map[string]string{
		"grains.update": "{% do grains.update({'site': 'changed'}) %}\nx: 1\n", "pop": "{% set x = grains.pop('site', 'gone') %}\nx: 1\n",
		"append": "{% do grains['tags'].append('changed') %}\nx: 1\n", "pillar": "{% do salt['pillar.get']('app').update({'port': 'changed'}) %}\nx: 1\n",
		"fails": "{% do grains['tags'].append('changed') %}\nx: {{ nosuch.y }}\n", "py": "#!py\ndef run():\n    __grains__['site'] = 'changed'\n    return {}\n",
		"pypillar": "#!py\ndef run():\n    __pillar__['app'] = {'port': 'changed'}\n    return {}\n", "opts": "{% do opts.update({'pillar_merge_lists': True}) %}\nx: 1\n", "template's pillar": "{% do pillar['app'].update({'port': 'changed'}) %}\nx: 1\n", "whole pillar": "{% do pillar.update({'app': {}}) %}\nx: 1\n",
		"from inside": "x: {{ salt['grains.setval']('site', 'changed') | string | length > 0 }}\n",
		"nothing":     "x: {{ salt['test.echo'](1) }}\n",
	}

	for _, program := range otherPythons(t) {
		root := t.TempDir()
		pool := renderer.New(renderer.Config{
			Python:         []string{program},
			MaxWorkers:     1,
			RequestTimeout: time.Hour,
			Overrides: value.NewMap("id", "themaster", "root_dir", root, "cachedir", root+"/cache",
				"pillar_roots", value.NewMap("base", []any{root + "/p"})),
		})

		t.Cleanup(pool.Close)
		m := &treeMaker{}
		for name, text := range changes {
			writeTree(t, root,
				map[string]string{
					"p/top.sls":    "base:\n  '*': [first, second]\n",
					"p/first.sls":  text,
					"p/second.sls": reader,
					"p/third.sls":  reader,
				})

			store := memo.New(memo.Config{})
			cfg := Config{Roots: base(root + "/p"), Renderers: pool, ExtPillarFirst: true}
			off := New(cfg)
			cfg.Memo = store
			on := New(cfg)

			// The result of the second SLS is known, of a pillar without the first one.
			alone := New(Config{Roots: cfg.Roots, Renderers: pool, ExtPillarFirst: true, Memo: store, Top: "alone.sls"})
			if err := os.WriteFile(root+"/p/alone.sls", []byte("base:\n  '*': [second]\n"), 0o644); err != nil {
				t.Fatal(err)
			}

			req := func() Request {
				grains, pillar := m.minion(0)
				return Request{ID: "min0", Grains: grains, Override: pillar}
			}

			before := plainText(compile(t, alone, req()))
			for range 2 {
				if a, b := packed(t, compile(t, on, req())), packed(t, compile(t, off, req())); a != b {
					t.Errorf("%s, %s: with memo\n%s\nwithout\n%s", program, name, a, b)
				}
			}

			if after := plainText(compile(t, alone, req())); after != before {
				t.Errorf("%s, %s: what one pillar changed is in another: %s instead of %s", program, name,
					after, before)
			}

			// Some changes are seen by no other template, which depends on the release.
			s := store.Stats()
			sure := slices.Contains([]string{"grains.update", "pop", "append", "fails", "py", "pillar"}, name)
			if name == "nothing" && s.Hits != 3 || sure && s.Hits != 0 {
				t.Errorf("%s, %s: %+v", program, name, s)
			}
		}
	}
}
