package renderer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"saltern/master/value"
)

// What lies in the working directory of the master is nothing to Python.
func TestFinding20Nursery(t *testing.T) {
	py, err := filepath.Abs(python(t))
	if err != nil {
		t.Fatal(err)
	}

	hostile, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	for _, name := range []string{"msgpack.py", "struct.py", "salt.py", "yaml.py", "usercustomize.py"} {
		text := "open(" + strconv.Quote(mark) + ", 'a').write(__file__ + '\\n')\nraise ImportError('hostile')\n"
		if err := os.WriteFile(filepath.Join(hostile, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	t.Chdir(hostile)
	p, _ := pool(t, nil, func(c *Config) {
		c.Python = []string{py}
		c.Env = append(os.Environ(), "PYTHONPATH="+hostile, "PYTHONSTARTUP="+hostile+"/msgpack.py")
	})

	got, err := render(t, p, "web1", value.NewMap(), "a: {{ 1 + 1 }}\n")
	m, _ := got.(*value.Map)
	if err != nil || m == nil {
		t.Fatalf("rendered %v, %v", got, err)
	}

	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("imported from the working directory: %s", b)
	}

	if cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.nursery.PID()), "cwd")); err != nil || cwd != "/" {
		t.Errorf("the renderers work in %q, %v", cwd, err)
	}
}

// TestModuleThatForks: a worker answers each request once, although a module forks and both processes
// come back. A second answer would be taken for that to the next request.
func TestModuleThatForks(t *testing.T) {
	p, _ := pool(t, map[string]string{"ext/modules/forks.py": "import os\ndef run():\n    os.fork()\n    return ''\n"}, nil)
	s, err := p.Session(t.Context(), Minion{ID: "web1", Grains: value.NewMap()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	for n := range 3 {
		for _, text := range []string{
			fmt.Sprintf("n: %d{{ salt['forks.run']() }}\n", 2*n),
			fmt.Sprintf("n: %d\n", 2*n+1),
		} {
			got, err := s.Render(t.Context(), Template{Text: text, Pillar: true, SLS: "test"})
			if m, _ := got.(*value.Map); err != nil || !strings.HasPrefix(text, fmt.Sprint("n: ", m.Value("n"))) {
				t.Errorf("%q is rendered as %v, %v", text, got, err)
			}
		}
	}
}
