package python

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Package is one of the packages on the shared storage.
type Package struct {
	Name    string `json:"name"` // as [Canonical] writes it
	Version string `json:"version"`
	File    string `json:"file"` // of the wheel
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"` // of the wheel, bytes
	// Asked reports whether somebody added it by name. The others came because a package needs
	// them.
	Asked bool `json:"asked"`
}

// list is the file of packages.
type list struct {
	Format   int       `json:"format"`
	Packages []Package `json:"packages"`
}

var (
	plainName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	plainVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+!_]*$`)
	plainFile    = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.+!-]*\.whl$`)
	separators   = regexp.MustCompile(`[-_.]+`)
)

// Canonical returns a package's name in the form that is compared (PEP 503).
func Canonical(name string) string {
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// parseList reads a list. It refuses names of files outside of the folder.
func parseList(text []byte) ([]Package, error) {
	if len(text) > maxList {
		return nil, fmt.Errorf("more than %d KiB", maxList>>10)
	}

	var l list
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, err
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the list")
	}
	if l.Format != 1 {
		return nil, fmt.Errorf("it has format %d, and this version reads 1", l.Format)
	}

	return l.Packages, checkList(l.Packages)
}

func checkList(packages []Package) error {
	if len(packages) > maxPackages {
		return fmt.Errorf("there are %d packages, %d are possible", len(packages), maxPackages)
	}

	var total int64
	names, files := map[string]bool{}, map[string]bool{}
	for _, p := range packages {
		sum, err := hex.DecodeString(p.SHA256)
		switch {
		case !plainName.MatchString(p.Name) || len(p.Name) > maxNameBytes:
			return fmt.Errorf("%.100q is no name of a package", p.Name)
		case !plainVersion.MatchString(p.Version) || len(p.Version) > maxNameBytes:
			return fmt.Errorf("%s: %.100q is no version", p.Name, p.Version)
		case !plainFile.MatchString(p.File) || len(p.File) > 250:
			return fmt.Errorf("%s: %.100q is no name of a wheel", p.Name, p.File)
		case err != nil || len(sum) != 32 || strings.ToLower(p.SHA256) != p.SHA256:
			return fmt.Errorf("%s: %.100q is no SHA-256", p.Name, p.SHA256)
		case p.Size <= 0 || p.Size > maxWheel:
			return fmt.Errorf("%s: a wheel of %d bytes, %d MiB are possible", p.Name, p.Size, maxWheel>>20)
		case names[p.Name] || files[p.File]:
			return fmt.Errorf("%s is there twice", p.Name)
		}

		names[p.Name], files[p.File] = true, true
		if total += p.Size; total > maxWheels {
			return fmt.Errorf("the wheels have more than %d MiB together", maxWheels>>20)
		}
	}

	return nil
}

// packList writes a list, in the order of names.
func packList(packages []Package) ([]byte, error) {
	packages = slices.SortedFunc(slices.Values(packages),
		func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	if packages == nil {
		packages = []Package{}
	}
	text, err := json.MarshalIndent(list{1, packages}, "", "  ")
	return append(text, '\n'), err
}
