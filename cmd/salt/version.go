package main

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// saltVersion is the release of Salt whose protocol, options and output these
// tools follow.
const saltVersion = "3008.3"

func version() string { return saltVersion + " (Saltern " + build() + ")" }

func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return strings.Trim(info.Main.Version, "()")
}

func versionsReport() string {
	return "Salt Version:\n          Salt: " + saltVersion +
		"\n\nSaltern Version:\n       Saltern: " + build() +
		"\n            Go: " + strings.TrimPrefix(runtime.Version(), "go") +
		"\n\nSystem Versions:\n            os: " + runtime.GOOS + "\n       machine: " + runtime.GOARCH + "\n"
}
