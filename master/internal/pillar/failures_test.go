package pillar

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/check"
	"saltern/test/logged"
)

// TestErrorsQuoteNoValues: what is logged and compared of an error of Jinja, Python or YAML has none of the
// values that the error's own text quotes.
func TestErrorsQuoteNoValues(t *testing.T) {
	list, err := os.ReadFile("testdata/quoting.txt")
	check.Must(t, err)
	files := map[string]string{
		"top.sls":   "base:\n  '*': ['s*']\n",
		"given.sls": "a: {{ b }}\n",
		"lib.jinja": "{% macro call(name) %}{{ salt[name]() }}{% endmacro %}\n{% macro look(name) %}{{ {}[name] }}{% endmacro %}\n",
		"slit.sls":  "{% set x = {} %}\na: {{ x.shown_name }}\n",
	}
	for i, form := range strings.Split(string(list), "\n") {
		if form == "" || form[0] == '#' {
			continue
		}
		form = strings.ReplaceAll(form, `\n`, "\n")
		secret := fmt.Sprintf("M4RK%02dzqx", i)
		name := fmt.Sprintf("s%02d", i)
		set := "{% set p = '" + secret + "' %}"
		files[name+"a.sls"] = set + "\nb: {{ p }}\na: " + form + "\n"
		if i < 6 { // on one line with the value
			files[name+"b.sls"] = set + "{{ 'x." + secret + "'}}: 1\n" + set + "a: " + form + " {# x." + secret + " #}\n"
		}
		if strings.Contains(form, "{{ p }}") { // plain YAML, which Go reads
			files[name+"c.sls"] = "#!yaml\nb: " + secret + "\na: " + strings.ReplaceAll(form, "{{ p }}", secret) + "\n"
		}
	}
	root := tree(t, files)

	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 1,
		Overrides:  value.NewMap("id", "themaster", "root_dir", root),
	})
	t.Cleanup(pool.Close)

	lines := &logged.Buffer{}
	served := New(Config{Roots: base(root), Renderers: pool, Log: slog.New(slog.NewTextHandler(lines, nil))})
	said := fmt.Sprintln(compile(t, served, Request{}).Value("_errors"))
	compared := New(Config{Roots: base(root), Renderers: pool, Compare: &Compare{Confined: true}})
	out, err := compared.Outcome(t.Context(), Request{ID: "web1", Grains: value.NewMap()}, nil, nil)
	check.Must(t, err)
	said += fmt.Sprintln(out.Pillar.Value("_errors")) + lines.String()
	for _, r := range out.Refused {
		said += fmt.Sprintln(r.SLS, r.Reason)
	}

	for line := range strings.Lines(said) {
		if at := strings.Index(line, "M4RK"); at >= 0 {
			t.Errorf("a value is shown: %s", line[max(0, at-200):min(len(line), at+100)])
		}
	}
	for _, want := range []string{"no attribute 'shown_name'", "no attribute (hidden)", "calls what the template computes"} {
		if !strings.Contains(said, want) {
			t.Errorf("not said: %q", want)
		}
	}
}

// TestConflictingKeyIsHidden: a key that occurs twice is not shown, whatever quotes it holds.
func TestConflictingKeyIsHidden(t *testing.T) {
	for _, key := range []string{"it's hunter2", "a' hunter2 'b", "'hunter2", "two\nhunter2"} {
		text := fmt.Sprintf("found conflicting ID '%v'", key)
		if shown := quotedText.ReplaceAllStringFunc(text, hideQuoted); strings.Contains(shown, "hunter2") {
			t.Errorf("%q is shown as %q", text, shown)
		}
	}
}
