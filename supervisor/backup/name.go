package backup

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Bounds of an archive.
const (
	maxName  = 1024
	maxDepth = 32
	maxFile  = 4 << 30
)

// Limits bound what is taken from an archive. Zero values stand for the
// defaults.
type Limits struct {
	Bytes   int64 // of all files; default 64 GiB
	Entries int   // default 4 million
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

// CheckName reports why a name is none that a backup takes: relative, separated by
// slashes, of ordinary components. The error goes on from the name ("has a name ...").
func CheckName(name string) error { return checkName(name) }

// checkName accepts relative slash-separated names of ordinary components.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("has a name of more than %d bytes", maxName)
	case !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\\\n\r\x1b"):
		return fmt.Errorf("has a name with characters that are not taken: %q", name)
	case !fs.ValidPath(name) || name == ".":
		return fmt.Errorf("has a name that is not a plain relative one: %q", name)
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("lies more than %d directories deep", maxDepth)
	}
	return nil
}
