// Package redact hides the secrets in the arguments of runners and wheel functions, and in their
// results, before other users see them in events, the job cache, logs and the audit record. The
// function itself gets its arguments unchanged.
//
// Names determine which values are secret: the name of a named argument, of a field at any depth in
// an argument, of an assignment in a text ("password=x", "--token x", {"api_key": "x"}), or of a
// secret option of the master. All arguments of functions of the module auth are secret, except the
// names of the user and of the system.
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
	// maxDepth bounds the depth to which arguments are searched for secrets. Values at a greater
	// depth are hidden.
	maxDepth = 64
	// maxSecrets bounds the secrets of a call. If there are more, the complete result is hidden.
	maxSecrets = 1000
	// leastInText is the least length in bytes of a secret that is also hidden inside texts and
	// numbers. A shorter secret is hidden only where a text consists of nothing else, because it
	// might occur in harmless texts by chance.
	leastInText = 5
)

// Call holds the public view of a call: its arguments without their secrets.
type Call struct {
	// Args and Named are the arguments, in which [conf.Hidden] replaces the secrets.
	Args  []any
	Named *value.Map

	secrets  map[string]bool
	overflow bool              // the call contains more secrets, or more deeply nested ones, than the bounds allow
	inTexts  *strings.Replacer // replaces the secrets in texts; nil when none is long enough
}

// Of returns the public view of a function's arguments: the arguments without their secrets. It
// does not change args and named.
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

// longestFirst orders secrets by length, the longest first. If one secret is a part of another and
// the part were replaced first, the rest of the longer secret would remain visible.
func longestFirst(a, b string) int {
	if d := len(b) - len(a); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// Found reports whether the arguments contain a secret.
func (c *Call) Found() bool { return len(c.secrets) > 0 || c.overflow }

// Secrets returns the secrets that were found, in no particular order, for a caller that must
// search other data for them. all is false if some secrets are not in the list; in that case the
// caller must show nothing that results from the call.
func (c *Call) Secrets() (secrets []any, all bool) {
	return value.List(slices.Collect(maps.Keys(c.secrets))), !c.overflow
}

// FunArgs returns the arguments in the form of Salt's events, in which the named arguments are a
// map at the end of the list (salt/client/mixins.py low).
func (c *Call) FunArgs() []any {
	if c.Named.Len() > 0 {
		return append(slices.Clone(c.Args), c.Named)
	}
	return c.Args
}

// Result returns the result of a call without the secrets in its arguments.
func (c *Call) Result(v any) any {
	switch {
	case !c.Found():
		return v
	case c.overflow:
		return conf.Hidden
	}
	return c.without(v, 0)
}

// Text returns a text that results from the call, such as an error, without the secrets in the
// call's arguments and without secrets that are recognisable by their form.
func (c *Call) Text(text string) string {
	if cleaned, ok := c.Result(text).(string); ok {
		text = cleaned
	}
	return Text(text)
}

// Error returns an error of the call with a text that other users may see. It wraps the original
// error, which the caller of the function may see.
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

// walk is a search for secrets in the arguments of a call.
type walk struct {
	call   *Call
	module string
}

// isSecret reports whether an argument or a field of this name is secret. isSecret treats the name
// "key" as secret, except for functions in which it means the name of an object.
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

// argument returns a positional argument without its secrets.
func (w walk) argument(arg any) any {
	if w.module == "auth" {
		return w.hideValue(arg)
	}
	text, ok := arg.(string)
	if !ok {
		return w.redactField("", arg, 0)
	}
	name, rest, assigned := strings.Cut(text, "=")
	if assigned && plainName.MatchString(name) && w.isSecret(name) { // hide all of the value, including blanks
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

// redactField returns a value without its secrets. name is the name of the field that holds the
// value, or "".
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

// redactList returns a list without its secrets. redactOne returns one element without its secrets.
// If an element is a command's option that names a secret, the next element is that secret, as in
// ["mysql", "--password", "x"].
func (w walk) redactList(list []any, redactOne func(any) any) []any {
	out := make([]any, len(list))
	for i, e := range list {
		if i > 0 && w.isOptionOf(list[i-1], e) {
			out[i] = w.hideValue(e)
		} else {
			out[i] = redactOne(e)
		}
	}
	return out
}

// isOptionOf reports whether option is a command's option that names a secret, so that value, the
// next element of the list, is that secret.
func (w walk) isOptionOf(option, value any) bool {
	text, _ := option.(string)
	name := strings.TrimLeft(text, "-")
	next, _ := value.(string)
	return name != text && plainName.MatchString(name) && w.isSecret(name) && !strings.HasPrefix(next, "--")
}

// redactText returns a text without secrets that are recognisable by their form.
func (w walk) redactText(text string) string {
	return w.eachSecret(text, w.noteSecret)
}

// hideValue records all values in a secret and returns the placeholder for it. nil, true and false
// are not secret: hideValue returns them unchanged.
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

// noteSecret records a secret, and the spellings in which errors and JSON quote it.
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

// IsSecret reports whether a field of this name in data of an administrator, such as a pillar,
// holds a secret.
func IsSecret(name string) bool { return walk{call: &Call{}}.isSecret(name) }
