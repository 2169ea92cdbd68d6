package sbom

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
		names = append(names, p.packageURL())
	}

	for _, want := range []string{"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=bookworm",
		"pkg:deb/debian/bash@5.2.15-2%2Bb7?arch=amd64&distro=bookworm", "pkg:pypi/jinja2@3.1.6"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}

	if slices.ContainsFunc(list, func(p Package) bool { return p.Name == "gone" }) {
		t.Error("a removed package is listed")
	}

	one, err1 := Document("saltern", "1", "", time.Unix(1750000000, 0), list)
	two, err2 := Document("saltern", "1", "", time.Unix(1750000000, 0), list)
	if err1 != nil || err2 != nil || string(one) != string(two) {
		t.Errorf("not the same twice: %v %v", err1, err2)
	}

	valid(t, one, len(list)+1)
	three, err := Document("saltern", "2", "", time.Unix(1750000000, 0), list)
	if err != nil || valid(t, one, len(list)+1) == valid(t, three, len(list)+1) {
		t.Errorf("two documents have one namespace: %v", err)
	}
}

// valid fails unless a document has the fields that SPDX 2.3 requires (clauses 6, 7
// and 11), each identifier once and no relation to a package that is not there; it
// gives its namespace.
func valid(t *testing.T, text []byte, packages int) string {
	t.Helper()
	type pkg struct{ SPDXID, Name, DownloadLocation, LicenseConcluded, LicenseDeclared, CopyrightText string }
	var doc struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string
		CreationInfo                                              struct {
			Created  time.Time
			Creators []string
		}
		Packages      []pkg
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}

	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}

	if doc.SPDXVersion != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.SPDXID != "SPDXRef-DOCUMENT" ||
		doc.Name == "" || doc.CreationInfo.Created.IsZero() ||
		len(doc.CreationInfo.Creators) != 1 || !strings.HasPrefix(doc.CreationInfo.Creators[0], "Tool: ") || len(doc.Packages) != packages {
		t.Errorf("%+v", doc)
	}

	if u, err := url.Parse(doc.DocumentNamespace); err != nil || !u.IsAbs() || u.Fragment != "" {
		t.Errorf("namespace %q: %v", doc.DocumentNamespace, err)
	}

	id := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	seen := map[string]bool{doc.SPDXID: true}
	for _, p := range doc.Packages {
		if seen[p.SPDXID] || !id.MatchString(p.SPDXID) {
			t.Errorf("%s is there twice, or no identifier", p.SPDXID)
		}

		seen[p.SPDXID] = true
		if p.Name == "" || p.DownloadLocation == "" || p.LicenseConcluded == "" || p.LicenseDeclared == "" ||
			p.CopyrightText == "" {
			t.Errorf("%+v", p)
		}
	}

	describes := 0
	for _, r := range doc.Relationships {
		if r.RelationshipType == "DESCRIBES" {
			describes++
		}
		if !seen[r.SPDXElementID] || !seen[r.RelatedSPDXElement] {
			t.Errorf("%+v", r)
		}
	}

	if describes != 1 || len(doc.Relationships) != packages {
		t.Errorf("%d relations, %d describe", len(doc.Relationships), describes)
	}

	return doc.DocumentNamespace
}
