package support

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// removed replaces a secret.
const removed = "[removed]"

// shortest is the least length, in bytes, of a value that is removed wherever it appears. Removing
// shorter values would remove harmless words, so a shorter secret is removed only where its form
// shows that it is a secret.
const shortest = 6

// Redactor removes secrets from texts. It is safe for concurrent use.
type Redactor struct {
	known *strings.Replacer
}

// maxValues bounds the number of secrets that a Redactor finds by their value.
const maxValues = 20000

// newRedactor returns a redactor that removes these values, and texts in the usual forms of
// secrets.
func newRedactor(values ...string) *Redactor {
	seen := map[string]bool{}
	var list []string
	add := func(v string) {
		if len(v) >= shortest && !seen[v] && len(list) < maxValues {
			seen[v] = true
			list = append(list, v)
		}
	}

	for _, v := range values {
		v = strings.TrimSpace(v)
		add(v)
		if len(v) >= shortest {
			add(base64.StdEncoding.EncodeToString([]byte(v)))
			add(base64.RawURLEncoding.EncodeToString([]byte(v)))
		}
	}

	// The longest first, so that a value is replaced before another value that is part of it.
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range list {
		pairs = append(pairs, v, removed)
	}

	return &Redactor{strings.NewReplacer(pairs...)}
}

// secretName matches names of options and fields with secret values, including those that the
// master hides in its own answers (master/conf).
const secretName = `[A-Za-z0-9_.-]*(?:` +
	`secret|passw(?:or)?d|passphrase|token|api_?key|private_?key|priv_?key|access_?key|_pass|bindpw|pwd|psk|` +
	`credential|cookie|authorization|sudo_user_pass)[A-Za-z0-9_.-]*`

var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	ageKey   = regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`)
	// the secret may contain an @
	joinString = regexp.MustCompile(`(sca[0-9]\.[0-9A-Za-z]+\.)(?:[^\s"']*(@)|[^@\s"']+)`)
	cryptHash  = regexp.MustCompile(`\$(?:1|2[aby]|5|6|7|y|gy|argon2id?)\$[^\s:"']+`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}`)
	inURL      = regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^/\s:@]*:)[^@\s/]+@`)
	keyValue   = regexp.MustCompile(`(?im)(["']?` + secretName +
		`["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[|>][-+0-9]*[ \t]*\n(?:[ \t]+[^\n]*\n?|\n)+|[^\s,}\]&][^\n,}\]&]*)`)
	listBelow = regexp.MustCompile(`(?im)^([ \t]*)(["']?` + secretName +
		`["']?:[ \t]*\n)((?:[ \t]+[^\n]*\n?|[ \t]*-[^\n]*\n?)+)`)
)

// Clean returns a copy of text without secrets.
func (r *Redactor) Clean(text []byte) []byte {
	text = []byte(r.known.Replace(string(text)))
	text = pemBlock.ReplaceAll(text, []byte(removed))
	text = ageKey.ReplaceAll(text, []byte(removed))
	text = joinString.ReplaceAll(text, []byte("${1}"+removed+"${2}"))
	text = cryptHash.ReplaceAll(text, []byte(removed))
	text = inURL.ReplaceAll(text, []byte("${1}"+removed+"@"))
	text = bearer.ReplaceAll(text, []byte("${1} "+removed))
	text = listBelow.ReplaceAll(text, []byte("${1}${2}${1}  "+removed+"\n"))

	return keyValue.ReplaceAllFunc(text, func(m []byte) []byte {
		parts := keyValue.FindSubmatch(m)
		out := append(append([]byte{}, parts[1]...), removed...)
		if bytes.HasSuffix(m, []byte("\n")) {
			out = append(out, '\n')
		}
		return out
	})
}

var secretOption = regexp.MustCompile(`(?i)^` + secretName + `$`)

// secretsOf returns the secret values of this node: the lines of its secret files, and the values
// of options with the name of a secret. It skips hangs, a storage directory that does not answer.
func secretsOf(s Source, hangs string) (values []string) {
	for _, dir := range []string{s.Settings.DataDir, s.Settings.StorageDir(), s.Settings.RuntimeDir} {
		n := 0
		_ = walkFiles(dir, hangs, func(path string, e fs.DirEntry, err error) error {
			n++
			if n > maxListed {
				return fs.SkipAll
			}
			if err == nil && e.IsDir() && noSecrets(e.Name()) {
				return fs.SkipDir
			}
			if err != nil || !e.Type().IsRegular() || !secretFile(path, e) {
				return nil
			}

			if text, err := readTail(path, 64<<10); err == nil {
				values = append(values, string(text))
				values = append(values, documentSecrets(text, true)...)

				for _, l := range strings.Split(string(text), "\n") {
					if !strings.HasPrefix(l, "-----") {
						values = append(values, l)
					}
				}
			}

			return nil
		})
	}

	if hangs == "" {
		values = append(values, recordSecrets(s.Settings.ClusterRecord())...)
	}

	for _, f := range append(userConf(s.Settings, hangs), s.ConfigPath,
		filepath.Join(s.Settings.MasterConf(), "master")) {
		text, err := readTail(f, 1<<20)
		if err != nil {
			continue
		}

		values = append(values, documentSecrets(text, false)...)
	}

	return values
}

// documentSecrets returns the secrets in all documents of a YAML text, up to the first that cannot be
// parsed. JSON is YAML too. all reports whether every value is a secret.
func documentSecrets(text []byte, all bool) (values []string) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if d.Decode(&doc) != nil {
			return values
		}
		values = append(values, secretScalars(&doc, all, 0)...)
	}
}

// recordSecrets returns the secrets of the masters' record: the strings at its top level. Names,
// addresses and public keys are deeper, in lists and objects.
func recordSecrets(path string) (values []string) {
	text, err := readTail(path, 1<<20)
	if err != nil {
		return nil
	}

	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}

	for _, f := range fields {
		var value string
		if json.Unmarshal(f, &value) == nil {
			values = append(values, value)
		}
	}

	return values
}

// noSecrets reports whether a directory with that name is skipped because it is large and holds no
// secret of ours: public keys of minions, jobs, logs.
func noSecrets(name string) bool {
	return slices.Contains([]string{"minions", "minions_pre", "minions_denied", "minions_rejected", "peers",
		"jobs", "jobs.journal", "log"},
		name)
}

// secretFile reports whether the whole content of a file is secret.
func secretFile(path string, e fs.DirEntry) bool {
	name := strings.ToLower(filepath.Base(path))
	if strings.HasSuffix(name, ".pub") {
		return false
	}

	fi, err := e.Info()
	if err != nil || fi.Size() > 64<<10 {
		return false
	}

	for _, part := range []string{"secret", "token", "password", "_key", ".key", ".pem", "seed", ".aes", "credential"} {
		if strings.Contains(name, part) {
			return true
		}
	}

	return strings.Contains(path, "/tokens/") || strings.Contains(path, "/sessions/")
}

// secretScalars returns the values below keys whose names match secretName.
func secretScalars(n *yaml.Node, below bool, depth int) []string {
	if depth > 32 {
		return nil
	}

	var out []string
	switch n.Kind {
	case yaml.ScalarNode:
		if below && !strings.HasPrefix(n.Value, "/") { // the path of a secret is not secret
			out = append(out, n.Value)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = append(out,
				secretScalars(n.Content[i+1], below || secretOption.MatchString(n.Content[i].Value), depth+1)...)
		}
	default: // a document or list; an alias has no content, and its target is visited at its definition
		for _, c := range n.Content {
			out = append(out, secretScalars(c, below, depth+1)...)
		}
	}

	return out
}
