package python

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	made "saltern/test/wheel"
)

// node is a place with Salt's own Python.
func node(t *testing.T) Place {
	t.Helper()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("NOT TESTED: SALTERN_PYTHON names no Python with Salt")
	}

	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) { // the account nobody reads it
		if fi, err := os.Stat(d); err == nil && fi.Mode().Perm()&0o055 != 0o055 {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}

	shared := filepath.Join(dir, "etc", "python")
	if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
		t.Fatal(err)
	}

	return Place{
		Shared:  shared,
		Node:    shared,
		Layers:  filepath.Join(dir, "layers"),
		Pythons: []string{"/nowhere/python", python},
	}
}

func (p Place) add(t *testing.T, files ...string) {
	t.Helper()
	if _, err := p.Add(t.Context(), Addition{Files: files}); err != nil {
		t.Fatal(err)
	}
}

// imports reports whether a Python of the node imports a module.
func (p Place) imports(t *testing.T, module string) bool {
	t.Helper()
	script := "import sys; sys.path.append(sys.argv[1]); import " + module
	return exec.Command(p.Pythons[1], "-I", "-c", script, filepath.Join(p.Layers, Current)).Run() == nil
}

func (p Place) names(t *testing.T) (names []string) {
	t.Helper()
	items, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		names = append(names, i.Name)
	}
	return names
}

func TestAddListRemove(t *testing.T) {
	p := node(t)
	dir := t.TempDir()
	base := made.Wheel{
		Name:    "saltern-base",
		Version: "1.0",
		Files:   map[string]string{"saltern_base.py": "x = 1\n"},
	}.Write(t, dir)

	top := made.Wheel{
		Name:     "saltern-top",
		Version:  "1.0",
		Files:    map[string]string{"saltern_top/__init__.py": "import saltern_base\n"},
		Requires: []string{"saltern_base>=1", "jinja2", "nothing; extra == 'more'"},
	}.Write(t, dir)

	if err := p.Renew(t.Context()); err != nil {
		t.Errorf("without packages: %v", err)
	}

	if _, err := p.Add(t.Context(), Addition{Files: []string{top}}); err == nil ||
		!strings.Contains(err.Error(), "needs saltern_base>=1, which is not there") {
		t.Errorf("without what it needs: %v", err)
	}

	p.add(t, top, base)
	if err := p.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}

	items, err := p.List()
	if err != nil || len(items) != 2 || !items[0].Here || items[0].Name != "saltern-base" || !items[1].Asked {
		t.Errorf("%+v %v", items, err)
	}

	if !p.imports(t, "saltern_top") {
		t.Error("it is not imported")
	}

	before := p.inService()
	if _, err := p.Remove(t.Context(), []string{"saltern.base"}); err == nil ||
		!strings.Contains(err.Error(), "remove both") {
		t.Errorf("removed what another needs: %v", err)
	}

	if _, err := p.Remove(t.Context(), []string{"saltern-other"}); err == nil {
		t.Error("removed what is not there")
	}

	// Another version takes the place of the one of now.
	p.add(t,
		made.Wheel{
			Name:    "saltern-base",
			Version: "2.0",
			Files:   map[string]string{"saltern_base.py": "x = 2\n", "saltern_two.py": ""},
		}.Write(t, dir))

	if err := p.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}

	if !p.imports(t, "saltern_two") || p.inService() == before {
		t.Error("the new version is not in service")
	}

	if _, err := os.Stat(filepath.Join(p.Layers, before)); err != nil {
		t.Errorf("who has loaded half of the old packages has lost them: %v", err)
	}

	gone, err := p.Remove(t.Context(), []string{"Saltern_Top"})
	if err != nil || len(gone) != 1 {
		t.Errorf("%+v %v", gone, err)
	}

	if names := p.names(t); !slices.Equal(names, []string{"saltern-base"}) {
		t.Errorf("%v", names)
	}

	if _, err := p.Remove(t.Context(), []string{"saltern-base"}); err != nil {
		t.Fatal(err)
	}

	if err := p.Renew(t.Context()); err != nil || p.inService() != "" || p.imports(t, "saltern_base") {
		t.Errorf("all is removed: %v %q", err, p.inService())
	}

	if wheels, err := os.ReadDir(filepath.Join(p.Shared, wheelsDir)); err != nil || len(wheels) != 0 {
		t.Errorf("%v %v", wheels, err)
	}

	left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.Layers), ScratchPrefix+"*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Packages that come from a folder bring what they need, and what came with one
