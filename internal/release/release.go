// Package release returns the version of Saltern. All programs of one build have the same version.
package release

import (
	"regexp"
	"runtime/debug"
)

// version is set by the linker (see the Makefile):
// -X saltern/internal/release.version=$(git describe --tags --always).
var version string

// Unknown is the version of a program that was built outside a repository and without a version.
// Two programs of this version may differ.
const Unknown = "devel"

// Version returns the first of these that is known: the version that was set at build time, the
// version of the module, the commit. If none is, it returns [Unknown].
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return releaseOf(version, info)
}

// pseudo matches the end of a version that go generates for a commit without a tag
// (golang.org/ref/mod#pseudo-versions).
var pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+dirty)?$`)

func releaseOf(injected string, info *debug.BuildInfo) string {
	if injected != "" {
		return injected
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
