// Package release knows which version of Saltern a program is: all programs of
// one build say the same.
package release

import (
	"regexp"
	"runtime/debug"
)

// version is set by the linker (see the Makefile):
// -X saltern/internal/release.version=$(git describe --tags --always).
var version string

// Unknown is the version of a program that was built outside of a repository
// and without being told. Two of them need not be the same.
const Unknown = "devel"

// Version gives the version that the build was told, else that of the module,
// else the commit; [Unknown] when there is none of them.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return releaseOf(version, info)
}

// pseudo is the end of a version that go makes up for a commit without a tag
// (golang.org/ref/mod#pseudo-versions).
var pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+dirty)?$`)

func releaseOf(told string, info *debug.BuildInfo) string {
	if told != "" {
		return told
	}
	if info == nil {
		return Unknown
	}

	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}

	v := info.Main.Version
	switch m := pseudo.FindStringSubmatch(v); {
	case m != nil && rev == "":
		return m[1]
	case m == nil && v != "" && v != "(devel)":
		return v
	case rev != "":
		return rev + dirty
	}

	return Unknown
}
