package renderer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"saltern/master/value"
	"saltern/test/await"
)

// oneWorker is a pool in which all sessions have the same process.
func oneWorker(t testing.TB, files map[string]string, fresh bool) (*Pool, string) {
	return pool(t, files, func(c *Config) {
		c.MaxWorkers = 1
		c.SessionsPerWorker = 1 << 30
		c.Fresh = fresh
	})
}

// said is what came of a template, without what differs from one process to the next, and
// without the calls that led to an error.
func said(v any, err error) string {
	if err != nil {
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		return addresses.ReplaceAllString("error: "+lines[0]+" ... "+lines[len(lines)-1], "0x")
	}
	return addresses.ReplaceAllString(fmt.Sprint(plain(v)), "0x")
}

var addresses = regexp.MustCompile("0x[0-9a-f]+|slab[^/]*|/tmp/[^/]*")

// TestNothingIsKeptOfClockChanceOrFiles: Jinja computes what is constant while it makes the
// code of a template, so that the code holds the hour, a random text, or what a file was.
func TestNothingIsKeptOfClockChanceOrFiles(t *testing.T) {
	p, root := oneWorker(t, map[string]string{"file": "before"}, false)
	file := filepath.Join(root, "file")
	for name, text := range map[string]string{
		"clock":         "x: {{ 'now'|strftime('%S') }}",
		"clock, nested": "x: {{ ['a', 'now'|strftime('%S')]|join }}",
		"clock, mapped": "x: {{ ['now']|map('strftime', '%S')|join }}",
		"chance":        "x: {{ 16|random_str }}",
		"shuffled":      "x: {{ '0123456789abcdef'|list|random_shuffle|join }}",
		"file":          "x: {{ '" + file + "'|file_hashsum }}",
	} {
		t.Run(name, func(t *testing.T) {
			first := said(render(t, p, "a", nil, text))
			if strings.HasPrefix(first, "error") {
				t.Fatal(first)
			}

			if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}

			await.That(t, "another value than "+first,
				func() bool { return said(render(t, p, "b", nil, text)) != first })
		})
	}
}

// TestKeptCodeIsBounded keeps more templates than the bounds allow. The memory that Python measures
// must be less than the memory that the cache has counted.
func TestKeptCodeIsBounded(t *testing.T) {
	script, err := os.ReadFile("testdata/bound.py")
	if err != nil {
		t.Fatal(err)
	}

	out, err := exec.CommandContext(t.Context(), python(t), "-c", readsScript+jinjaCodeScript+string(script)).Output()
	if err != nil {
		t.Fatal(err)
	}

	shapes := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(shapes) != 4 {
		t.Fatalf("%d kinds of templates: %s", len(shapes), out)
	}

	for _, shape := range shapes {
		var entries, counted, took int
		name, figures, _ := strings.Cut(shape, "\t")
		if _, err := fmt.Sscan(figures, &entries, &counted, &took); err != nil {
			t.Fatal(err)
		}

		if entries == 0 || entries > 30 || counted > 300_000 || took > counted {
			t.Errorf("%s: %d templates, %d bytes are counted, %d are taken; the bounds are 30 and 300,000",
				name, entries, counted, took)
		}
	}
}

