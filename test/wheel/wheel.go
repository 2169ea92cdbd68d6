// Package wheel makes Python packages for tests.
package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Wheel is a wheel that a test makes.
type Wheel struct {
	Name, Version string
	Tag           string            // empty: py3-none-any
	Files         map[string]string // by their path in the wheel
	Requires      []string
	Python        string              // Requires-Python
	Record        func(string) string // changes RECORD; nil: it is right
	Raw           func(*zip.Writer)   // adds entries; nil: none
}

// all are the files but RECORD.
func (m Wheel) all(info string) map[string]string {
	all := maps.Clone(m.Files)
	if all == nil {
		all = map[string]string{}
	}

	meta := "Metadata-Version: 2.1\nName: " + m.Name + "\nVersion: " + m.Version + "\n"
	for _, r := range m.Requires {
		meta += "Requires-Dist: " + r + "\n"
	}

	if m.Python != "" {
		meta += "Requires-Python: " + m.Python + "\n"
	}

	all[info+"METADATA"] = meta + "\nText\n"
	all[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: " + m.Tag + "\n"
	return all
}

// Write writes the wheel into a folder and gives its path.
func (m Wheel) Write(t testing.TB, dir string) string {
	t.Helper()
	if m.Tag == "" {
		m.Tag = "py3-none-any"
	}

	under := strings.ReplaceAll(strings.ReplaceAll(m.Name, "-", "_"), ".", "_")
	info := under + "-" + m.Version + ".dist-info/"
	all := m.all(info)
	var record strings.Builder
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(name, text string) {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := all[name]
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
		put(name, text)
	}

	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	text := record.String()
	if m.Record != nil {
		text = m.Record(text)
	}

	put(info+"RECORD", text)
	if m.Raw != nil {
		m.Raw(z)
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, under+"-"+m.Version+"-"+m.Tag+".whl")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}

	return path
}

// Pillar is a package with one module of ext_pillar for Salt's loader, try_pillar,
// which gives what is said under the key try.
func Pillar(name, says string) Wheel {
	module := strings.ReplaceAll(name, "-", "_")
	dir := strings.ReplaceAll(module, ".", "/")
	under := strings.ReplaceAll(module, ".", "_")
	return Wheel{Name: name, Version: "1.0", Requires: []string{"salt>=3006"}, Files: map[string]string{
		dir + "/__init__.py":        "",
		dir + "/pillar/__init__.py": "",
		dir + "/pillar/try_pillar.py": fmt.Sprintf(
			"def ext_pillar(minion_id, pillar, *args, **kwargs):\n    return {'try': %q}\n", says),
		dir + "/runners/__init__.py":              "",
		dir + "/runners/tryrun.py":                fmt.Sprintf("def say():\n    return %q\n", says),
		under + "-1.0.dist-info/entry_points.txt": "[salt.loader]\n" + module + " = " + module + "\n",
	}}
}

// Unpacked writes the files of a wheel into a folder.
func Unpacked(t testing.TB, dir string, m Wheel) {
	t.Helper()
	info := strings.ReplaceAll(strings.ReplaceAll(m.Name, "-", "_"), ".", "_") + "-" + m.Version + ".dist-info/"
	for name, text := range m.all(info) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
