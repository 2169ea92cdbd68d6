// Package redact hides the secrets in the arguments of runners and wheel functions, and
// in what such a call leads to, before others see them: in events, the job cache, logs
// and the audit record. The function itself gets its arguments as they were given.
//
// What a secret is, its name says: that of a named argument, of a field in one at any
// depth, of an assignment in a text ("password=x", "--token x", {"api_key": "x"}), or of
// an option of the master that is one. Everything given to functions of the module auth
// is a secret, but the name of the user and of the system.
package redact

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"saltern/master/conf"
	"saltern/master/value"
)

const (
	// maxDepth bounds the depth to which arguments are searched; deeper values are hidden.
	maxDepth = 64
	// maxSecrets bounds the secrets of a call. With more of them the whole result is hidden.
	maxSecrets = 1000
	// leastInText is the least length of a secret that is searched for inside of texts and numbers;
	// a shorter one would remove harmless letters and digits from a result. It is hidden where it
	// is the whole text.
	leastInText = 5
)

// Call holds the public view of a call.
type Call struct {
	// Args and Named are the arguments, with [conf.Hidden] in place of secrets.
	Args  []any
	Named *value.Map

	secrets  map[string]bool
	overflow bool              // there are more or deeper secrets than the search covers
	inTexts  *strings.Replacer // nil when no secret is long enough
}

// Of returns the public view of a function's arguments. It does not change the arguments.
func Of(fun string, args []any, named *value.Map) *Call {
	c := &Call{secrets: map[string]bool{}}
	module, _, _ := strings.Cut(fun, ".")
	w := walk{call: c, module: module}
	c.Args = w.redactList(args, w.argument)
	c.Named = w.fields(named, 0)

	var pairs []string
	for _, secret := range slices.SortedFunc(maps.Keys(c.secrets), longestFirst) {
		if len(secret) >= leastInText {
			pairs = append(pairs, secret, conf.Hidden)
		}
	}

	if len(pairs) > 0 {
		c.inTexts = strings.NewReplacer(pairs...)
	}

	return c
}

// longestFirst orders secrets so that a part of a secret cannot prevent the whole from being
// hidden.
func longestFirst(a, b string) int {
	if d := len(b) - len(a); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// Found reports whether the arguments hold a secret.
func (c *Call) Found() bool { return len(c.secrets) > 0 || c.overflow }

// Secrets returns the secrets that were found, in no particular order, for a caller that must look
// for them elsewhere. all is false when there are more: then nothing that results from the call may
// be shown.
func (c *Call) Secrets() (secrets []any, all bool) {
	return value.List(slices.Collect(maps.Keys(c.secrets))), !c.overflow
}

// FunArgs returns the arguments as in Salt's events: the named ones are a map at the end
// (salt/client/mixins.py low).
func (c *Call) FunArgs() []any {
	if c.Named.Len() > 0 {
		return append(slices.Clone(c.Args), c.Named)
	}
	return c.Args
}

// Result returns the result of a call without the secrets that the caller gave.
func (c *Call) Result(v any) any {
	switch {
	case !c.Found():
		return v
	case c.overflow:
		return conf.Hidden
	}
	return c.without(v, 0)
}

// Text returns a text that results from the call, such as an error, without the secrets that the
// caller gave and without those recognisable by their form.
func (c *Call) Text(text string) string {
	if cleaned, ok := c.Result(text).(string); ok {
		text = cleaned
	}
	return Text(text)
}

// Error returns an error of the call whose text others may see. It wraps the original error for its
// caller.
func (c *Call) Error(err error) error { return &discreet{c.Text(err.Error()), err} }

type discreet struct {
	text string
	err  error
}

func (d *discreet) Error() string { return d.text }

func (d *discreet) Unwrap() error { return d.err }

func (c *Call) without(v any, depth int) any {
	if depth > maxDepth {
		return conf.Hidden
	}

	switch v := v.(type) {
	case *value.Map:
		out := &value.Map{}
		for k, e := range v.All() {
			out.Set(c.without(k, depth+1), c.without(e, depth+1))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = c.without(e, depth+1)
		}
		return out
	case string:
		return c.withoutText(v)
	case []byte:
		return []byte(c.withoutText(string(v)))
	case int64, uint64, float64:
		if text := value.Str(v); len(text) >= leastInText && c.secrets[text] {
			return conf.Hidden
		}
	}

	return v
}

func (c *Call) withoutText(text string) string {
	switch {
	case c.secrets[text]:
		return conf.Hidden
	case c.inTexts == nil:
		return text
	}
	return c.inTexts.Replace(text)
}

// walk goes through the arguments of a call.
type walk struct {
	call   *Call
	module string
}

// isSecret reports whether an argument or a field of this name holds a secret. "key" counts as one,
// except in functions where it means the name of a thing.
func (w walk) isSecret(name string) bool {
	if w.module == "auth" {
		return name != "username" && name != "eauth" && name != "token_expire"
	}
	if isKey.MatchString(name) {
		return w.module != "config" && w.module != "cache"
	}
	return alsoSecret.MatchString(name) || conf.IsSecret(name)
}

var (
	isKey      = regexp.MustCompile(`(?i)^key$`)
	alsoSecret = regexp.MustCompile(`(?i)passcode|(^|[-_.])(otp|pin)$|[-_.](key|auth)$`)
)

// argument returns a positional argument as others may see it.
func (w walk) argument(arg any) any {
	if w.module == "auth" {
		return w.hideValue(arg)
	}
	text, ok := arg.(string)
	if !ok {
		return w.redactField("", arg, 0)
	}
	name, rest, assigned := strings.Cut(text, "=")
	if assigned && plainName.MatchString(name) && w.isSecret(name) { // hide the whole value, including blanks
		return name + "=" + value.Str(w.hideValue(rest))
	}
	return w.redactText(text)
}

var plainName = regexp.MustCompile(`^[\pL_][\pL\pN_.-]*$`)

func (w walk) fields(m *value.Map, depth int) *value.Map {
	out := &value.Map{}
	for k, v := range m.All() {
		name, _ := k.(string)
		out.Set(k, w.redactField(name, v, depth+1))
	}
	return out
}

// redactField returns a value as others may see it; name is the name of its field, "" for none.
func (w walk) redactField(name string, v any, depth int) any {
	if name != "" && w.isSecret(name) {
		return w.hideValue(v)
	}
	if depth > maxDepth {
		return w.hideValue(v)
	}

	switch v := v.(type) {
	case *value.Map:
		return w.fields(v, depth)
	case []any:
		return w.redactList(v, func(e any) any { return w.redactField("", e, depth+1) })
	case string:
		return w.redactText(v)
	case []byte:
		return []byte(w.redactText(string(v)))
	}

	return v
}

// redactList returns a list as others may see it: shown returns the public view of one element.
// After an option of a command that names a secret, the next element is its value, as in ["mysql",
// "--password", "x"].
func (w walk) redactList(list []any, shown func(any) any) []any {
	out := make([]any, len(list))
	for i, e := range list {
		if i > 0 && w.isOptionOf(list[i-1], e) {
			out[i] = w.hideValue(e)
		} else {
			out[i] = shown(e)
		}
	}
	return out
}

// isOptionOf reports whether a text is the option of a command whose value is a secret.
func (w walk) isOptionOf(option, value any) bool {
	text, _ := option.(string)
	name := strings.TrimLeft(text, "-")
	next, _ := value.(string)
	return name != text && plainName.MatchString(name) && w.isSecret(name) && !strings.HasPrefix(next, "--")
}

// redactText hides secrets that are recognisable by their form in a text.
func (w walk) redactText(text string) string {
	return w.eachSecret(text, w.noteSecret)
}

// hideValue records all values in a secret and returns their replacement. Nothing, true and false
// are not secrets.
func (w walk) hideValue(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		if v == "" {
			return v
		}
	case *value.Map:
		if v.Len() == 0 {
			return v
		}
	case []any:
		if len(v) == 0 {
			return v
		}
	}

	w.keepAll(v, 0)
	return conf.Hidden
}

func (w walk) keepAll(v any, depth int) {
	if depth > maxDepth {
		w.call.overflow = true
		return
	}

	switch v := v.(type) {
	case *value.Map:
		for _, e := range v.All() {
			w.keepAll(e, depth+1)
		}
	case []any:
		for _, e := range v {
			w.keepAll(e, depth+1)
		}
	case nil, bool:
	case []byte:
		w.noteSecret(string(v))
	default:
		w.noteSecret(value.Str(v))
	}
}

// noteSecret records a secret in the spellings in which errors and JSON quote it.
func (w walk) noteSecret(secret string) {
	if strings.TrimSpace(secret) == "" || secret == conf.Hidden {
		return
	}
	quoted := strconv.Quote(secret)
	python := value.Repr(secret)
	for _, spelling := range []string{secret, quoted[1 : len(quoted)-1], python[1 : len(python)-1]} {
		if len(w.call.secrets) >= maxSecrets && !w.call.secrets[spelling] {
			w.call.overflow = true
			return
		}
		w.call.secrets[spelling] = true
	}
}
