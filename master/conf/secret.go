package conf

import (
	"regexp"
	"strings"

	"saltern/master/value"
)

// Hidden is the text that replaces a secret.
const Hidden = "(hidden)"

// OwnSecrets returns the names of the secret options that only the master itself needs. The master
// does not pass these options to renderers, modules and pillars.
func OwnSecrets() (names []string) {
	for name, o := range builtin().options {
		if o.secrecy == "private" {
			names = append(names, name)
		}
	}
	return names
}

var (
	// secretName matches names whose values are secret, at any depth.
	secretName = regexp.MustCompile(`(?i)secret|passw(or)?d|passphrase|bindpw|token|credential|authorization|cookie|` +
		`(api|access|private|priv|secret|ssh|aes|account|shared|encryption)[-_.]?key|(^|[-_.])(pass|pw|pwd|psk)$`)
	// ordinaryName matches names that secretName also matches, but whose values are not secret: a
	// location, a lifetime or a kind.
	ordinaryName = regexp.MustCompile(`(?i)[-_.](dir|file|path|expire|expires|ttl|timeout|override|driver|cluster_id|length|home_key)$`)

	inURL = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:)[^/\s]+@`)
	// matches a URL with a token before the host, where a URL may have a user's name
	tokenURL = regexp.MustCompile(`(https?://)[^/\s:@]+@`)
	inText   = regexp.MustCompile(`(?i)((?:passw(?:or)?d|pwd|passphrase|secret|token|api_?key|bindpw|access_?key|secret_?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"']+)`)
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
)

// maxHide bounds the depth to which values are searched for secrets. Values at a greater depth are
// hidden.
const maxHide = 64

// WithoutSecrets returns a copy of options that may be shown to others: by config.values,
// config.get and pillar_opts, and in logs. The table of options defines which options are secret.
// WithoutSecrets treats other options, and values inside options, as secret if their name or text
// has the form of a secret. It does not change empty values and booleans. The copy shares unchanged
// values with opts.
func WithoutSecrets(opts *value.Map) *value.Map {
	out := &value.Map{}
	for k, v := range opts.All() {
		name, _ := k.(string)
		switch o, known := builtin().options[name]; {
		case o.secrecy == "arguments": // hide arguments of any form; keep the names of the modules
			v = withoutArguments(v)
		case o.secrecy != "":
			v = hidden(v)
		case known:
			v = shownAs("", v, 0)
		default:
			v = shownAs(name, v, 0)
		}

		out.Set(k, v)
	}

	return out
}

// Shown returns a copy of a value in which secrets are hidden.
func Shown(v any) any { return shownAs("", v, 0) }

// ShownKeys returns a copy of a value in which private keys in PEM form are hidden, such as those
// in the result of the wheel function key.gen. It does not change other values.
func ShownKeys(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := &value.Map{}
		for k, e := range v.All() {
			out.Set(k, ShownKeys(e))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = ShownKeys(e)
		}
		return out
	case string:
		if strings.Contains(v, "PRIVATE KEY-----") {
			return pemBlock.ReplaceAllString(v, Hidden)
		}
	}

	return v
}

func shownAs(name string, v any, depth int) any {
	if secretName.MatchString(name) && !ordinaryName.MatchString(name) {
		return hidden(v)
	}
	if depth > maxHide {
		return Hidden
	}

	switch v := v.(type) {
	case *value.Map:
		out := &value.Map{}
		for k, e := range v.All() {
			s, _ := k.(string)
			out.Set(k, shownAs(s, e, depth+1))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = shownAs("", e, depth+1)
		}
		return out
	case string:
		return shownText(v)
	case []byte:
		if s := shownText(string(v)); s != string(v) {
			return []byte(s)
		}
	}

	return v
}

// shownText returns a copy of a text in which passwords in URLs, values assigned to secret names,
// and private keys are hidden.
func shownText(s string) string {
	s = pemBlock.ReplaceAllString(s, Hidden)
	if !strings.ContainsAny(s, "@=:") {
		return s
	}
	s = inURL.ReplaceAllString(s, "${1}"+Hidden+"@")
	s = tokenURL.ReplaceAllString(s, "${1}"+Hidden+"@")
	return inText.ReplaceAllString(s, "${1}"+Hidden)
}

// hidden returns Hidden instead of a value, but returns empty values and booleans as they are.
func hidden(v any) any {
	switch e := v.(type) {
	case nil, bool:
		return v
	case *value.Map:
		if e.Len() == 0 {
			return v
		}
	case []any:
		if len(e) == 0 {
			return v
		}
	case string:
		if e == "" {
			return v
		}
	}

	return Hidden
}

// withoutArguments returns the names in a list of modules. Each entry of the list is a name, or a
// map with one name as its key.
func withoutArguments(v any) any {
	list, ok := v.([]any)
	if !ok {
		return hidden(v)
	}

	out := make([]any, len(list))
	for i, e := range list {
		out[i] = Hidden
		if m, ok := e.(*value.Map); ok {
			names := &value.Map{}
			for k, a := range m.All() {
				names.Set(k, hidden(a))
			}
			out[i] = names
		}
	}

	return out
}

// IsSecret reports whether an option, a field or an argument of this name holds a secret, according
// to the table of options or to the form of the name.
func IsSecret(name string) bool {
	if o, known := builtin().options[name]; known {
		return o.secrecy != ""
	}
	return secretName.MatchString(name) && !ordinaryName.MatchString(name)
}
