package conf

import (
	"regexp"
	"strings"

	"saltern/master/value"
)

// Hidden stands where a secret was.
const Hidden = "(hidden)"

// OwnSecrets are options that only the master itself needs: no renderer, module
// or pillar gets them.
func OwnSecrets() (names []string) {
	for name, o := range builtin().options {
		if o.secrecy == "private" {
			names = append(names, name)
		}
	}
	return names
}

var (
	// secretName says by a name that the value is a secret, at any depth.
	secretName = regexp.MustCompile(`(?i)secret|passw(or)?d|passphrase|bindpw|token|credential|authorization|cookie|` +
		`(api|access|private|priv|secret|ssh|aes|account|shared|encryption)[-_.]?key|(^|[-_.])(pass|pw|pwd|psk)$`)
	// ordinaryName are names with such a word in them that say where something
	// lies, how long it holds, or which kind it is.
	ordinaryName = regexp.MustCompile(`(?i)[-_.](dir|file|path|expire|expires|ttl|timeout|override|driver|cluster_id|length|home_key)$`)

	inURL    = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:)[^/\s]+@`)
	tokenURL = regexp.MustCompile(`(https?://)[^/\s:@]+@`) // a token alone
	inText   = regexp.MustCompile(`(?i)((?:passw(?:or)?d|pwd|passphrase|secret|token|api_?key|bindpw|access_?key|secret_?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"']+)`)
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
)

// maxHide bounds how deep options are looked at; what lies deeper is hidden.
const maxHide = 64

// WithoutSecrets is a copy of options that may be shown to who is not the
// master: config.values, config.get, pillar_opts, logs. Whether an option is a
// secret stands in the table; one that is not there, and what lies deeper, is
// known by its name or form. Empty values and booleans stay. The copy shares what it did not change.
func WithoutSecrets(opts *value.Map) *value.Map {
	out := &value.Map{}
	for k, v := range opts.All() {
		name, _ := k.(string)
		switch o, known := builtin().options[name]; {
		case o.secrecy == "arguments": // of any form; only the names of the modules are shown
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

// Shown is a value without secrets.
func Shown(v any) any { return shownAs("", v, 0) }

// ShownKeys is a value without private keys in PEM form, such as the result of
// the wheel function key.gen. All else stays.
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

// shownText is a text without the secrets that are known by their form:
// passwords in URLs, assignments, private keys.
func shownText(s string) string {
	s = pemBlock.ReplaceAllString(s, Hidden)
	if !strings.ContainsAny(s, "@=:") {
		return s
	}
	s = inURL.ReplaceAllString(s, "${1}"+Hidden+"@")
	s = tokenURL.ReplaceAllString(s, "${1}"+Hidden+"@")
	return inText.ReplaceAllString(s, "${1}"+Hidden)
}

// hidden hides a value, unless it is none.
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

// withoutArguments shows of a list of modules, each a map with one name, the
// names.
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

// IsSecret reports whether an option, a field or an argument of this name holds a secret:
// the table of options says so, or the name does.
func IsSecret(name string) bool {
	if o, known := builtin().options[name]; known {
		return o.secrecy != ""
	}
	return secretName.MatchString(name) && !ordinaryName.MatchString(name)
}
