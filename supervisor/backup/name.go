package backup

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of an archive.
const (
	maxName  = 1024
	maxDepth = 32
	maxFile  = 4 << 30
)

// Limits bounds what is read from an archive. Zero values stand for the defaults.
type Limits struct {
	Bytes   int64 // bytes of all files together; default 64 GiB
	Entries int   // number of entries; default 4 million
}

func (l Limits) filled() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 30
	}
	if l.Entries <= 0 {
		l.Entries = 4 << 20
	}
	return l
}

// CheckName returns why a backup refuses a name, or nil. Valid names are relative, with components
// separated by slashes. The error's text continues a sentence that begins with the name ("has a
// name ...").
func CheckName(name string) error { return checkName(name) }

// checkName returns nil for relative names whose components are separated by slashes. Components
// may have any bytes except control characters: names in old trees are Latin-1, and those of
// systemd's units have backslashes. fs.ValidPath would require UTF-8.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("has a name of more than %d bytes", maxName)
	case strings.ContainsFunc(name, isControl):
		return fmt.Errorf("has a name with characters that are not taken: %q", name)
	case !Plain(name) || leadsUp(name):
		return fmt.Errorf("has a name that is not a plain relative one: %q", name)
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("lies more than %d directories deep", maxDepth)
	}
	return nil
}

// Plain reports whether a name is relative and clean: no component is empty, "." or "..". Unlike
// fs.ValidPath it accepts any bytes, and refuses the name ".".
func Plain(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// leadsUp reports whether a name has a component ".." if backslashes count as slashes, as they do
// for some programs.
func leadsUp(name string) bool {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' })
	return slices.Contains(parts, "..")
}
