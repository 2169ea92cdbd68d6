// Package username compares names of users as directories do: it ignores case, width, accents and
// blanks.
package username

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxBytes is how many bytes of a name are compared. Longer names are never sent to a directory.
const maxBytes = 256

// maxRounds bounds how often a name is folded until folding changes nothing more. Two rounds
// suffice for every character, as a test proves.
const maxRounds = 4

// Fold returns the folded form of a name, which is the same for all spellings that a directory
// treats as the same user. It folds case fully (straße becomes strasse) and replaces compatibility
// forms (ﬁ becomes fi) as RFC 4518 does. Like Active Directory and others it drops accents, blanks
// and invisible characters. So two spellings of one user always have the same form. In a stricter
// directory, names with the same form may be different users. Fold uses only the first 256 bytes of
// a name.
func Fold(name string) string {
	name = name[:min(len(name), maxBytes)]
	for range maxRounds {
		// ToLower of ToUpper handles pairs that case folding does not cover, such as ı and i.
		folded := strings.ToLower(strings.ToUpper(norm.NFKD.String(name)))
		folded = strings.Map(baseRune, norm.NFKD.String(cases.Fold().String(folded)))
		if folded == name {
			break
		}
		name = folded
	}
	return name
}

// baseRune returns r, or -1 if r is a blank, an accent or invisible. The caller drops the rune if
// the result is -1.
func baseRune(r rune) rune {
	if unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.M) {
		return -1
	}
	return r
}

// Same reports whether Fold returns the same form for two names.
func Same(a, b string) bool { return Fold(a) == Fold(b) }