// goes with it. Nothing is built.
func TestAddByName(t *testing.T) {
	p := node(t)
	dir := t.TempDir()
	t.Setenv("PIP_FIND_LINKS", "")
	made.Wheel{Name: "saltern-base", Version: "1.0", Files: map[string]string{"saltern_base.py": ""}}.Write(t, dir)
	made.Wheel{Name: "saltern-base", Version: "2.0", Files: map[string]string{"saltern_base.py": ""}}.Write(t, dir)
	made.Wheel{
		Name:     "saltern-new",
		Version:  "1.0",
		Files:    map[string]string{"saltern_new.py": ""},
		Requires: []string{"jinja2>=99"},
	}.Write(t, dir)

	made.Wheel{
		Name:     "saltern-top",
		Version:  "1.0",
		Files:    map[string]string{"saltern_top.py": ""},
		Requires: []string{"saltern-base<2", "salt>=3006"},
	}.Write(t, dir)

	add := func(names ...string) ([]Package, error) {
		a := Addition{From: dir}
		for _, n := range names {
			a.Names = append(a.Names, Requirement{Text: n})
		}
		return p.Add(t.Context(), a)
	}

	refused := errors.New("no")
	if _, err := p.Add(t.Context(),
		Addition{From: dir, Names: []Requirement{{Text: "saltern-top"}}, Agree: func(fresh []Package) error {
			if len(fresh) != 2 {
				t.Errorf("%+v", fresh)
			}
			return refused
		}}); !errors.Is(err, refused) || len(p.names(t)) > 0 {
		t.Errorf("%v %v", err, p.names(t))
	}

	fresh, err := add("saltern-top")
	if err != nil || len(fresh) != 2 {
		t.Fatalf("%+v %v", fresh, err)
	}

	for _, k := range fresh {
		if k.Asked != (k.Name == "saltern-top") || k.Name == "saltern-base" && k.Version != "1.0" {
			t.Errorf("%+v", k)
		}
	}

	for name, want := range map[string]string{
		"saltern-new":       "jinja2",
		"jinja2":            "has it already",
		"/etc/passwd":       "neither a wheel",
		"-rother":           "neither",
		"saltern-base==2.0": "",
	} {
		if _, err := add(name); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	a := Addition{From: dir, Names: []Requirement{{Text: "saltern-top", Hashes: []string{strings.Repeat("0", 64)}}}}
	if _, err := p.Add(t.Context(), a); err == nil {
		t.Error("another hash is taken")
	}

	if gone, err := p.Remove(t.Context(), []string{"saltern-top"}); err != nil || len(gone) != 2 {
		t.Errorf("%+v %v", gone, err)
	}
}

// What would take the place of something of Salt's is refused, and nothing
// changes.
func TestRefusals(t *testing.T) {
	p := node(t)
	dir := t.TempDir()
	p.add(t,
		made.Wheel{
			Name:    "saltern-mine",
			Version: "1.0",
			Files:   map[string]string{"saltern_mine/__init__.py": "", "shared/a.py": ""},
		}.Write(t, dir))

	for name, tt := range map[string]struct {
		wheel made.Wheel
		want  string
	}{
		"a package of Salt's": {made.Wheel{Name: "Jinja2", Version: "9.0", Files: map[string]string{"other.py": ""}},
			"comes with Salt"},
		"Salt itself": {made.Wheel{Name: "salt", Version: "9.0", Files: map[string]string{"other.py": ""}},
			"comes with Salt"},
		"a module of Salt's": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"yaml/__init__.py": ""}},
			`module "yaml"`},
		"a part of Salt": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"salt/pillar/x.py": ""}},
			`module "salt"`},
		"a module of Python": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"json.py": ""}},
			`module "json"`},
		"another package's": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"saltern_mine.py": ""}},
			"saltern-mine"},
		"another Python": {made.Wheel{Name: "x", Version: "1", Tag: "cp27-cp27m-linux_x86_64", Files: map[string]string{"x.py": ""}},
			"not for this Python"},
		"a newer Python": {made.Wheel{Name: "x", Version: "1", Python: ">=4", Files: map[string]string{"x.py": ""}},
			"for Python >=4"},
		"the same file": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"shared/a.py": ""}},
			"another package as well"},
		"a broken entry": {made.Wheel{Name: "x", Version: "1", Files: map[string]string{"x/__init__.py": "import nothing_at_all\n",
			"x-1.dist-info/entry_points.txt": "[salt.loader]\nx = x\n"}}, "nothing_at_all"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Add(t.Context(), Addition{Files: []string{tt.wheel.Write(t, t.TempDir())}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if names := p.names(t); len(names) != 1 {
				t.Errorf("%v", names)
			}
		})
	}

	// a namespace has room for both
	p.add(t, made.Wheel{Name: "x", Version: "1", Files: map[string]string{"shared/b.py": ""}}.Write(t, dir))
}

