package renderer

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"saltern/master/internal/pillar/memo"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// textLimits bound the texts whose YAML Go reads. What a template makes depends on grains, which a
// minion may choose, and Go's parser takes some 200 bytes for each value. A larger text is read in
// the worker, whose memory is bounded.
var textLimits = saltyaml.Limits{Bytes: 1 << 20, Depth: 64, Nodes: 1 << 17}

// keptYAML bounds the memory for values of texts that Go has read, in bytes. Templates render the same
// text for many minions. Overflow policy: see package memo.
const keptYAML = 16 << 20

func newYAMLStore() *memo.Store { return memo.New(memo.Config{Bytes: keptYAML}) }

// yamlStore returns the values that are kept. They are dropped when the nursery stops.
func (p *Pool) yamlStore() *memo.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.yaml
}

// readKeptYAML works like ExactYAML, but reads the same text only once. A value is kept by its text
// alone, so a minion gets it only if its own templates have rendered the very same text.
func (p *Pool) readKeptYAML(text string) (any, bool) {
	key, err := memo.KeyOf(text)
	if err != nil {
		return ExactYAML(text)
	}

	store := p.yamlStore()
	if v, ok := store.Get(key, memo.Minion{}, nil); ok {
		return v, true
	}

	v, ok := ExactYAML(text)
	if ok {
		store.Put(key, memo.Minion{}, memo.Trace{}, v)
	}
	return v, ok
}

// readYAML returns the value that Salt's yaml renderer returns for text, which Jinja rendered. It
// reads the text in Go. If Go may read the text in another way than Salt, or if the text has an
// error, the session's worker reads it: errors are then in Salt's words. The value is shared and must
// not be changed.
func (s *Session) readYAML(ctx context.Context, t Template, text string) (any, error) {
	if v, ok := s.pool.readKeptYAML(text); ok {
		s.pool.updateStats(func(st *Stats) { st.YAMLInGo++ })
		return v, nil
	}

	s.pool.updateStats(func(st *Stats) { st.YAMLInPython++ })
	reply, err := s.callWorker(ctx, value.NewMap("op", "load_yaml", "text", text, "saltenv", t.saltenv(), "sls", t.SLS))
	if err != nil {
		return nil, err
	}

	return reply.Value("value"), nil
}

func (t Template) saltenv() string {
	if t.Saltenv == "" {
		return "base"
	}
	return t.Saltenv
}

// ExactYAML reads a text as Salt's yaml renderer does (salt/renderers/yaml.py render): an empty
// text is an empty map. It returns false for a text with an error, or that Salt may read in another
// way.
func ExactYAML(text string) (*value.Map, bool) {
	if !onlyPlainMarks(text) {
		return nil, false
	}

	v, err := saltyaml.DecodeWithin([]byte(text), "", textLimits)
	if err != nil {
		return nil, false
	}
	if v == nil {
		return value.NewMap(), true
	}

	m, ok := v.(*value.Map)
	return m, ok && isPlainValue(m)
}

// onlyPlainMarks reports whether a text has only characters and marks that Go's parser and libyaml
// are known to treat alike. Tags, anchors, aliases, merges, complex keys and directives are not
// among them, and neither are characters that may be line breaks.
func onlyPlainMarks(text string) bool {
	if strings.ContainsAny(text, "\t\r\u0085\u2028\u2029\ufeff") || !utf8.ValidString(text) {
		return false
	}

	before := byte('\n')
	for i := range len(text) {
		c := text[i]
		switch c {
		case '!', '&', '*', '?', '%', '<':
			if startsToken := strings.IndexByte(" \n[]{},:-?", before) >= 0; startsToken {
				return false
			}
		}
		before = c
	}

	return !bytes.Contains([]byte(text), []byte("\n..."))
}

// isPlainValue reports whether v has only values of types that also come from the worker in Python.
// A key is text, a whole number or a truth value.
func isPlainValue(v any) bool {
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return true
	case []any:
		for _, x := range v {
			if !isPlainValue(x) {
				return false
			}
		}
		return true
	case *value.Map:
		for k, x := range v.All() {
			switch k.(type) {
			case string, int64, bool:
			default:
				return false
			}
			if !isPlainValue(x) {
				return false
			}
		}
		return true
	}

	return false
}
