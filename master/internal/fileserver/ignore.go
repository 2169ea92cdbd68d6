package fileserver

import (
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/dlclark/regexp2"

	"saltern/master/pattern"
)

// Ignore determines which files are hidden from minions (salt/fileserver/__init__.py,
// is_file_ignored).
type Ignore struct {
	find  []func(string) bool
	globs []string
}

// NewIgnore compiles file_ignore_regex and file_ignore_glob. If an expression does not compile,
// NewIgnore logs a warning and skips it, as Salt does.
func NewIgnore(regexes, globs []string, log *slog.Logger) *Ignore {
	ig := &Ignore{globs: globs}
	for _, expr := range regexes {
		if re, err := regexp.Compile(expr); err == nil {
			ig.find = append(ig.find, re.MatchString)
			continue
		}

		// regexp2 supports Python's look-around and other constructs that need backtracking.
		re, err := regexp2.Compile(expr, regexp2.None)
		if err != nil {
			log.Warn("skipping a file_ignore_regex that does not compile", "regex", expr, "error", err)
			continue
		}

		re.MatchTimeout = 100 * time.Millisecond
		ig.find = append(ig.find, func(s string) bool {
			ok, err := re.MatchString(s)
			return ok || err != nil // on an error the file is hidden
		})
	}

	return ig
}

// Match reports whether a file name is hidden. A nil *Ignore hides nothing.
func (ig *Ignore) Match(name string) bool {
	if ig == nil {
		return false
	}
	for _, f := range ig.find {
		if f(name) {
			return true
		}
	}
	return slices.ContainsFunc(ig.globs, func(g string) bool { return pattern.Glob(g, name) })
}
