package conf

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"saltern/master/value"
)

func write(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(strings.ReplaceAll(text, "@DIR@", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// loader is a Loader that does not look at this machine.
func loader() *Loader {
	return &Loader{
		Hostname:  func() (string, error) { return "box", nil },
		HostsFile: "/nonexistent",
	}
}

// jsonForm turns decoded YAML into what encoding/json would have decoded.
func jsonForm(t testing.TB, v any) any {
	b, err := json.Marshal(goForm(v))
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func goForm(v any) any {
	switch v := v.(type) {
	case *value.Map:
		m := make(map[string]any, v.Len())
		for k, x := range v.All() {
			m[fmt.Sprint(k)] = goForm(x)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i := range v {
			l[i] = goForm(v[i])
		}
		return l
	case *big.Int:
		return json.Number(v.String())
	}

	return v
}

func TestGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}

	var cases []struct {
		Name  string
		Files map[string]string
		Opts  map[string]any
		Gone  []string
	}

	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}

	base := cases[0].Opts
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := write(t, c.Files)
			l := loader()
			l.Tool = c.Name == "backends" // a master refuses those that it does not serve
			m, err := l.Load(dir)
			if err != nil {
				t.Fatal(err)
			}

			got := jsonForm(t, m.Raw).(map[string]any)
			text, _ := json.Marshal(got)
			got = nil
			if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), dir, "@DIR@")), &got); err != nil {
				t.Fatal(err)
			}

			want := make(map[string]any, len(base))
			for k, v := range base {
				want[k] = v
			}

			for k, v := range c.Opts {
				want[k] = v
			}

			for _, k := range c.Gone {
				delete(want, k)
			}

			for k, w := range want {
				if g, ok := got[k]; !ok || !reflect.DeepEqual(g, w) {
					t.Errorf("%s: got %v, Salt has %v", k, got[k], w)
				}
			}

			for k := range got {
				if _, ok := want[k]; !ok && k != "user" && k != "ssh_config_file" && k != "worker_pools" &&
					k != "features" {
					t.Errorf("%s: got %v, Salt has no such option: one of our own has no default in options.txt",
						k, got[k])
				}
			}
		})
	}
}

// Every field must have an option with a type, and every default must fit
// its field.
func TestFieldsMatchOptions(t *testing.T) {
	known := builtin().options
	for field, name := range optionFields() {
		if name == "" {
			t.Errorf("field %s has no option", field.Name)
		} else if known[name].types == nil {
			t.Errorf("option %s has no type", name)
		}
	}

	opts, err := builtin().defaults()
	if err != nil {
		t.Fatal(err)
	}

	fillFields(new(Master), opts, func(o string, err error) { t.Errorf("default of %s: %v", o, err) })
}
