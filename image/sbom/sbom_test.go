package sbom

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const dpkgStatus = `Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.36-9)
Version: 2.36-9+deb12u10
Description: C library
 second line: no field
 Version: 9

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b7
`

func TestDocument(t *testing.T) {
	tree := t.TempDir()
	for p, text := range map[string]string{
		"var/lib/dpkg/status": dpkgStatus,
		"opt/saltern/python/lib/python3.11/site-packages/Jinja2-3.1.6.dist-info/METADATA": "Metadata-Version: 2.1\nName: Jinja2\nVersion: 3.1.6\n\nText\nName: x\n",
	} {
		full := filepath.Join(tree, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable() // a Go program with modules
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "prog"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Scan(tree, []string{"prog", "prog"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.purl())
	}
	for _, want := range []string{"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=bookworm", "pkg:deb/debian/bash@5.2.15-2%2Bb7?arch=amd64&distro=bookworm", "pkg:pypi/jinja2@3.1.6"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if slices.ContainsFunc(list, func(p Package) bool { return p.Name == "gone" }) {
		t.Error("a removed package is listed")
	}
	one, err1 := Document("saltern", "1", time.Unix(1750000000, 0), list)
	two, err2 := Document("saltern", "1", time.Unix(1750000000, 0), list)
	if err1 != nil || err2 != nil || string(one) != string(two) {
		t.Errorf("not the same twice: %v %v", err1, err2)
	}
	var doc struct {
		Packages []struct{ SPDXID string }
	}
	if err := json.Unmarshal(one, &doc); err != nil || len(doc.Packages) != len(list)+1 {
		t.Fatal(err, len(doc.Packages), len(list))
	}
	seen := map[string]bool{}
	for _, p := range doc.Packages {
		if seen[p.SPDXID] {
			t.Errorf("%s is there twice", p.SPDXID)
		}
		seen[p.SPDXID] = true
	}
}
