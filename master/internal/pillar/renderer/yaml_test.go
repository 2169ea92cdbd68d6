package renderer

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
)

// sls generates texts that templates of pillars render, and also some that nobody would write.
type sls struct {
	templates
	tame *bool // the present text is one that a template could render
}

func (r sls) scalar() string {
	if *r.tame {
		return r.one("1", "0", "-3", "2.5", "a", "b c", "''", `"x y"`, "'it''s'", `"tab\t\u263a"`, "yes", "No", "on", "null", "~", "",
			"0644", "1e3", "1.5e+3", "1:30", "1:30:45", "0x1F", "0b11", "1_000", ".5", ".inf", "-0", "+1", "08", "2026-01-02", "10.0.0.1",
			"10.0.0.0/8", "::1", "http://x.y/z?a=b&c=d", "a#b", "a # c", "'*'", "a!", "[]", "{}", "[1, two, 'three']",
			"{k: v, 'l': [1]}", "ü", "😀", "a\u00a0b", "'yes'", "\"1\"", "--", "|\n        x\n          y", ">-\n        folded\n        text\n\n        end",
			"|2\n          x", "plain\n        goes on", "p4ss%word!&*", strconv.Itoa(r.IntN(1<<30)), strconv.FormatFloat(r.NormFloat64()*1e5, 'g', -1, 64))
	}
	return r.one("1", "0", "-3", "2.5", "a", "b c", "''", `"x y"`, "'it''s'", `"tab\t\u263a"`, "yes", "No", "on", "null", "~", "", "none",
		"0644", "0o14", "1e3", "1.5e+3", "1:30", "1:30:45", "0x1F", "0b11", "1_000", ".5", ".inf", ".nan", "-0", "+1", "08",
		"2026-01-02", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "10.0.0.1",
		"10.0.0.0/8", "::1", "fe80::1", "http://x.y/z?a=b&c=d", "a#b", "a # c", "*glob", "'*'", "&anchor x", "!tag x", "!", "! 1",
		"a!", "a: b", "- x", "@x", "`x", "%x", "=", "<<", "? x", "|", ">", "{{ x }}", "[]", "{}", "[1, two, 'three']",
		"{k: v, 'l': [1]}", "{a}", "[a, , b]", "[a", "ü", "😀", "a\u2028b", "a\u00a0b", "\"\\/\"", "x\ty", "'yes'", "\"1\"", "-", "--", "---", "...",
		"| # comment\n        x\n          y", ">-\n        folded\n        text\n\n        end", "|2\n          x", "plain\n        goes on",
		"ENC[x]", "p4ss%word!&*", "-----BEGIN X-----", strconv.Itoa(r.IntN(1<<30)), strconv.FormatFloat(r.NormFloat64()*1e5, 'g', -1, 64))
}

func (r sls) key() string {
	if *r.tame {
		return r.one("a", "b", "c", "d", "role", "'quoted'", "1", "true", "0644", "a b", "x:y") + "-"[:r.IntN(2)] + strconv.Itoa(r.IntN(99))
	}
	return r.one("a", "b", "c", "d", "e", "role", "'quoted'", `"q"`, "1", "1.0", "true", "yes", "null", "0644", "a b", "x:y", "[1]", "*x",
		"key-"+strconv.Itoa(r.IntN(9)), "key-"+strconv.Itoa(r.IntN(9)))
}

// value is the value of a key, or an item, at an indentation.
func (r sls) value(depth, indent int) string {
	pad := "\n" + strings.Repeat(" ", indent)
	k := r.IntN(8)
	switch {
	case depth == 0 || k < 4:
		return " " + r.scalar()
	case k < 6:
		out := ""
		for range 1 + r.IntN(3) {
			out += pad + r.key() + ":" + r.value(depth-1, indent+2)
		}
		return out
	default:
		out := ""
		for range 1 + r.IntN(3) {
			out += pad + "-" + r.value(depth-1, indent+2)
		}
		return out
	}
}

func (r sls) text() string {
	if *r.tame = r.IntN(4) > 0; *r.tame {
		out := r.one("", "", "# comment\n", "---\n", "\n\n")
		for range 1 + r.IntN(6) {
			out += r.key() + ":" + r.value(3, 2) + r.one("\n", "\n", "\n\n", "  \n", " # end\n")
		}
		return out
	}

	out := r.one("", "", "", "# comment\n", "---\n", "\n\n", "%YAML 1.2\n---\n", "\ufeff")
	for range r.IntN(4) {
		out += r.key() + r.one(":", ":", ":", ":", " :") + r.value(2, 2) + r.one("\n", "\n", "\n", "\n\n", "  \n", " # end\n", "\r\n", "")
	}
	return out + r.one("", "", "", "...\n", "\t\n", "--- \nb: 1\n")
}

