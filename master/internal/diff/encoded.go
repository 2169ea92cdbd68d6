package diff

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"saltern/master/conf"
)

const (
	// maxEncodings is how many encodings, one around the other, are looked through for secrets.
	maxEncodings = 3
	// maxDecoded bounds what is decoded for the texts of one minion, in bytes. Beyond it, what may be
	// encoded is not shown.
	maxDecoded = 16 << 20
)

var (
	// base64Run matches what may be or contain base64 of a secret, of either alphabet.
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{6,}={0,2}`)
	// base64Lines matches base64 in several lines.
	base64Lines = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}(?:\s+[A-Za-z0-9+/_-]+)+={0,2}`)
	hexRun      = regexp.MustCompile(`[0-9A-Fa-f]{10,}`)
	percent     = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	backslash   = regexp.MustCompile(`(?s)\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)`)
)

// standardAlphabet replaces the letters of the alphabet of base64 for URLs.
var standardAlphabet = strings.NewReplacer("-", "+", "_", "/", "=", "")

// noSpace removes the white space in base64 of several lines.
var noSpace = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")

// contains reports whether a decoded text contains a secret, as it is or encoded once more.
func (m *mask) contains(text string, depth int) bool {
	m.decoded += len(text)
	if m.decoded > maxDecoded {
		return true
	}
	if m.inTexts.Replace(text) != text {
		return true
	}
	if depth >= maxEncodings {
		return false
	}
	return m.isInRun(base64Lines, text, depth) || m.isInRun(base64Run, text, depth) || m.isInRun(hexRun, text, depth) ||
		m.isInEscaped(text, depth)
}

// isInRun reports whether a part of a text of this form is an encoded secret.
func (m *mask) isInRun(form *regexp.Regexp, text string, depth int) bool {
	for _, run := range form.FindAllString(text, -1) {
		if m.isEncoded(run, depth) {
			return true
		}
	}
	return false
}

// withoutEncoded returns a text without the secrets in base64 and hexadecimal digits.
func (m *mask) withoutEncoded(text string) string {
	for _, form := range []*regexp.Regexp{base64Lines, base64Run, hexRun} {
		text = form.ReplaceAllStringFunc(text, func(run string) string {
			if m.isEncoded(run, 0) {
				return conf.Hidden
			}
			return run
		})
	}
	return text
}

// isEncoded reports whether base64 or hexadecimal digits contain a secret, beginning anywhere.
func (m *mask) isEncoded(run string, depth int) bool {
	if len(m.texts) == 0 || len(run) < m.shortest*4/3 { // too short for any
		return false
	}

	digits := standardAlphabet.Replace(noSpace.Replace(run))
	for skipped := 0; skipped < 4 && skipped < len(digits); skipped++ {
		part := digits[skipped:]
		if len(part)%4 == 1 { // no whole byte
			part = part[:len(part)-1]
		}
		plain, err := base64.RawStdEncoding.DecodeString(part)
		if err == nil && m.contains(string(plain), depth+1) {
			return true
		}
	}

	for skipped := range 2 {
		part := run[min(skipped, len(run)):]
		plain, _ := hex.DecodeString(part[:len(part)&^1]) // what comes before another digit
		if m.contains(string(plain), depth+1) {
			return true
		}
	}
	return false
}

// isInEscaped reports whether a text contains a secret in a form in which URLs, JSON, programming
// languages, shells, YAML or HTML write its special characters.
func (m *mask) isInEscaped(text string, depth int) bool {
	if len(m.texts) == 0 {
		return false
	}

	var plain []string
	if strings.Contains(text, "%") {
		plain = append(plain, percent.ReplaceAllStringFunc(text, percentByte))
	}
	if strings.Contains(text, "+") { // a blank in queries
		plain = append(plain, percent.ReplaceAllStringFunc(strings.ReplaceAll(text, "+", " "), percentByte))
	}
	if strings.Contains(text, `\`) {
		plain = append(plain, backslash.ReplaceAllStringFunc(text, unescaped), strings.ReplaceAll(text, `'\''`, `'`))
	}
	if strings.Contains(text, `'"'"'`) {
		plain = append(plain, strings.ReplaceAll(text, `'"'"'`, `'`))
	}
	for _, quote := range []string{`'`, `"`} { // doubled within quotes of the same kind only
		plain = append(plain, strings.ReplaceAll(text, quote+quote, quote))
	}
	if strings.Contains(text, "&") {
		plain = append(plain, html.UnescapeString(text))
	}

	for _, decoded := range plain {
		if decoded != text && m.contains(decoded, depth+1) {
			return true
		}
	}
	return false
}

// percentByte returns the byte of a code such as %2f.
func percentByte(code string) string {
	b, _ := hex.DecodeString(code[1:])
	return string(b)
}

// unescaped returns the character of an escape sequence such as \n, \", \xe4, \u00e4 and \ud83d\ude00.
func unescaped(code string) string {
	switch rest := code[2:]; code[1] {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case 'x':
		if rest != "" {
			return percentByte(code[1:])
		}
	case 'u':
		first, second, isPair := strings.Cut(rest, `\u`) // two halves of a character beyond U+FFFF
		n, err := strconv.ParseUint(first, 16, 32)
		if err != nil {
			break
		}
		if low, err := strconv.ParseUint(second, 16, 32); isPair && err == nil {
			return string(utf16.DecodeRune(rune(n), rune(low)))
		}
		return string(rune(n))
	}
	return code[1:]
}
