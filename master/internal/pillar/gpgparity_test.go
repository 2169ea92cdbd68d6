package pillar

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"saltern/master/internal/pillar/gpg"
	"saltern/master/value"
)

// secretTrees makes random pillars with PGP messages.
type secretTrees struct {
	*rand.Rand
	messages []string // armoured, and what looks like it
}

func (r secretTrees) one(texts ...string) string { return texts[r.IntN(len(texts))] }

// messagesOf returns messages of all kinds, of which some cannot be decrypted.
func messagesOf(k, other *keyring) []string {
	inner := strings.TrimSpace(k.encrypt("inner"))
	whole := strings.TrimSpace(k.encrypt("to be damaged"))
	middle := len(whole) / 2
	out := []string{
		whole[:middle] + "AAAA" + whole[middle+4:],
		strings.TrimSpace(other.encrypt("for another key")),
		"-----BEGIN PGP MESSAGE-----\n\nno base64 at all\n-----END PGP MESSAGE-----",
		"-----BEGIN PGP MESSAGE-----\n\n-----END PGP MESSAGE-----",
	}
	for _, text := range []string{"secret", "two\nlines\n\n", "ümläut €", "\xff\x00bytes", "", "\n\n", "tail \r\n", "a: b\nc: [1, 2]\n", inner, "'\"{{ grains.id }}"} {
		out = append(out, strings.TrimSpace(k.encrypt(text)))
	}
	return out
}

func (r secretTrees) message() string { return r.messages[r.IntN(len(r.messages))] }

// text returns a text with messages in it.
func (r secretTrees) text() string {
	switch r.IntN(6) {
	case 0:
		return "plain " + r.one("text", "ü", "-----BEGIN PGP MESSAGE-----", "-----END PGP MESSAGE-----", "a\\nb")
	case 1:
		return r.one("before ", "\n", "-----BEGIN PGP MESSAGE-----\n") + r.message() + r.one(" after", "\n\n", "")
	case 2:
		return r.message() + r.one("", "\n", " and ") + r.message()
	case 3:
		return strings.ReplaceAll(r.message(), "\n", `\n`)
	}
	return r.message()
}

// scalar returns a value as it may stand in a YAML file at an indentation.
func (r secretTrees) scalar(indent string) string {
	text := r.text()
	block := func(style string) string {
		return style + "\n" + indent + strings.ReplaceAll(text, "\n", "\n"+indent)
	}
	switch r.IntN(9) {
	case 0:
		return r.one("1", "1.5", "true", "~", "''", "[]", "{}", "plain", "2026-01-02")
	case 1:
		return strconv.Quote(strings.ToValidUTF8(text, ""))
	case 2:
		return "!!binary " + base64.StdEncoding.EncodeToString([]byte(r.one(text, "\xff"+text, "plain", "\xff\xfe")))
	case 3:
		return "'" + strings.ReplaceAll(strings.ReplaceAll(text, "\n", `\n`), "'", "''") + "'"
	case 4:
		return block("|-")
	case 5:
		return block(">")
	}
	return block("|")
}

// mapping returns lines of a mapping.
func (r secretTrees) mapping(indent string, depth int) string {
	var out strings.Builder
	for i := range 1 + r.IntN(3) {
		key := fmt.Sprintf("%s%d", r.one("k", "deep", "s"), i)
		if depth > 0 && r.IntN(3) == 0 {
			fmt.Fprintf(&out, "%s%s:\n%s", indent, key, r.mapping(indent+"  ", depth-1))
			continue
		}
		if r.IntN(5) == 0 {
			fmt.Fprintf(&out, "%s%s:\n%s- %s\n%s- {x: y, z: %q}\n", indent, key, indent, r.scalar(indent+"  "), indent, r.message())
			continue
		}
		fmt.Fprintf(&out, "%s%s: %s\n", indent, key, r.scalar(indent+"  "))
	}
	return out.String()
}

