package redact

import (
	"regexp"
	"slices"
	"strings"

	"saltern/master/conf"
	"saltern/master/value"
)

// words lists words that occur in the names of secrets. A name that contains none of these words
// does not name a secret.
var words = []string{"secret", "pass", "pw", "psk", "token", "credential", "auth", "cookie", "key", "otp", "pin"}

// word matches a word of a command, in quotes or not.
const word = `"[^"\n]*"|'[^'\n]*'|[^\s"';|&]+`

// textForm is a form by which a secret in a text is recognised.
type textForm struct {
	form  *regexp.Regexp // with three groups, of which the second is the secret
	signs []string       // texts, one of which is in each text of this form, in small letters
}

var textForms = []textForm{
	{form: inURL, signs: []string{"://"}},
	{form: tokenURL, signs: []string{"://"}},
	{form: bearer, signs: []string{"bearer", "basic"}},
	{form: token, signs: []string{"eyj"}},
	{form: hash, signs: []string{"$"}},
	{form: ofPrograms, signs: []string{"mysql", "mariadb", "sshpass", "redis-cli", "ldap"}},
	{form: userOf, signs: []string{"curl"}},
}

// Forms by which secrets in texts are recognised.
var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	inURL    = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:)([^/\s]+)(@)`)
	tokenURL = regexp.MustCompile(`(https?://)([^/\s:@]+)(@)`)
	bearer   = regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)([A-Za-z0-9+/=._~-]{8,})()`)

	// token matches a JSON Web Token, and hash the hash of a password as crypt writes it.
	token = regexp.MustCompile(`()(\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*)()`)
	hash  = regexp.MustCompile(`()(\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|P|H|md5|sha1|scrypt|argon2(?:d|id?)|pbkdf2[\w-]*)\$[^\s:"';]{8,})()`)
	// ofPrograms and userOf match the passwords that programs take as short options.
	ofPrograms = regexp.MustCompile(`(\b(?:(?:mysql|mariadb)[\w-]*\b[^\n|;&]*?\s-p|` +
		`(?:sshpass\b[^\n|;&]*?\s-p|redis-cli\b[^\n|;&]*?\s-a|ldap[a-z]+\b[^\n|;&]*?\s-w)\s*))(` + word + `)()`)
	userOf = regexp.MustCompile(`(\bcurl\b[^\n|;&]*?\s(?:-[uU]\s*|--(?:proxy-)?user[= ]\s*)["']?[^\s"':]*:)([^\s"']+)()`)

	// assigned matches the beginning of an assignment, or a command's option, if its name may be
	// the name of a secret: password=, "api_key": , --token followed by a blank.
	assigned = regexp.MustCompile(`(?i)([\w.-]*(?:` + strings.Join(words, "|") +
		`)[\w.-]*)(\\?["']?\s*(?:=>|:=|=|:)\s*|\s+)`)
	header  = regexp.MustCompile(`(?i)(authorization|cookie)$`)
	operand = regexp.MustCompile(`^(?:\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.|'')*'|["'][^\n]*|\S+)`)
	line    = regexp.MustCompile(`^[^\n]+`)
)

// Text returns a text without secrets that are recognisable by their form.
func Text(text string) string { return walk{call: &Call{}}.eachSecret(text, func(string) {}) }

// eachSecret returns a text without the secrets that are recognisable by their form, and calls
// found for each of these secrets.
func (w walk) eachSecret(text string, found func(secret string)) string {
	lower := strings.ToLower(text)
	has := func(part string) bool { return strings.Contains(lower, part) }
	hidden := func(secret string) string {
		found(secret)
		return conf.Hidden
	}

	if has("private key-----") {
		text = pemBlock.ReplaceAllStringFunc(text, hidden)
	}

	for _, f := range textForms {
		if !slices.ContainsFunc(f.signs, has) {
			continue
		}

		text = f.form.ReplaceAllStringFunc(text, func(match string) string {
			groups := f.form.FindStringSubmatch(match)
			return groups[1] + unquoted(groups[2], hidden) + groups[3]
		})
	}

	if slices.ContainsFunc(words, has) {
		text = w.eachAssigned(text, hidden)
	}

	return text
}

// eachAssigned replaces each value that is assigned to the name of a secret by the result of
// hidden, in one pass over the text.
func (w walk) eachAssigned(text string, hidden func(string) string) string {
	var out strings.Builder
	for {
		at := assigned.FindStringSubmatchIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}

		name, between := text[at[2]:at[3]], text[at[4]:at[5]]
		out.WriteString(text[:at[1]])
		text = text[at[1]:]

		isOption := strings.HasPrefix(name, "-")
		if strings.TrimSpace(between) == "" && !isOption || !w.isSecret(strings.TrimLeft(name, "-.")) {
			continue
		}

		form := operand
		if header.MatchString(name) && strings.Contains(between, ":") {
			form = line
		}

		secret := form.FindString(text)
		out.WriteString(unquoted(secret, hidden))
		text = text[len(secret):]
	}
}

// unquoted replaces the text inside quotes by the result of hidden, and keeps the quotes. It does
// not replace text that is hidden already, nor words that are not secrets.
func unquoted(secret string, hidden func(string) string) string {
	switch strings.ToLower(strings.Trim(secret, `"'`)) {
	case "", "true", "false", "none", "null", "yes", "no", conf.Hidden:
		return secret
	}

	if strings.HasPrefix(secret, conf.Hidden) {
		return secret
	}

	for _, quote := range []string{`\"`, `"`, `'`} {
		inner, begins := strings.CutPrefix(secret, quote)
		inner, ends := strings.CutSuffix(inner, quote)
		if begins && ends {
			return quote + hidden(inner) + quote
		}
	}

	return hidden(secret)
}

// Event returns the data of an event without secrets if the event is about a runner or wheel
// function: Salt's own tools and masters fire such events with secrets in them. It returns the data
// of any other event unchanged.
func Event(tag string, data *value.Map) *value.Map {
	if !strings.HasPrefix(tag, "salt/run/") && !strings.HasPrefix(tag, "salt/wheel/") {
		return data
	}

	given, ok := data.Value("fun_args").([]any)
	if !ok {
		return data
	}

	_, fun, _ := strings.Cut(data.Str("fun"), ".") // the name in events is like "runner.auth.mk_token"
	var named *value.Map
	if n := len(given); n > 0 {
		if m, ok := given[n-1].(*value.Map); ok {
			given, named = given[:n-1], m
		}
	}

	c := Of(fun, given, named)
	if !c.Found() {
		return data
	}

	out := data.Clone()
	out.Set("fun_args", c.FunArgs())
	if ret, ok := data.Get("return"); ok {
		out.Set("return", c.Result(ret))
	}

	return out
}
