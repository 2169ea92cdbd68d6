package pillar

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStandsInCode: a name in the code of a template counts, and one in texts, comments and lists does not.
func TestStandsInCode(t *testing.T) {
	inCode := []string{
		"{{ NAME }}", "{{ a.NAME.b }}", "{%- if NAME is defined -%}", "{{ {'a': {}}.NAME }}", "{{ 'x'.NAME }}",
		"{{ a['NAME'] }}", `{{ a[ "NAME" ].b }}`, "{{ f(x)['NAME'] }}", "{{ a['b']['NAME'] }}", "{# '#}{{ NAME }}",
		"{% raw %}{{{% endraw %}{{ NAME }}", "{{ '}}' ~ NAME }}", "{{ a | NAME }}", "{{ '\\'' ~ NAME }}", "{{ a.in['NAME'] }}",
	}
	elsewhere := []string{
		"NAME", "{# NAME #}", "{{ 'NAME' }}", `{{ "a.NAME" }}`, "{{ ['NAME'] }}", "{{ x in ['NAME'] }}", "{{ x in['NAME'] }}",
		"{{ f('NAME') }}", "{{ {'NAME': 1} }}", "{% raw %}{{ NAME }}{% endraw %}", "{{ xNAME }}", "{{ NAMEx }}",
		"{{ 'a' \"{{ NAME }}\" }}", "{% set p = 'NAME' %}", "{% include['NAME'] %}", "{# {{ #}NAME{# }} #}", "{{ a['\\NAME'] }}",
		"{{ '\\'NAME' }}", "{{ a['NAME' ~ b] }}", "{{ a, ['NAME'] }}", "#jinja2: {}\n{{ NAME }}", "{{ x", "{% raw %}{{ NAME }}",
	}

	for i, form := range append(inCode, elsewhere...) {
		text := "\n" + strings.ReplaceAll(form, "NAME", "hunter2")
		line := 2 + strings.Count(form, "\n")
		want := i < len(inCode)
		for at, want := range map[int]bool{line: want, 0: want, 1: false, 3: false} {
			if got := standsInCode(text, "hunter2", at); got != want && !(at == 3 && line == 3) {
				t.Errorf("%q at line %d: %v", text, at, got)
			}
		}
	}

	// Pieces that leave nothing open can stand beside each other.
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"x", "\n", "{{ a.b }}\n", "{# '\" #}", "{% if a['b'] == \"}}\" %}", "{% raw %}{{ {# {% endraw %}", "{{ '{{' }}"}
	for range 2000 {
		var text strings.Builder
		for range random.IntN(8) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		line := 1 + strings.Count(text.String(), "\n")
		want := random.IntN(2) == 0
		form := elsewhere[random.IntN(len(elsewhere)-3)]
		if want {
			form = inCode[random.IntN(len(inCode))]
		}
		text.WriteString(strings.ReplaceAll(form, "NAME", "hunter2"))
		if got := standsInCode(text.String(), "hunter2", line); got != want {
			t.Fatalf("%q at line %d: %v", text.String(), line, got)
		}
	}

	if !standsInCode("{{ salt.cmd.run('x') }}", "cmd.run", 0) || !standsInCode("{{ salt['cmd.run']('x') }}", "cmd.run", 0) {
		t.Error("the function that a template calls is not found")
	}
}

// FuzzStandsInCode: no template takes the scanner's time or makes it fail.
func FuzzStandsInCode(f *testing.F) {
	f.Add("{{ a['b'] }}{% raw %}", "b")
	f.Add("{{ \"", "b")
	f.Fuzz(func(t *testing.T, text, name string) {
		if standsInCode(text, name, 0) && !strings.Contains(text, name) && !strings.Contains(name, ".") {
			t.Errorf("%q in %q", name, text)
		}
	})
}