// file returns an SLS, and whether Go renders it alone.
func (r secretTrees) file() (text string, native bool) {
	body := r.mapping("", 2)
	head := r.one("#!yaml|gpg\n", "#!yaml|gpg\n", "#!yaml | gpg \n", "#!jinja|yaml|gpg\n", "#!yaml\n", "")
	switch r.IntN(16) {
	case 0: // the whole text is decrypted before it is YAML
		return "#!gpg|yaml\n" + r.one("a: 1\n", "") + r.one(r.messages[4], "b:  "+r.messages[4], r.messages[len(r.messages)-3]) + "\n", true
	case 1:
		return "#!yaml|gpg\n" + r.one("", " \n", "no\n", "[]\n", "0\n", "# nothing\n"), true
	case 2:
		return "#!yaml|gpg\nbase: &b\n  x: " + r.scalar("    ") + "\ncopy: *b\nmerged:\n  <<: *b\n  y: 1\n", false
	case 3:
		return "#!yaml|gpg\nset: !!set\n  ? " + strconv.Quote(r.messages[4]) + "\npairs: !!pairs\n- a: " + strconv.Quote(r.messages[4]) + "\n", false
	case 4:
		return r.one("#!gpg|jinja|yaml\n", "#!yaml|gpg|gpg\n", "#!jinja|gpg|yaml\n", "#!yaml|gpg x\n", "#!gpg\n", "#!yaml_jinja|gpg\n") + body, false
	case 5:
		return "#!yaml|gpg\n" + body + "broken: [\n", false
	case 6:
		return "#!jinja|yaml|gpg\n{# a comment #}\n" + body, true
	case 7:
		return "#!jinja|yaml|gpg\nid: {{ grains.id }}\n{% for i in range(2) %}\nl{{ i }}: " + strconv.Quote(r.messages[4]) + "\n{% endfor %}\n", false
	case 8:
		return "#!yaml|gpg\r\n" + strings.ReplaceAll(body, "\n", "\r\n"), true
	}
	return head + body, true
}

// decryptOption returns a value of decrypt_pillar.
func (r secretTrees) decryptOption() []any {
	var out []any
	for range r.IntN(4) {
		key := r.one("k0", "k1", "deep0", "deep1", "s0", "nosuch") + r.one("", "", ":k0", ":deep0", ":s1:k0", ":nosuch", ":")
		if r.IntN(8) == 0 {
			key = ":" + key
		}
		switch r.IntN(4) {
		case 0:
			out = append(out, map[string]any{key: "gpg"})
		case 1:
			out = append(out, map[string]any{key: nil})
		default:
			out = append(out, key)
		}
	}
	return out
}

// TestSecretsAsSaltHasThem compiles random pillars with PGP messages in Salt and here, most without Python.
// SALTERN_TEMPLATES says how many files there are, SALTERN_TEMPLATES_SEED repeats a run.
func TestSecretsAsSaltHasThem(t *testing.T) {
	python(t)
	k, other := newKeyring(t), newKeyring(t)
	files, err := strconv.Atoi(os.Getenv("SALTERN_TEMPLATES"))
	if err != nil {
		files = 200
	}
	seed, err := strconv.ParseUint(os.Getenv("SALTERN_TEMPLATES_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := secretTrees{rand.New(rand.NewPCG(seed, 1)), messagesOf(k, other)}

	const perTree = 8
	root := t.TempDir()
	var cases []parityCase
	var native int
	for n := range max(1, files/perTree) {
		name := fmt.Sprint("p", n)
		texts := map[string]string{}
		alone := r.IntN(4) > 0
		var names []string
		for i := range perTree {
			sls := fmt.Sprint("f", i)
			text, isNative := r.file()
			for alone && !isNative {
				text, isNative = r.file()
			}
			texts[sls] = text
			names = append(names, sls)
		}
		texts["top"] = "base:\n  '*': [" + strings.Join(names, ", ") + "]\n"
		writeSLS(t, root+"/"+name, texts)
		if alone {
			native++
		}
		cases = append(cases, r.parityCase(name, root, k, alone))
	}

	parity(t, root, cases, 1)
	t.Logf("%d of %d trees without Python", native, len(cases))
}

func (r secretTrees) parityCase(name, root string, k *keyring, alone bool) parityCase {
	must := r.IntN(2) == 0
	opts := map[string]any{
		"gpg_keydir":               k.home,
		"gpg_decrypt_must_succeed": must,
		"pillar_safe_render_error": alone, // Go and Python have other words for a fault in YAML
		"gpg_cache":                false,
	}
	if alone { // each set of options starts another Python
		opts["decrypt_pillar"] = r.decryptOption()
		if r.IntN(3) == 0 {
			opts["renderer"] = "jinja|yaml|gpg"
		}
	}

	return parityCase{
		name:  name,
		id:    "web1",
		roots: map[string][]string{"base": {root + "/" + name}},
		opts:  opts,
		change: func(c *Config) {
			c.ShowRenderErrors = !alone
			c.GPG = gpg.New(gpg.Config{Keydir: k.home, MustSucceed: must})
			r.closeLater(k, c.GPG)
			if alone {
				c.Renderers = nil
				c.Renderer, _ = opts["renderer"].(string)
				c.DecryptKeys = ReadDecryptKeys(toMap(opts).(*value.Map))
				c.Decrypt = c.DecryptKeys != nil
			}
		},
	}
}

func (secretTrees) closeLater(k *keyring, d *gpg.Decrypter) { k.t.Cleanup(d.Close) }

// writeSLS writes SLS into a new directory.
func writeSLS(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for sls, text := range texts {
		if err := os.WriteFile(dir+"/"+sls+".sls", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
