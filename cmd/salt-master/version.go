package main

import (
	"runtime"
	"strings"

	"saltern/release"
)

// saltVersion is the release of Salt whose master this one takes the place of.
const saltVersion = "3008.3"

// versionsReport has the form of Salt's (salt/version.py versions_report).
func versionsReport() string {
	return "Salt Version:\n          Salt: " + saltVersion +
		"\n\nSaltern Version:\n       Saltern: " + release.Version() +
		"\n            Go: " + strings.TrimPrefix(runtime.Version(), "go") +
		"\n\nSystem Versions:\n            os: " + runtime.GOOS + "\n       machine: " + runtime.GOARCH + "\n"
}
