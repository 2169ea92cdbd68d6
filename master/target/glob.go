package target

import (
	"strings"

	"saltern/master/pattern"
)

// glob is a shell pattern that ids must match.
type glob string

func (g glob) matches(id string) bool { return globMatch(string(g), id) }

// globMatch reports whether s matches the glob p, like pattern.Glob. It has a shortcut for patterns
// whose only wildcard is *, since nearly all patterns are of this kind.
func globMatch(p, s string) bool {
	if strings.ContainsAny(p, "?[") {
		return pattern.Glob(p, s)
	}

	head, rest, star := strings.Cut(p, "*")
	if !star {
		return p == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}

	s = s[len(head):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}

		i := strings.Index(s, part)
		if i < 0 {
			return false
		}

		s, rest = s[i+len(part):], more
	}
}
