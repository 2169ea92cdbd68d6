package conf

import (
	"path/filepath"
	"slices"
	"strings"
)

// hasWildcard reports whether a pattern has characters that Python's glob expands.
func hasWildcard(pattern string) bool { return strings.ContainsAny(pattern, "*?[") }

// expandGlob returns the paths that match a pattern, sorted, by the rules of Python's glob: [!x]
// negates, and a wildcard does not match a leading dot.
func expandGlob(pattern string) []string {
	if !hasWildcard(pattern) {
		if m, err := filepath.Glob(escapeGlob(pattern)); err == nil {
			return m
		}
		return nil
	}

	found, err := filepath.Glob(strings.ReplaceAll(strings.ReplaceAll(pattern, `\`, `\\`), "[!", "[^"))
	if err != nil {
		return nil
	}

	pats := strings.Split(filepath.Clean(pattern), "/")
	found = slices.DeleteFunc(found, func(path string) bool {
		parts := strings.Split(path, "/")
		for i := range parts {
			if i < len(pats) && hasWildcard(pats[i]) && pats[i][0] != '.' && strings.HasPrefix(parts[i], ".") {
				return true
			}
		}
		return false
	})

	slices.Sort(found)
	return found
}

func escapeGlob(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }
