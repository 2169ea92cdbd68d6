package diff

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/check"
)

// fleet is a Fleet of minions with grains.
type fleet map[string]*value.Map

func (f fleet) Match(any, string) ([]string, error) { return slices.Sorted(maps.Keys(f)), nil }

func (f fleet) Groups() *value.Map { return value.NewMap("ours", "I@role:web*") }

func (f fleet) Grains(id string) (*value.Map, bool) {
	g, ok := f[id]
	return g, ok
}

func manyMinions(n int) fleet {
	f := fleet{}
	for i := range n {
		f[fmt.Sprintf("m%04d", i)] = value.NewMap("os", []any{"Debian", "RedHat"}[i%2], "role", fmt.Sprint("r", i%10), "ip", fmt.Sprint("10.0.0.", i))
	}
	return f
}

// python returns a Python with Salt's library, or skips.
func python(t testing.TB) string {
	p := os.Getenv("SALTERN_PYTHON")
	if p == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library")
	}
	return p
}

func write(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// newService returns a Service for a tree of files that is served.
func newService(t testing.TB, served map[string]string, minions fleet, change func(*Config)) (*Service, string) {
	t.Helper()
	root := t.TempDir()
	write(t, root+"/served", served)
	cfg := Config{
		Pillar: pillar.Config{
			Roots: map[string][]string{"base": {root + "/served"}},
			Opts:  value.NewMap(),
			Now:   func() time.Time { return time.Now().Add(time.Minute) }, // files have settled
		},
		Renderer: renderer.Config{Python: []string{os.Getenv("SALTERN_PYTHON")}, Overrides: value.NewMap("root_dir", root, "id", "m")},
		Fleet:    minions,
		Dir:      root + "/work",
		Folders:  []string{root},
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), root
}

// compareFolder compares other files with those that are served.
func compareFolder(t testing.TB, s *Service, root string, files map[string]string) *Report {
	t.Helper()
	dir := write(t, filepath.Join(root, fmt.Sprint("other", time.Now().UnixNano())), files)
	r, err := requestOf("pillar.diff", nil, value.NewMap("folder", dir))
	check.Must(t, err)
	report, err := s.Compare(t.Context(), r, func(string) {})
	check.Must(t, err)
	return report
}

func with(files map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(files)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

var served = map[string]string{
	"top.sls":    "base:\n  '*': [common]\n  'os:Debian': [{match: grain}, deb]\n",
	"common.sls": "web: {port: 80, workers: 4}\ndb_password: S3CR3T-old\n",
	"deb.sls":    "apt: true\n",
	"rpm.sls":    "rpm: true\n",
}

func TestGroupsOfPlainFiles(t *testing.T) {
	t.Parallel()
	s, root := newService(t, served, manyMinions(6), nil)
	report := compareFolder(t, s, root, with(served,
		"common.sls", "web: {port: 8080, workers: 4}\ndb_password: S3CR3T-new\n",
		"top.sls", served["top.sls"]+"  'os:RedHat': [{match: grain}, rpm]\n"))

	want := `/other compared with what is served: 6 of 6 minions differ, in 2 groups

3 minions: m0000, m0002, m0004
  ~ web:port: 80 → 8080
  ~ db_password: "(hidden)" changes

3 minions: m0001, m0003, m0005
  + SLS rpm
  ~ web:port: 80 → 8080
  ~ db_password: "(hidden)" changes
  + rpm: true
`
	got := report.Text(false)
	if _, rest, _ := strings.Cut(got, " compared"); "/other compared"+rest != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if report.Code() != codeDiffers {
		t.Errorf("code %d", report.Code())
	}

	if same := compareFolder(t, s, root, served); same.Code() != codeSame || same.Differing > 0 {
		t.Errorf("the same files: %s", same.Text(false))
	}
}

func TestRefusedTemplates(t *testing.T) {
	t.Parallel()
	python(t)
	marker := filepath.Join(t.TempDir(), "ran")
	s, root := newService(t, served, manyMinions(4), nil)
	hostile := map[string]string{
		"cmd":    "x: {{ salt['cmd.run']('touch " + marker + "') }}\n",
		"write":  "x: {{ salt['file.write']('" + marker + "', 'x') }}\n",
		"alias":  "{% set s = salt %}x: {{ s['cmd.run']('touch " + marker + "') }}\n",
		"py":     "#!py\nimport os\ndef run():\n    os.system('touch " + marker + "')\n    return {}\n",
		"escape": "x: {{ ''.__class__.__mro__[1].__subclasses__() }}\n",
		"lipsum": "x: {{ lipsum.__globals__['os'].popen('touch " + marker + "').read() }}\n",
		"cycler": "x: {{ cycler.__init__.__globals__.os.system('touch " + marker + "') }}\n",
		"filter": "x: {{ 'touch' | random_hash }}{{ '/etc/passwd' | file_hashsum }}\n",
		"debian": "{% if grains.os == 'Debian' %}x: {{ salt['cmd.run']('touch " + marker + "') }}{% else %}y: 1{% endif %}\n",
	}
	files := with(served)
	for name, text := range hostile {
		files[name+".sls"] = text
		files["top.sls"] += fmt.Sprintf("  'm000* or %s': [%s]\n", name, name)
	}

	report := compareFolder(t, s, root, files)
	text := report.Text(false)
	if _, err := os.Stat(marker); err == nil {
		t.Errorf("a template ran a command:\n%s", text)
	}
	for _, name := range []string{"cmd calls cmd.run", "write calls file.write", "py is rendered by py", "alias uses salt as a whole"} {
		if !strings.Contains(text, "\n  "+name) {
			t.Errorf("the report lacks %q:\n%s", name, text)
		}
	}
	if strings.Contains(text, "root:") {
		t.Errorf("the report shows a file of the host:\n%s", text)
	}
	t.Log(text)
}
