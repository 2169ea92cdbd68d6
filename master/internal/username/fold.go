// Package username compares names of users the way directories do: without regard to case,
// width, accents and blanks.
package username

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxBytes bounds how much of a name is folded. Directories are not asked about longer names.
const maxBytes = 256

// maxRounds bounds how often a name is folded until it stays the same. Two are enough for all
// characters; a test tries them.
const maxRounds = 4

// Fold brings the spellings of a name that a directory takes for one user to one form: full case
// folding (straße is strasse) and compatibility forms (ﬁ is fi) as in RFC 4518, and without
// accents, blanks and invisible characters, as Active Directory and others compare. Two names that
// are one user to a directory have one form. Names with one form may be several users to a stricter
// directory. It reads the first 256 bytes.
func Fold(name string) string {
	name = name[:min(len(name), maxBytes)]
	for range maxRounds {
		// pairs that folding does not cover, such as ı and i
		folded := strings.ToLower(strings.ToUpper(norm.NFKD.String(name)))
		folded = strings.Map(baseRune, norm.NFKD.String(cases.Fold().String(folded)))
		if folded == name {
			break
		}
		name = folded
	}
	return name
}

// baseRune drops runes that are no characters of their own.
func baseRune(r rune) rune {
	if unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.M) {
		return -1
	}
	return r
}

// Same reports whether two names have one form.
func Same(a, b string) bool { return Fold(a) == Fold(b) }
