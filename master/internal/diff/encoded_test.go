package diff

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/pillar"
	"saltern/master/value"
)

// encodings are ways in which a template or a program writes a secret with what stands around it.
var encodings = map[string]func(text string) string{
	"as it is":         func(s string) string { return s },
	"base64":           func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 unpadded":  func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64 of URLs":   func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"base64 in a path": func(s string) string { return "/srv/x-" + base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"base64 in lines": func(s string) string {
		digits := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 40) + s + strings.Repeat("y", 30)))
		return digits[:64] + "\n  " + digits[64:]
	},
	"hexadecimal": func(s string) string { return hex.EncodeToString([]byte(s)) },
	"capitals":    func(s string) string { return "0x" + strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"query":       url.QueryEscape,
	"path":        url.PathEscape,
	"all quoted": func(s string) (out string) {
		for _, b := range []byte(s) {
			out += fmt.Sprintf("%%%02x", b)
		}
		return out
	},
	"JSON": func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"JSON of PHP": func(s string) string {
		return strings.NewReplacer("/", `\/`, `"`, `\"`, `\`, `\\`, "ä", `\u00e4`).Replace(s)
	},
	"C":               func(s string) string { return fmt.Sprintf("%+q", s) },
	"single quotes":   func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'` },
	"quotes of shlex": func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'"'"'`) + `'` },
	"double quotes": func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(s) + `"`
	},
	"quotes of YAML": func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` },
	"HTML":           html.EscapeString,
}

// TestEncodedSecretsAreHidden: a secret with anything around it is hidden in each encoding, and in two, one
// around the other.
func TestEncodedSecretsAreHidden(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	text := func(least, most int) string {
		const letters = `abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!"$%&/()=?+*#'-_.:,;<>@\ äß`
		runes := []rune(letters)
		var out strings.Builder
		for range least + random.IntN(most-least+1) {
			out.WriteRune(runes[random.IntN(len(runes))])
		}
		return out.String()
	}

	for range 30 {
		secret := "x" + text(6, 24) + "y"
		side := &pillar.Outcome{Pillar: value.NewMap("password", secret, "motto", "an open word")}
		m := newMask(&secretNames{}, nil, []*pillar.Outcome{side}, nil)
		for _, name := range slices.Sorted(maps.Keys(encodings)) {
			for _, outer := range slices.Sorted(maps.Keys(encodings)) {
				inner := encodings[name](text(0, 4) + secret + text(0, 4))
				before := strings.TrimRight(text(0, 4), `\`) // which would escape what follows
				written := encodings[outer](before + inner + text(0, 4))
				shown, isHidden := m.text(written)
				if !isHidden || !strings.Contains(shown, "(hidden)") {
					t.Errorf("%s in %s: %q is shown as %q, with the secret %q", name, outer, written, shown, secret)
				}
			}
		}
	}
}

// TestHardSecretsAreHidden: secrets that hold what an encoding treats in a special way are hidden.
func TestHardSecretsAreHidden(t *testing.T) {
	for secret, texts := range map[string][]string{
		`xaaa""aaa'aaay`: {`'xaaa""aaa''aaay'`},
		`xaaa''aaa"aaay`: {`"xaaa''aaa""aaay"`},
		"pass😀word":      {`"pass\ud83d\ude00word"`, `{\"a\": \"pass\\uD83D\\uDE00word\"}`},
	} {
		side := &pillar.Outcome{Pillar: value.NewMap("password", secret)}
		m := newMask(&secretNames{}, nil, []*pillar.Outcome{side}, nil)
		for _, text := range texts {
			if shown, isHidden := m.text(text); !isHidden {
				t.Errorf("%q is shown as %q, with the secret %q", text, shown, secret)
			}
		}
	}
}

// TestOpenTextsAreShown: what has no secret in it is shown, also if it looks encoded.
func TestOpenTextsAreShown(t *testing.T) {
	side := &pillar.Outcome{Pillar: value.NewMap("password", "hunter2", "token", "0123456789abcdef")}
	m := newMask(&secretNames{}, nil, []*pillar.Outcome{side}, nil)
	for _, text := range []string{
		"an open word", "https://example.org/a/b?c=d+e%20f&g=h", `C:\Temp\new`, "dXNlcjpvcGVuIHdvcmQ=", "50 % of 'it' & \"that\"",
		"3f2a91c03f2a91c03f2a91c03f2a91c0", "/usr/lib/x86_64-linux-gnu/libc.so.6", strings.Repeat("Zm9v", 1000),
	} {
		if shown, isHidden := m.text(text); isHidden {
			t.Errorf("%q is shown as %q", text, shown)
		}
	}
}

// TestTextsThatTakeTime: texts that can be decoded again and again take bounded time.
func TestTextsThatTakeTime(t *testing.T) {
	side := &pillar.Outcome{Pillar: value.NewMap("password", "hunter2")}
	m := newMask(&secretNames{}, nil, []*pillar.Outcome{side}, nil)
	text := strings.Repeat(`a%+\''&amp;aGFsbG8 `, maxText/2/20)
	for range 8 {
		if len(text) < maxText*3/4 {
			text = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	const texts = 50
	for range texts {
		m.text(text)
	}
	if m.decoded > maxDecoded+10*maxText*texts {
		t.Errorf("%d bytes were decoded", m.decoded)
	}
}
