package main

import (
	"runtime"
	"strings"

	"saltern/release"
)

// saltVersion is the release of Salt whose protocol, options and output these
// tools follow.
const saltVersion = "3008.3"

func version() string { return saltVersion + " (Saltern " + release.Version() + ")" }

func versionsReport() string {
	return "Salt Version:\n          Salt: " + saltVersion +
		"\n\nSaltern Version:\n       Saltern: " + release.Version() +
		"\n            Go: " + strings.TrimPrefix(runtime.Version(), "go") +
		"\n\nSystem Versions:\n            os: " + runtime.GOOS + "\n       machine: " + runtime.GOARCH + "\n"
}
