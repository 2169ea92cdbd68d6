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

// Package describes one of the packages on the shared storage.
type Package struct {
	Name    string `json:"name"` // in the form of [Canonical]
	Version string `json:"version"`
	File    string `json:"file"` // file name of the wheel
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"` // bytes of the wheel
	// Asked reports whether an administrator added the package by name. Other packages were added
	// because a package with Asked needs them.
	Asked bool `json:"asked"`
}

// list is the content of the file that lists the packages.
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

// Canonical returns a package's name in the form for comparisons (PEP 503).
func Canonical(name string) string {
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// parseList parses a list. It returns an error for file names that lead out of the folder.
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

// packList returns the text of a list, ordered by name.
func packList(packages []Package) ([]byte, error) {
	packages = slices.SortedFunc(slices.Values(packages),
		func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	if packages == nil {
		packages = []Package{}
	}
	text, err := json.MarshalIndent(list{1, packages}, "", "  ")
	return append(text, '\n'), err
}
