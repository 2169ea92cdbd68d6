package setup

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// minSecretBits is the least estimate, in bits, that a secret needs. An attacker who tries to join
// can test six guesses a minute, and gets no data to test guesses off line (package nodeapi).
const minSecretBits = 40

// The estimated cost of a character to an attacker who guesses, in bits.
const (
	repeatBits = 0.5 // a character that repeats the one before it, continues a row such as abc, or repeats earlier text
	wordBits   = 6   // a whole word of commonWords, or a whole repeated piece
	textBits   = 2.5 // a letter after a letter, because most letters belong to words
)

// commonWords are the words that every attacker tries first, in lower case and without digits in
// place of letters (see plainLetters).
var commonWords = strings.Fields(`password passwort passphrase changeme change-me secret geheim letmein welcome
	administrator admin root login
	master minion saltstack saltern salt cluster appliance default test example monkey dragon shadow football baseball sunshine princess
	iloveyou trustno abc123 superman batman starwars whatever computer internet server company summer winter spring autumn
	january february march april june july august september october november december`)

// rows lists sequences of keys and characters that are easy to guess.
var rows = []string{"01234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop", "qwertzuiop", "azertyuiop",
	"asdfghjkl", "yxcvbnm", "zxcvbnm", "!@#$%^&*()", "1q2w3e4r5t6y7u8i9o0p"}

// WeakSecret returns why a secret is easy to guess, without repeating the secret, or "" for a good
// one. Only new secrets are checked: a cluster keeps its present secret.
func WeakSecret(s string) string {
	if bits := secretBits(s); bits < minSecretBits {
		return fmt.Sprintf("is too easy to guess (about %.0f bits of %d): "+
			"take four or more words that do not belong together, or 20 random characters as of: "+
			"openssl rand -hex 20; "+
			"repeated characters, rows of keys, years and common words count for little", bits, minSecretBits)
	}
	return ""
}

// plainLetters replaces digits and signs by the letters for which people write them.
var plainLetters = strings.NewReplacer("@", "a", "4", "a", "3", "e", "1", "i", "!", "i", "0", "o", "5", "s",
	"$", "s", "7", "t")

// secretBits estimates how many guesses an attacker needs for a secret, as a binary logarithm. For
// secrets that people invent, the estimate tends to be too low rather than too high.
func secretBits(s string) float64 {
	lower := strings.ToLower(s)
	plain := plainLetters.Replace(lower) // has the same length as lower
	bits := 0.0
	for i := 0; i < len(s); {
		n := max(wordAt(lower[i:]), wordAt(plain[i:]), earlier(plain, i))
		if n > 0 {
			bits += wordBits
			i += n
			continue
		}

		bits += charBits(s, lower, i)
		i++
	}

	return bits
}

// wordAt returns the length of the longest of commonWords with which s begins, or 0.
func wordAt(s string) (n int) {
	for _, w := range commonWords {
		if strings.HasPrefix(s, w) {
			n = max(n, len(w))
		}
	}
	return n
}

// earlier returns the length of the longest piece of s that begins at i and occurs a second time,
// beginning before i. It returns 0 if that piece is shorter than three characters.
func earlier(s string, i int) int {
	n := 0
	for n < len(s)-i && strings.Contains(s[:i+n], s[i:i+n+1]) {
		n++
	}
	if n < 3 {
		return 0
	}
	return n
}

func charBits(s, lower string, i int) float64 {
	c := rune(s[i])
	if i > 0 {
		if lower[i] == lower[i-1] || i > 1 && inRow(lower[i-2:i+1]) {
			return repeatBits
		}
		if before := rune(s[i-1]); unicode.IsLetter(c) && unicode.IsLower(c) == unicode.IsLower(before) &&
			unicode.IsLetter(before) {
			return textBits
		}
	}

	switch {
	case unicode.IsDigit(c):
		return math.Log2(10)
	case unicode.IsLetter(c):
		return math.Log2(26)
	}

	return math.Log2(16) // people use few signs
}

// inRow reports whether the three characters of s are neighbours in one of rows, forwards or
// backwards.
func inRow(s string) bool {
	back := string([]byte{s[2], s[1], s[0]})
	return slices.ContainsFunc(rows, func(r string) bool { return strings.Contains(r, s) || strings.Contains(r, back) })
}