// TestYAMLInGo: Go reads the text that Jinja has rendered as Salt's loader does, and an error is in
// Salt's words.
func TestYAMLInGo(t *testing.T) {
	texts, random := generated(t, 150)
	r := sls{templates{random}, new(bool)}
	p, _ := oneWorker(t, nil, false)
	s, err := p.Session(t.Context(), Minion{ID: "m", Grains: value.NewMap("id", "m")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	load := func(text string, fresh bool) string {
		v, err := s.Render(t.Context(), Template{
			Text:    "#!jinja|yaml\n{{ text }}\n",
			SLS:     "x",
			Saltenv: "base",
			Pillar:  true,
			Fresh:   fresh,
			Context: value.NewMap("text", text),
		})
		if err != nil {
			return said(nil, err)
		}
		return value.Repr(v)
	}

	compare := func(text string) {
		want := load(text, true)
		for _, what := range []string{"read", "kept"} {
			if fast := load(text, false); fast != want {
				t.Errorf("%q\n gives %s when it is %s\nSalt's %s", text, fast, what, want)
			}
		}
	}

	for _, text := range goldenTexts(t) {
		compare(text)
	}

	before := p.Stats()
	for range texts {
		compare(r.text())
	}

	now := p.Stats()
	inGo := (now.YAMLInGo - before.YAMLInGo) / 2
	t.Logf("%d of %d are read in Go, %d left to Python", inGo, texts, (now.YAMLInPython-before.YAMLInPython)/2)
	if inGo < uint64(texts)/4 {
		t.Errorf("only %d of %d texts are read in Go", inGo, texts)
	}
}

// goldenTexts are the texts for which package saltyaml is compared with Salt.
func goldenTexts(t *testing.T) (texts []string) {
	b, err := os.ReadFile("../../../saltyaml/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}

	var golden struct{ Load []struct{ In string } }
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}

	for _, c := range golden.Load {
		texts = append(texts, c.In)
	}

	return texts
}

// TestYAMLOfOthersStaysInPython: Go reads a text only if Salt's own jinja and yaml renderers render
// the template, and not if another template calls for it.
func TestYAMLOfOthersStaysInPython(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		text  string
		want  string
		inGo  uint64
	}{
		"both Salt's": {text: "#!jinja|yaml\na: {{ 1 + 1 }}\n", want: "map[a:2]", inGo: 1},
		"old name":    {text: "#!yaml_jinja\na: {{ 1 + 1 }}\n", want: "map[a:2]", inGo: 1},
		"own yaml": {
			files: map[string]string{"ext/renderers/yaml.py": "def render(data, saltenv='base', sls='', **kw):\n    return {'own': data.read()}\n"},
			text:  "#!jinja|yaml\na: {{ 1 + 1 }}\n",
			want:  "map[own:#!jinja|yaml\na: 2\n]",
		},
		"a third step": {text: "#!jinja|yaml|gpg\na: {{ 1 + 1 }}\n", want: "map[a:2]"},
		"other steps":  {text: "#!yaml\na: 2\n", want: "map[a:2]"},
		"json":         {text: "#!jinja|json\n{\"a\": {{ 1 + 1 }}}\n", want: "error"},
		"a template in a template": {
			text: "#!jinja|yaml\na: {{ salt['slsutil.renderer'](string='#!jinja|yaml\\nb: 3\\n').b + 1 }}\n",
			want: "map[a:4]",
			inGo: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := oneWorker(t, c.files, false)
			got := said(render(t, p, "m", nil, c.text))
			want := c.want
			if want == "error" {
				fresh, _ := oneWorker(t, c.files, true)
				want = said(render(t, fresh, "m", nil, c.text))
			}

			if got != want || p.Stats().YAMLInGo != c.inGo {
				t.Errorf("%s, %d read in Go; want %s, %d", got, p.Stats().YAMLInGo, want, c.inGo)
			}
		})
	}
}

// TestLargeTextStaysInPython: a text that would take much of the master's memory is read in a
// worker, be it long or of many values.
func TestLargeTextStaysInPython(t *testing.T) {
	p, _ := oneWorker(t, nil, false)
	for _, c := range []struct{ name, value string }{
		{"long", "{{ 'x' * 200000 }}"},
		{"many values", "[{{ '1,' * 20000 }}1]"},
	} {
		got, err := render(t, p, "m", nil, "#!jinja|yaml\n{% for i in range(9) %}k{{ i }}: "+c.value+"\n{% endfor %}")
		if err != nil {
			t.Fatal(err)
		}

		m, ok := got.(*value.Map)
		if !ok || m.Len() != 9 || p.Stats().YAMLInGo != 0 {
			t.Errorf("%s: %.100s, %d read in Go", c.name, fmt.Sprint(got), p.Stats().YAMLInGo)
		}
	}
}

// TestTextIsReadOnce: the value of a text is kept for the next minion whose template renders the same
// text, and dropped with the last Python.
func TestTextIsReadOnce(t *testing.T) {
	p, _ := pool(t, nil, func(c *Config) {
		c.MaxWorkers = 1
		c.WorkerIdle = 50 * time.Millisecond
		c.IdleStop = 50 * time.Millisecond
	})
	for i, want := range []string{"map[role:web]", "map[role:web]", "map[role:db]"} {
		role := strings.TrimSuffix(strings.TrimPrefix(want, "map[role:"), "]")
		got := said(render(t, p, fmt.Sprint("m", i), value.NewMap("role", role), "#!jinja|yaml\nrole: {{ grains.role }}\n"))
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	if st := p.Stats(); st.YAMLInGo != 3 {
		t.Errorf("%d of 3 texts are read in Go", st.YAMLInGo)
	}
	await.That(t, "the end of Python", func() bool { return !p.Stats().Running })
	if st := p.yamlStore().Stats(); st.Results > 0 || st.Bytes > 0 {
		t.Errorf("%d values are left", st.Results)
	}
}
