// Package sbom lists the components of a tree as an SPDX 2.3 document: Debian packages from dpkg's
// status, Go modules from our programs, Python packages from their metadata. The same tree gives
// the same bytes.
package sbom

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Package is one component.
type Package struct {
	Kind    string // deb, golang, pypi
	Name    string
	Version string
	Arch    string // architecture of a Debian package
	Source  string // source package of a Debian package, if it has another name
	License string // the declared license, an SPDX expression; "" means not looked for
}

// packageURL returns the package URL (github.com/package-url/purl-spec).
func (p Package) packageURL() string {
	esc := func(s string) string { return strings.ReplaceAll(url.PathEscape(s), "+", "%2B") }
	switch p.Kind {
	case "deb":
		return "pkg:deb/debian/" + esc(p.Name) + "@" + esc(p.Version) + "?arch=" + p.Arch + "&distro=bookworm"
	case "pypi":
		return "pkg:pypi/" + esc(strings.ReplaceAll(strings.ToLower(p.Name), "_", "-")) + "@" + esc(p.Version)
	}
	return "pkg:golang/" + p.Name + "@" + esc(p.Version)
}

// Scan returns the packages in a tree. programs are the paths in the tree of the Go programs.
func Scan(tree string, programs []string) ([]Package, error) {
	out, err := debian(filepath.Join(tree, "var/lib/dpkg/status"))
	if err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}

	for _, p := range programs {
		mods, err := modules(filepath.Join(tree, p))
		if err != nil {
			return nil, fmt.Errorf("sbom: %w", err)
		}
		out = append(out, mods...)
	}

	metadata, err := filepath.Glob(filepath.Join(tree,
		"opt/saltern/python/lib/python3*/site-packages/*.dist-info/METADATA"))
	if err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}

	for _, m := range metadata {
		fields, err := stanzas(m, 1)
		if err != nil {
			return nil, fmt.Errorf("sbom: %w", err)
		}
		out = append(out, Package{Kind: "pypi", Name: fields[0]["Name"], Version: fields[0]["Version"]})
	}

	return sorted(out), nil
}

// Programs returns the modules of Go programs, each once.
func Programs(paths []string) ([]Package, error) {
	var out []Package
	for _, p := range paths {
		mods, err := modules(p)
		if err != nil {
			return nil, fmt.Errorf("sbom: %w", err)
		}
		out = append(out, mods...)
	}
	return sorted(out), nil
}

func sorted(list []Package) []Package {
	slices.SortFunc(list, func(a, b Package) int {
		return strings.Compare(a.Kind+"\x00"+a.Name+"\x00"+a.Version, b.Kind+"\x00"+b.Name+"\x00"+b.Version)
	})
	return slices.Compact(list)
}

func debian(status string) ([]Package, error) {
	all, err := stanzas(status, 0)
	if err != nil {
		return nil, err
	}

	var out []Package
	for _, f := range all {
		if !strings.HasSuffix(f["Status"], " installed") {
			continue
		}

		out = append(out, Package{
			Kind:    "deb",
			Name:    f["Package"],
			Version: f["Version"],
			Arch:    f["Architecture"],
			Source:  f["Source"],
		})
	}

	return out, nil
}

// stanzas returns the paragraphs of a file in the style of RFC 822, without continuation lines. It
// reads at most maxParagraphs paragraphs; 0 means all.
func stanzas(path string, maxParagraphs int) ([]map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	all := []map[string]string{}
	cur := map[string]string{}
	end := func() {
		if len(cur) > 0 {
			all = append(all, cur)
			cur = map[string]string{}
		}
	}

	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() && (maxParagraphs == 0 || len(all) < maxParagraphs) {
		line := sc.Text()
		if line == "" {
			end()
			continue
		}

		if k, v, ok := strings.Cut(line, ": "); ok && line[0] != ' ' {
			if _, have := cur[k]; !have {
				cur[k] = v
			}
		}
	}

	end()
	if len(all) == 0 {
		return nil, errors.Join(fmt.Errorf("%s is empty", path), sc.Err())
	}

	return all, sc.Err()
}

func modules(program string) ([]Package, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	out := []Package{{Kind: "golang", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, Package{Kind: "golang", Name: m.Path, Version: m.Version})
	}
	return out, nil
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// Document returns the list as SPDX 2.3 in JSON. license is the declared license of the document's
// subject, or "".
func Document(name, version, license string, created time.Time, list []Package) ([]byte, error) {
	type ref struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}

	type pkg struct {
		ID       string `json:"SPDXID"`
		Name     string `json:"name"`
		Version  string `json:"versionInfo"`
		Location string `json:"downloadLocation"`
		Analyzed bool   `json:"filesAnalyzed"`
		License  string `json:"licenseConcluded"`
		Declared string `json:"licenseDeclared"`
		Copy     string `json:"copyrightText"`
		Source   string `json:"sourceInfo,omitempty"`
		Refs     []ref  `json:"externalRefs,omitempty"`
	}

	type relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}

	const none = "NOASSERTION"
	root := pkg{
		ID:       "SPDXRef-image",
		Name:     name,
		Version:  version,
		Location: none,
		License:  none,
		Declared: cmp.Or(license, none),
		Copy:     none,
	}

	packages := []pkg{root}
	relations := []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", root.ID}}
	h := sha256.New()
	fmt.Fprintln(h, name, version, created.Unix()) // the namespace must differ for every document

	for _, p := range list {
		u := p.packageURL()
		fmt.Fprintln(h, u)
		sum := sha256.Sum256([]byte(u))
		id := "SPDXRef-" + p.Kind + "-" + notID.ReplaceAllString(p.Name, "-") + "-" + hex.EncodeToString(sum[:4])
		source := ""
		if p.Source != "" {
			source = "built from source package " + p.Source
		}

		packages = append(packages, pkg{
			ID:       id,
			Name:     p.Name,
			Version:  p.Version,
			Location: none,
			License:  none,
			Declared: cmp.Or(p.License, none),
			Copy:     none,
			Source:   source,
			Refs:     []ref{{"PACKAGE-MANAGER", "purl", u}},
		})

		relations = append(relations, relation{root.ID, "CONTAINS", id})
	}

	doc := map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name + "-" + version,
		"documentNamespace": "urn:saltern:sbom:" + hex.EncodeToString(h.Sum(nil)[:16]),
		"creationInfo": map[string]any{
			"created":  created.UTC().Format(time.RFC3339),
			"creators": []string{"Tool: saltern-image"},
		},
		"packages": packages, "relationships": relations,
	}

	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}

	return append(b, '\n'), nil
}
