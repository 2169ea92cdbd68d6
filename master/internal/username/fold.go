// Package username compares names of users as directories do: case, width, accents and blanks make no
// difference.
package username

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxBytes is how many bytes of a name are compared. Directories are not asked about longer names.
const maxBytes = 256

// maxRounds is how often a name is folded at most, until that changes nothing more. Two rounds are
// enough for every character, as a test proves.
const maxRounds = 4

// Fold maps all spellings that a directory takes for the same user to one form. It folds case fully
// (straße is strasse) and replaces compatibility forms (ﬁ is fi) as RFC 4518 does. Like Active
// Directory and others it drops accents, blanks and invisible characters. So two names of one user
// always have the same form, but in a stricter directory names with the same form may be different
// users. It uses only the first 256 bytes.
func Fold(name string) string {
	name = name[:min(len(name), maxBytes)]
	for range maxRounds {
		// for pairs that case folding does not cover, such as ı and i
		folded := strings.ToLower(strings.ToUpper(norm.NFKD.String(name)))
		folded = strings.Map(baseRune, norm.NFKD.String(cases.Fold().String(folded)))
		if folded == name {
			break
		}
		name = folded
	}
	return name
}

// baseRune returns -1 to drop a rune that is a blank, an accent or invisible.
func baseRune(r rune) rune {
	if unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.M) {
		return -1
	}
	return r
}

// Same reports whether two names have the same form.
func Same(a, b string) bool { return Fold(a) == Fold(b) }