// TestOwnFilterTakesPlace: code that was made with Salt's filter is not for a filter of the
// same name that somebody else brings later.
func TestOwnFilterTakesPlace(t *testing.T) {
	p, _ := oneWorker(t, map[string]string{"ext/modules/loud.py": `
from salt.utils.decorators.jinja import jinja_filter
def load():
    jinja_filter("upper")(lambda x: "loud " + x)
    return 1
`}, false)

	for _, want := range []string{"map[x:A]", "map[x:A]", "map[x:1]", "map[x:loud a]", "map[x:loud a]"} {
		text := "x: {{ 'a'|upper }}"
		if want == "map[x:1]" {
			text = "x: {{ salt['loud.load']() }}"
		}
		if got := said(render(t, p, "m", nil, text)); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// templates makes templates of parts that Jinja treats in ways of their own.
type templates struct{ *rand.Rand }

func (r templates) one(of ...string) string { return of[r.IntN(len(of))] }

func (r templates) value(depth int) string {
	if depth <= 0 {
		return r.one("1", "0", "-3", "2.5", "'a'", "'B c'", "''", "none", "true", "[]", "{}", "('x', 'y')",
			"grains.id", "grains['role']", "grains.tags", "grains.nosuch", "pillar", "i", "x", "'%s'",
			"'<&>'")
	}

	v := func() string { return r.value(depth - 1 - r.IntN(2)) }
	switch r.IntN(9) {
	case 0:
		return "[" + v() + ", " + v() + "]"
	case 1:
		return "{'k': " + v() + ", 'l': " + v() + "}"
	case 2:
		return "(" + v() + r.one(" ~ ", " + ", " * ", " in ", " == ", " and ", " or ", " % ") + v() + ")"
	case 3:
		return "(" + v() + ")" + r.one("[0]", ".k", "['l']", "[1:]")
	case 4:
		return "(" + v() + " if " + v() + " else " + v() + ")"
	case 5:
		return "(" + v() + " is " + r.one("defined", "none", "string", "mapping", "list", "odd",
			"match('a')", "equalto(1)", "nosuch") + ")"
	default:
		return "(" + v() + ")|" + r.one("upper", "lower", "join('-')", "length", "default('d')", "default('d', true)", "tojson", "json", "yaml", "first", "last", "replace('a', 'b')", "sort", "list|unique", "int", "string",
			"regex_replace('a', 'b')", "sequence", "to_bool", "quote", "md5", "indent", "map('upper')|list", "select('defined')|list", "is_ip", "nosuch", "load_yaml", "dictsort", "batch(2)|list", "combinations(2)|list", "yaml_dquote")
	}
}

func (r templates) body(depth int) string {
	out := ""
	for range 1 + r.IntN(3) {
		dash, dash2 := r.one("", "", "-"), r.one("", "", "-")
		open, end := "{%"+dash+" ", " "+dash2+"%}"
		switch k := r.IntN(8); {
		case k == 0 && depth > 0:
			out += open + "if " + r.value(1) + end + r.body(depth-1) + open + "else" + end +
				r.body(depth-1) + open + "endif" + end
		case k == 1 && depth > 0:
			out += open + "for i in " + r.value(1) + end + r.body(depth-1) + open + "endfor" + end
		case k == 2:
			out += open + "set x = " + r.value(2) + end
		case k == 3 && depth > 0:
			out += open + "macro m(i, x=" + r.value(0) + ")" + end + r.body(depth-1) + open + "endmacro" +
				end + "{{ m(" + r.value(1) + ") }}"
		case k == 4:
			out += "{# " + r.one("a", "{{ x }}", "b\n") + " #}"
		case k == 5:
			out += open + "import_yaml 'map.yaml' as x" + end
		case k == 6:
			out += open + "from 'lib.jinja' import twice" + end + "{{ twice(" + r.value(1) + ") }}"
		default:
			out += r.one("a ", "  ", "\n", "ü") + "{{" + dash + " " + r.value(3) + " " + dash2 + "}}"
		}
	}

	return out
}

// generated returns how many templates a test makes, usual unless SALTERN_TEMPLATES says more, and
// their source, of the seed SALTERN_TEMPLATES_SEED.
func generated(t *testing.T, usual int) (count int, random *rand.Rand) {
	count, err := strconv.Atoi(os.Getenv("SALTERN_TEMPLATES"))
	if err != nil {
		count = usual
	}

	seed, err := strconv.ParseUint(os.Getenv("SALTERN_TEMPLATES_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}

	t.Logf("seed %d", seed)
	return count, rand.New(rand.NewPCG(seed, 1))
}

// templatesInSession is how many templates one session of TestKeptCode renders.
const templatesInSession = 50

// TestKeptCode renders random templates for three minions in one process, which makes the code of
// each once, and in one that makes it each time.
func TestKeptCode(t *testing.T) {
	count, random := generated(t, 60)
	r := templates{random}
	files := map[string]string{
		"pillar/map.yaml":  "k: {{ grains.id }}\nl: [1, 2]\n",
		"pillar/lib.jinja": "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}",
	}

	kept, _ := oneWorker(t, files, false)
	fresh, _ := oneWorker(t, files, true)
	rendered := 0
	for done := 0; done < count; done += templatesInSession {
		var bodies, heads []string
		for range min(templatesInSession, count-done) {
			bodies = append(bodies, r.body(2))
			heads = append(heads, r.one("", "", "#jinja2: {\"trim_blocks\": true}\n",
				"#jinja2: {\"lstrip_blocks\": true, \"trim_blocks\": true}\n",
				"#jinja2: {\"variable_start_string\": \"{=\"}\n"))
		}

		for minion := range 3 {
			g := value.NewMap("id", fmt.Sprint("m", minion), "role", r.one("web", "db"), "tags", []any{"a", fmt.Sprint(minion)})
			inKept, inFresh := session(t, kept, g), session(t, fresh, g)
			for i, body := range bodies {
				text := "#!jinja\n" + heads[i] + body
				if minion == 1 {
					text = "#!jinja\n" + body
				}

				template := Template{Text: text, Pillar: true, SLS: "test"}
				got := said(inKept.Render(t.Context(), template))
				want := said(inFresh.Render(t.Context(), template))
				if got != want {
					t.Errorf("minion %d of\n%s\nhas %s\nwant %s", minion, text, got, want)
				}
				if !strings.HasPrefix(want, "error") {
					rendered++
				}
			}
			inKept.Close()
			inFresh.Close()
		}
	}

	if rendered < count/2 {
		t.Errorf("only %d of %d templates can be rendered", rendered, 3*count)
	}
	t.Logf("%d of %d are rendered", rendered, 3*count)
}

func session(t *testing.T, p *Pool, grains *value.Map) *Session {
	t.Helper()
	s, err := p.Session(t.Context(), Minion{ID: grains.Str("id"), Grains: grains})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
