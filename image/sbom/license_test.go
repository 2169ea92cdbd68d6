package sbom

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mit    = "Copyright (c) 2020 X\n\nPermission is hereby granted, free of charge, to any person obtaining a copy\nof this software"
	bsd2   = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted"
	bsd3   = bsd2 + "\n   * Neither the name of Google nor the names of its\ncontributors may be used"
	apache = "                                 Apache License\n                           Version 2.0, January 2004\n"
)

func TestIdentify(t *testing.T) {
	for text, want := range map[string]string{
		mit: "MIT", bsd2: "BSD-2-Clause", bsd3: "BSD-3-Clause", apache: "Apache-2.0",
		"Mozilla Public License, version 2.0": "MPL-2.0",
		"Permission to use, copy, modify, and distribute this software for any\npurpose with or without fee is hereby granted": "ISC",
		apache + mit:           "Apache-2.0 AND MIT",
		"All rights reserved.": "",
	} {
		if got := identify([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLicenses(t *testing.T) {
	from := Sources{Modules: t.TempDir(), Go: t.TempDir()}
	for path, text := range map[string]string{
		filepath.Join(from.Go, "LICENSE"):                                                bsd3,
		filepath.Join(from.Modules, "github.com/!burnt!sushi/toml@v1.0.0/COPYING"):       mit,
		filepath.Join(from.Modules, "github.com/!burnt!sushi/toml@v1.0.0/NOTICE.txt"):    "By X.",
		filepath.Join(from.Modules, "github.com/!burnt!sushi/toml@v1.0.0/licensetxt.go"): "package toml",
		filepath.Join(from.Modules, "none.example@v1.0.0/README"):                        mit,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	list := []Package{
		{Kind: "deb", Name: "bash"},
		{Kind: "golang", Name: "github.com/BurntSushi/toml", Version: "v1.0.0"},
		{Kind: "golang", Name: "std", Version: "1.26.8"},
	}

	got, texts, err := Licenses(list, from)
	if err != nil || got[0].License != "" || got[1].License != "MIT" || got[2].License != "BSD-3-Clause" ||
		list[1].License != "" {
		t.Errorf("%+v %v", got, err)
	}

	for _, want := range []string{"==== github.com/BurntSushi/toml v1.0.0\n", "Permission is hereby",
		"By X.", "==== std 1.26.8\n", "Neither the name"} {
		if !strings.Contains(string(texts), want) {
			t.Errorf("no %q in %s", want, texts)
		}
	}

	if strings.Contains(string(texts), "package toml") {
		t.Errorf("code in %s", texts)
	}

	for name, want := range map[string]string{
		"none.example":   "no file with a license",
		"absent.example": "go mod download",
	} {
		if _, _, err := Licenses([]Package{{
			Kind:    "golang",
			Name:    name,
			Version: "v1.0.0",
		}}, from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
