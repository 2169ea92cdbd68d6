package pillar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

func TestWithoutComments(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: 1\n", "a: 1\n"},
		{"a: {# x #}1\n", "a: 1\n"},
		{"a: {# {{ x }} {% if #}1\n", "a: 1\n"},
		{"a: 1 {#- x #}\n", "a: 1\n"},
		{"a: {# x -#}\n  1\n", "a: 1\n"},
		{"a: 1\n{#- x -#}\n", "a: 1\n"},
		{"a: {#-#}1", "a:1"},
		{"a: {#--#} 1", "a:1"},
		{"a: {#+ x +#} 1", "a:  1"},
		{"{# a\nb #}\n\n", "\n\n"},
		{"a: '#}'\n", "a: '#}'\n"},
		{"{a: {b: 1}}", "{a: {b: 1}}"},
	} {
		if got, ok := withoutComments(c.text); !ok || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.text, got, ok, c.want)
		}
	}

	for _, text := range []string{"{{ x }}", "{% x %}", "{# x", "{# x #}{{ y }}", "a{# x #}{# y", "{{a: b}}", "{#- #"} {
		if got, ok := withoutComments(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestCommentsNeedNoPython: a pillar whose templates have only comments is as Salt renders it, and
// starts no Python.
func TestCommentsNeedNoPython(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	one := func(of ...string) string { return of[r.IntN(len(of))] }

	files := map[string]string{"p/top.sls": "base: {# all #}\n  '*':\n    {#- minions #}\n    - s*\n"}
	for i := range 120 {
		text := one("", "", "#!jinja|yaml\n", "#!yaml_jinja\n", "{# head #}")
		for j := range 1 + r.IntN(4) {
			text += fmt.Sprintf("k%d-%d:", i, j) + one(" ", "\n  ", " ")
			for range r.IntN(3) {
				text += one("", " ", "\n  ", "\u00a0") + one("{#", "{#-", "{#+", "{#--") +
					one(" x ", " {{ y }} ", " {% if %} ", "\n", " # } ", "#", "-", "ü", "") + one("#}", "-#}", "+#}", "--#}") + one("", " ", "\n  ", "-")
			}
			text += one("1", "'{ # }'", "[a, {b: c}]", "x") + one("\n", " {# end #}\n", "\n\n", "{#- end -#}\n")
		}
		files[fmt.Sprintf("p/s%d.sls", i)] = text
	}

	root := tree(t, files)
	pillars := make([]*value.Map, 2)
	for way, fresh := range []bool{false, true} {
		pool := renderer.New(renderer.Config{
			Python:     []string{python(t)},
			MaxWorkers: 1,
			Overrides:  value.NewMap("root_dir", root, "id", "m", "pillar_roots", value.NewMap("base", []any{root + "/p"})),
		})
		t.Cleanup(pool.Close)

		// With TrimJinja the compiler leaves all to Python, where jinja_trim_blocks is not set.
		c := New(Config{Roots: base(root + "/p"), Renderers: pool, TrimJinja: fresh})
		pillars[way] = compile(t, c, Request{})
		if starts := pool.Stats().Starts; !fresh && starts != 0 && len(pillars[0].List("_errors")) == 0 {
			t.Errorf("Python was started %d times", starts)
		}
	}

	for way := range pillars {
		if errs := pillars[way].List("_errors"); len(errs) > 100 {
			t.Errorf("%d of 120 files cannot be rendered: %v", len(errs), errs[0])
		}
	}
	if got, want := jsonText(t, show(pillars[0])), jsonText(t, show(pillars[1])); got != want {
		t.Errorf("%s\nSalt's %s\nof %s", got, want, strings.Join(fileTexts(files), "\n----\n"))
	}
}

func fileTexts(files map[string]string) (texts []string) {
	for name, text := range files {
		texts = append(texts, name+": "+text)
	}
	return texts
}
