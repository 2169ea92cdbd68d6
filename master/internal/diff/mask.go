package diff

import (
	"slices"
	"strings"
	"sync"

	"saltern/master/conf"
	"saltern/master/internal/pillar"
	"saltern/master/redact"
	"saltern/master/value"
)

const (
	// leastInText is the length in bytes from which a secret is also hidden inside other texts.
	leastInText = 5
	// leastWhole is the length in bytes from which a secret is hidden where it is a whole value.
	leastWhole = 3
	// maxSecrets bounds the secrets of one minion. If there are more, no value is shown.
	maxSecrets = 20000
	// maxSecretBytes bounds them in bytes.
	maxSecretBytes = 4 << 20
	// maxText is the length in bytes from which a text is not shown at all: it is decoded in many ways.
	maxText = 8 << 10
	// maxNames bounds the names whose secrecy is kept.
	maxNames = 50000
)

// secretNames knows which keys are named like secrets. It is safe for concurrent use.
type secretNames struct {
	mu    sync.Mutex
	known map[string]bool
}

func (n *secretNames) has(key any) bool {
	name, ok := key.(string)
	if !ok {
		return false
	}

	n.mu.Lock()
	is, known := n.known[name]
	n.mu.Unlock()
	if known {
		return is
	}

	is = redact.IsSecret(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= maxNames {
		n.known = map[string]bool{}
	}
	n.known[name] = is
	return is
}

// Words beside which another key names what a value is, as in {name: password, value: x}.
var (
	nameWords  = []string{"name", "key", "Name", "Key", "variable", "option", "field"}
	valueWords = []string{"value", "Value", "values", "val", "default", "content"}
)

// hasIn reports whether a key of a map holds a secret by its name, or by what is beside it. Some names
// are those of secrets only in data of an administrator.
func (n *secretNames) hasIn(m *value.Map, key any) bool {
	if n.has(key) {
		return true
	}

	name, _ := key.(string)
	switch strings.ToLower(name) {
	case "community", "communities": // of SNMP
		return true
	case "auth": // user and password, unless it is a group of options
		v, there := m.Get(name)
		_, isGroup := v.(*value.Map)
		return there && !isGroup
	}
	if !slices.Contains(valueWords, name) {
		return false
	}
	return slices.ContainsFunc(nameWords, func(word string) bool { return n.has(m.Value(word)) })
}

// isOptionOf reports whether the element of a list before another one is an option of a command that takes
// a secret, as in [tool, --password, x].
func (n *secretNames) isOptionOf(list []any, i int) bool {
	if i == 0 {
		return false
	}
	option, _ := list[i-1].(string)
	name := strings.TrimLeft(option, "-")
	return name != option && n.has(name)
}

// hide returns a copy of a pillar in which secrets are replaced, for templates that nobody has
// approved.
func (n *secretNames) hide(m *value.Map) *value.Map {
	out := value.NewMap()
	for k, v := range m.All() {
		if n.hasIn(m, k) && !isPublic(v) {
			out.Set(k, conf.Hidden)
			continue
		}
		out.Set(k, n.hideIn(v))
	}
	return out
}

func (n *secretNames) hideIn(v any) any {
	switch v := v.(type) {
	case *value.Map:
		return n.hide(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = conf.Hidden
			if !n.isOptionOf(v, i) {
				out[i] = n.hideIn(x)
			}
		}
		return out
	case string:
		if isSealed(v) {
			return conf.Hidden
		}
		return redact.Text(v)
	}
	return v
}

// isPublic reports whether a value says nothing even if its name is that of a secret.
func isPublic(v any) bool {
	switch v := v.(type) {
	case nil, bool:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case *value.Map:
		return v.Len() == 0
	}
	return false
}

// isSealed reports whether a text is encrypted for gpg.
func isSealed(text string) bool { return strings.Contains(text, "-----BEGIN PGP MESSAGE-----") }

// mask knows the secrets of one minion, on both sides of a comparison. It decides by place (a key
// that is named like a secret, a place of decrypt_pillar, what comes from a source of secrets), by
// form (ciphertext, private keys, passwords in URLs), and by value: a secret is hidden wherever it
// occurs, also encoded (see encoded.go).
type mask struct {
	names    *secretNames
	places   *placeTree
	texts    map[string]bool
	short    map[string]bool // secrets that are hidden as whole values only
	size     int
	overflow bool
	inTexts  *strings.Replacer
	shortest int // length of the shortest of texts, in bytes
	decoded  int // bytes of texts that were decoded so far
}

// placeTree holds places in a pillar.
type placeTree struct {
	whole bool // all below is secret
	below map[any]*placeTree
}

func (p *placeTree) child(key any) *placeTree {
	if p == nil || p.whole {
		return p
	}
	return p.below[placeKey(key)]
}

// placeKey returns a key in a form in which it can be compared.
func placeKey(key any) any {
	if k, ok := value.Scalar(key); ok {
		return k
	}
	return value.Str(key)
}

func (p *placeTree) add(path []any) {
	for _, k := range path {
		key := placeKey(k)
		if p.below == nil {
			p.below = map[any]*placeTree{}
		}
		if p.below[key] == nil {
			p.below[key] = &placeTree{}
		}
		p = p.below[key]
	}
	p.whole = true
}

// addLeaves adds the places of all values in v that are no maps.
func (p *placeTree) addLeaves(path []any, v any) {
	m, ok := v.(*value.Map)
	if !ok {
		p.add(path)
		return
	}
	for k, x := range m.All() {
		p.addLeaves(append(slices.Clip(path), k), x)
	}
}

// newMask returns the mask for the outcomes of both sides. It hides the secrets of others, too,
// where they occur. decrypted are the places of decrypt_pillar.
func newMask(names *secretNames, decrypted [][]any, sides, others []*pillar.Outcome) *mask {
	m := &mask{names: names, places: &placeTree{}, texts: map[string]bool{}, short: map[string]bool{}}
	for _, path := range decrypted {
		m.places.add(path)
	}
	for _, side := range sides {
		for _, v := range side.Secret {
			m.places.addLeaves(nil, v)
			m.collect(v, true, nil)
		}
	}
	for _, side := range sides {
		m.collect(side.Pillar, false, m.places)
		for _, v := range side.Given {
			m.collect(v, false, nil)
		}
	}
	for _, other := range others {
		m.collect(other.Pillar, false, m.places)
		for _, v := range other.Given {
			m.collect(v, false, nil)
		}
		for _, v := range other.Secret {
			m.collect(v, true, nil)
		}
	}

	var pairs []string
	for text := range m.texts {
		pairs = append(pairs, text)
		if m.shortest == 0 || len(text) < m.shortest {
			m.shortest = len(text)
		}
	}
	// The longest first: a secret may be a part of another one.
	slices.SortFunc(pairs, func(a, b string) int { return len(b) - len(a) })
	var replaced []string
	for _, text := range pairs {
		replaced = append(replaced, text, conf.Hidden)
	}
	m.inTexts = strings.NewReplacer(replaced...)
	return m
}

// collect notes the secrets in v. With all, every value is one.
func (m *mask) collect(v any, all bool, at *placeTree) {
	all = all || at != nil && at.whole
	switch v := v.(type) {
	case *value.Map:
		for k, x := range v.All() {
			m.collect(x, all || m.names.hasIn(v, k), at.child(k))
		}
	case []any:
		for i, x := range v {
			m.collect(x, all || m.names.isOptionOf(v, i), nil)
		}
	case nil, bool:
	case string:
		if all {
			m.note(v)
		}
	default:
		if all {
			m.note(value.Str(v))
		}
	}
}

func (m *mask) note(text string) {
	text = strings.TrimSpace(text)
	if len(text) < leastWhole || isSealed(text) {
		return
	}
	if m.texts[text] || m.short[text] {
		return
	}
	if m.size += 2 * len(text); len(m.texts)+len(m.short) >= maxSecrets || m.size > maxSecretBytes {
		m.overflow = true
		return
	}
	if len(text) < leastInText {
		m.short[text] = true
		return
	}
	m.texts[text] = true
	for line := range strings.Lines(text) { // a part of a key in several lines
		if line = strings.TrimSpace(line); len(line) >= 16 {
			m.texts[line] = true
		}
	}
}

// shown returns what a report shows of a value, and reports whether something in it is hidden.
func (m *mask) shown(v any, at *placeTree) (any, bool) {
	if isPublic(v) {
		return v, false
	}
	if m.overflow || at != nil && at.whole {
		return conf.Hidden, true
	}

	switch v := v.(type) {
	case *value.Map:
		out, hidden := value.NewMap(), false
		for k, x := range v.All() {
			var h bool
			if m.names.hasIn(v, k) && !isPublic(x) {
				x, h = conf.Hidden, true
			} else {
				x, h = m.shown(x, at.child(k))
			}
			out.Set(m.key(k), x)
			hidden = hidden || h
		}
		return out, hidden
	case []any:
		out, hidden := make([]any, len(v)), false
		for i, x := range v {
			h := m.names.isOptionOf(v, i)
			out[i] = conf.Hidden
			if !h {
				out[i], h = m.shown(x, nil)
			}
			hidden = hidden || h
		}
		return out, hidden
	case string:
		return m.text(v)
	case []byte:
		return conf.Hidden, true
	}

	if text := value.Str(v); m.texts[text] || m.short[text] {
		return conf.Hidden, true
	}
	return v, false
}

func (m *mask) text(text string) (string, bool) {
	if isSealed(text) || len(text) > maxText || m.short[strings.TrimSpace(text)] {
		return conf.Hidden, true
	}
	out := m.inTexts.Replace(text)
	if m.isInEscaped(out, 0) {
		return conf.Hidden, true
	}
	out = redact.Text(m.withoutEncoded(out))
	return out, out != text
}

// reason returns what a report shows of the reason of a refusal. A template may have computed the
// name of what it calls from a secret.
func (m *mask) reason(text string) string {
	if m.overflow {
		return conf.Hidden
	}
	out, _ := m.text(text)
	return out
}

// key returns what a report shows of a key.
func (m *mask) key(k any) any {
	if name, ok := k.(string); ok {
		out, _ := m.text(name)
		return out
	}
	return k
}
