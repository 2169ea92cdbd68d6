package username

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// TestFoldOfAllCharacters: each character has one form with its capital, its small letter
// and its title, and a form stays as it is.
func TestFoldOfAllCharacters(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r > 0xff && !unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Nl, unicode.Z, unicode.Cf) {
			continue // it has no other form, and there are many
		}
		form := Fold(string(r))
		for _, s := range []string{form, string(unicode.ToUpper(r)), string(unicode.ToLower(r)),
			string(unicode.ToTitle(r))} {
			if Fold(s) != form {
				t.Errorf("%U: %q, and of %q %q", r, form, s, Fold(s))
			}
		}
	}
}

// spelling writes a name in a way that directories do not tell from it.
func spelling(r *rand.Rand, name string) string {
	for range 1 + r.IntN(3) {
		switch r.IntN(9) {
		case 0:
			name = cases.Upper(language.Und).String(name) // straße is STRASSE
		case 1:
			name = cases.Title(language.Und).String(name)
		case 2:
			name = norm.NFD.String(name)
		case 3:
			name = norm.NFC.String(name)
		case 4:
			name = strings.ReplaceAll(name, "fi", "ﬁ")
		case 5:
			name = strings.ReplaceAll(name, "ss", "ß")
		case 6:
			name = " " + strings.ReplaceAll(name, " ", "  ")
		case 7:
			name = strings.Map(func(c rune) rune { // full width
				if c > ' ' && c < 0x7f {
					return c + 0xfee0
				}
				return c
			}, name)
		case 8:
			name = strings.ReplaceAll(name, "o", "o\u00ad\u200b")
		}
	}

	return name
}

func TestFoldOfSpellings(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 2026))
	parts := []string{"strasse", "straße", "ann", "Müller", "o'hara", "ﬁnn", "fi", "ΣΊΣΥΦΟΣ", "иван", "İnci",
		"ǅ", "x y", "Ｗ", "e\u0301", "ﬃ", "ẞ", "ŉ", "Ⅷ", "ά", "ſ", "K"}
	for range 5000 {
		name := ""
		for range 1 + r.IntN(3) {
			name += parts[r.IntN(len(parts))]
		}
		if other := spelling(r, name); len(name) < maxBytes/2 && len(other) < maxBytes && !Same(name, other) {
			t.Errorf("%+q is %q, and %+q is %q", name, Fold(name), other, Fold(other))
		}
	}

	for _, c := range [][2]string{{"ann", "anna"}, {"ann", "bob"}, {"o", "0"}, {"straße", "strase"}, {"иван", "ivan"}} {
		if Same(c[0], c[1]) {
			t.Errorf("%s is %s", c[0], c[1])
		}
	}
}

func FuzzFold(f *testing.F) {
	for _, s := range []string{"", "ann", "straße", "\xff", "İ", strings.Repeat("ﷺ", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		form := Fold(s)
		if len(form) <= maxBytes && Fold(form) != form {
			t.Errorf("%+q is %+q, and that is %+q", s, form, Fold(form))
		}
	})
}