// A node whose wheels are not all there, or changed, keeps what it has; so does one
// whose Python is another, unless the layer is for another Python.
func TestRenewKeepsWhatWorks(t *testing.T) {
	p := node(t)
	dir := t.TempDir()
	p.add(t, made.Wheel{Name: "m", Version: "1.0", Files: map[string]string{"m_one.py": ""}}.Write(t, dir))
	if err := p.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}

	had := p.inService()
	p.add(t, made.Wheel{Name: "m", Version: "2.0", Files: map[string]string{"m_two.py": ""}}.Write(t, dir))
	file := filepath.Join(p.Shared, wheelsDir, "m-2.0-py3-none-any.whl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	for _, content := range [][]byte{nil, whole[:len(whole)/2], append(slices.Clone(whole), 0)} {
		_ = os.Remove(file)
		if content != nil {
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}

		if err := p.Renew(t.Context()); !errors.Is(err, ErrIncomplete) || p.inService() != had {
			t.Errorf("%d bytes: %v %q", len(content), err, p.inService())
		}
	}

	if err := os.WriteFile(file, whole, 0o644); err != nil {
		t.Fatal(err)
	}

	// A process that died in the middle has left this.
	for _, name := range []string{".new-half", ".new-current"} {
		if err := os.MkdirAll(filepath.Join(p.Layers, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	if err := p.Renew(t.Context()); err != nil || !p.imports(t, "m_two") {
		t.Errorf("%v", err)
	}

	if left, _ := filepath.Glob(filepath.Join(p.Layers, ".new-*")); len(left) > 0 {
		t.Errorf("%v", left)
	}

	// The system was upgraded: the layer is for another Python, and the wheel too.
	now := p.inService()
	other := "cpython-27-linux-x86_64-0123456789ab-" + now[strings.LastIndex(now, "-")+1:]
	if err := errors.Join(os.Rename(filepath.Join(p.Layers, now), filepath.Join(p.Layers, other)),
		p.switchLayer(other)); err != nil {
		t.Fatal(err)
	}

	if err := p.Renew(t.Context()); err != nil || p.inService() != now {
		t.Errorf("after an upgrade: %v %q", err, p.inService())
	}

	if err := errors.Join(p.switchLayer(other), os.Remove(file), os.RemoveAll(filepath.Join(p.Layers, now))); err != nil {
		t.Fatal(err)
	}

	if err := p.Renew(t.Context()); err == nil || p.inService() != "" {
		t.Errorf("modules of another Python are in service: %v %q", err, p.inService())
	}
}

// Two administrators add at once; both packages are there.
func TestTwoAdministrators(t *testing.T) {
	p := node(t)
	var both sync.WaitGroup
	for _, name := range []string{"saltern-a", "saltern-b"} {
		path := made.Wheel{
			Name:    name,
			Version: "1",
			Files:   map[string]string{strings.ReplaceAll(name, "-", "_") + ".py": ""},
		}.Write(t, t.TempDir())

		both.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := p.Add(ctx, Addition{Files: []string{path}}); err != nil {
				t.Error(err)
			}
		})
	}

	both.Wait()
	if names := p.names(t); !slices.Equal(names, []string{"saltern-a", "saltern-b"}) {
		t.Errorf("%v", names)
	}
}

func TestOldLayersGo(t *testing.T) {
	p := Place{Layers: t.TempDir()}
	for i, name := range []string{"a", "b", "c", "d", "now"} {
		dir := filepath.Join(p.Layers, name)
		at := time.Now().Add(-time.Duration(i) * time.Hour)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, at, at)); err != nil {
			t.Fatal(err)
		}
	}

	old := time.Now().Add(-layerKept - time.Hour)
	if err := os.Chtimes(filepath.Join(p.Layers, "b"), old, old); err != nil {
		t.Fatal(err)
	}

	if err := p.removeUnused("now"); err != nil {
		t.Fatal(err)
	}

	left, _ := filepath.Glob(filepath.Join(p.Layers, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}

	if !slices.Equal(left, []string{"a", "c", "now"}) {
		t.Errorf("%v", left)
	}
}

// What others made runs as nobody, without a network, and cannot come back.
func TestApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: root is needed to become somebody else")
	}
	script := "id -u; id -G; cat /proc/net/dev | wc -l; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\t\n' ' '"
	argv := sandboxed(Nobody(), false, "sh", "-c", script)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if want := "65534\n65534\n3\nCapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 "; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}
