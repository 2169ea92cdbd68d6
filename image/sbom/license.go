package sbom

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Sources are the folders with the licenses of Go modules: go env GOMODCACHE and GOROOT.
type Sources struct{ Modules, Go string }

// licenseFile matches files at the top of a module whose text must accompany its programs.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)([.-].*)?$`)

// Licenses returns a copy of list in which each Go module has its license, as the module's files
// declare it, and the text of all those files. A module without a license is an error: programs
// that contain it may not be distributed.
func Licenses(list []Package, from Sources) (licensed []Package, texts []byte, err error) {
	licensed = slices.Clone(list)
	var out bytes.Buffer
	for i, p := range licensed {
		if p.Kind != "golang" {
			continue
		}

		dir := from.Go
		if p.Name != "std" {
			dir = filepath.Join(from.Modules, escaped(p.Name)+"@"+escaped(p.Version))
		}

		text, err := licenseText(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("sbom: license of %s %s: %w", p.Name, p.Version, err)
		}

		licensed[i].License = identify(text)
		fmt.Fprintf(&out, "==== %s %s\n\n%s\n\n", p.Name, p.Version, bytes.TrimSpace(text))
	}

	return licensed, out.Bytes(), nil
}

// escaped returns a path or version in the form of the module cache: each capital letter becomes an
// exclamation mark and the small letter (golang.org/ref/mod#module-cache).
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func licenseText(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; go mod download fetches modules", err)
	}

	var out []byte
	for _, f := range files {
		if !f.Type().IsRegular() || !licenseFile.MatchString(f.Name()) {
			continue
		}

		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}

		out = append(append(out, b...), '\n')
	}

	if len(bytes.TrimSpace(out)) == 0 {
		return nil, errors.New("no file with a license is in " + dir)
	}

	return out, nil
}

// licenseTexts lists texts that identify a license: its text contains has and does not contain not.
// A space matches any white space.
var licenseTexts = []struct{ id, has, not string }{
	{"Apache-2.0", "Apache License,? Version 2.0", ""},
	{"MPL-2.0", "Mozilla Public License,? [Vv]ersion 2.0", ""},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy", ""},
	{"ISC",
		"Permission to use, copy, modify, and(/or)? distribute this software for any purpose with or without fee",
		""},
	{"BSD-3-Clause", "Redistribution and use in source and binary forms.*[Nn]either the name", ""},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms", "[Nn]either the name"},
}

// identify returns the names of the licenses in a text, or "" if it recognises none.
func identify(text []byte) string {
	flat := strings.Join(strings.Fields(string(text)), " ")
	var found []string
	for _, k := range licenseTexts {
		if regexp.MustCompile(k.has).MatchString(flat) &&
			(k.not == "" || !regexp.MustCompile(k.not).MatchString(flat)) {
			found = append(found, k.id)
		}
	}
	return strings.Join(found, " AND ")
}
