package release

import (
	"runtime"
	"strings"
)

// Salt is the release of Salt whose protocol, options, formats and output this version of Saltern
// implements.
const Salt = "3008.3"

// VersionsReport returns the report of versions in Salt's form (salt/version.py versions_report).
func VersionsReport() string {
	return "Salt Version:\n          Salt: " + Salt +
		"\n\nSaltern Version:\n       Saltern: " + Version() +
		"\n            Go: " + strings.TrimPrefix(runtime.Version(), "go") +
		"\n\nSystem Versions:\n            os: " + runtime.GOOS + "\n       machine: " + runtime.GOARCH + "\n"
}
