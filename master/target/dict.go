package target

import (
	"strings"

	"saltern/master/value"
)

// mode is a way to compare values. All modes ignore case.
type mode uint8

const (
	wild  mode = iota // compare by a glob
	regex             // compare by a regular expression, from the beginning of the value
	exact             // compare by equality
)

const (
	// maxSteps bounds the work of one match, since a pattern with several "*:" may visit deep data
	// many times.
	maxSteps = 20000
	// maxLevels bounds the keys of one expression.
	maxLevels = 64
)

// lookup is a grain or pillar target.
type lookup struct {
	expr      string
	delimiter string
	mode      mode
	data      func(id string) (*value.Map, bool)
	ofGrains  bool // data returns grains
	effort    *Effort
}

func grains(src Source) func(string) (*value.Map, bool) {
	if src == nil {
		return nothing
	}
	return src.Grains
}

func pillar(src Source) func(string) (*value.Map, bool) {
	if src == nil {
		return nothing
	}
	return src.Pillar
}

func nothing(string) (*value.Map, bool) { return nil, false }

func newLookup(expr, delimiter string, m mode, data func(string) (*value.Map, bool), e *Effort) (node, error) {
	if strings.Count(expr, delimiter) >= maxLevels {
		return nil, errInvalid
	}
	return lookup{
		expr:      expr,
		delimiter: delimiter,
		mode:      m,
		data:      data,
		effort:    e,
	}, nil
}

// newGrainLookup returns a grain target.
func newGrainLookup(expr, delimiter string, m mode, src Source, e *Effort) (node, error) {
	n, err := newLookup(expr, delimiter, m, grains(src), e)
	if l, ok := n.(lookup); ok {
		l.ofGrains = true
		n = l
	}
	return n, err
}

func (l lookup) matches(id string) bool {
	if !l.effort.spendSteps(1) {
		return false
	}
	d, ok := l.data(id)
	return ok && subdict(d, l.expr, l.delimiter, l.mode, l.effort)
}

// subdict implements salt.utils.data.subdict_match: it reports whether data contains the key and
// value of expr. Keys may contain the delimiter, so subdict tries longer keys first. If data has a
// list under the key, one of its elements must match the value.
func subdict(data *value.Map, expr, delimiter string, m mode, e *Effort) bool {
	w := walk{mode: m, steps: maxSteps, effort: e}
	return w.subdict(data, expr, delimiter)
}

type walk struct {
	mode   mode
	steps  int
	effort *Effort
}

// spendSteps deducts cost steps from the budget of the walk and returns false when the budget is
// used up. One step is a comparison of short texts.
func (w *walk) spendSteps(cost int) bool { w.steps -= cost; return w.steps >= 0 }

func (w *walk) subdict(data *value.Map, expr, delimiter string) bool {
	parts := strings.Split(expr, delimiter)
	for i := len(parts) - 1; i > 0 && w.spendSteps(len(parts)); i-- {
		key, want := strings.Join(parts[:i], delimiter), strings.Join(parts[i:], delimiter)
		var v any = data
		if key == "*" {
			want = expr // a wildcard key: search all keys
		} else {
			found, ok := traverse(data, parts[:i])
			if !ok {
				continue
			}
			v = found
		}

		switch v := v.(type) {
		case *value.Map:
			if v.Len() > 0 && w.inMap(v, want) {
				return true
			}
		case []any:
			for _, x := range v {
				if m, ok := x.(*value.Map); ok && w.inMap(m, want) || w.matchValue(x, want) {
					return true
				}
			}
		default:
			if w.matchValue(v, want) {
				return true
			}
		}
	}

	return false
}

func (w *walk) inMap(m *value.Map, want string) bool {
	if !w.spendSteps(1) {
		return false
	}

	want, wildcard := strings.CutPrefix(want, "*:")
	if want == "*" {
		return true
	}

	if _, ok := m.Get(want); ok {
		return true
	}

	for k := range m.All() {
		if w.matchValue(k, want) {
			return true
		}
	}

	if w.subdict(m, want, ":") {
		return true
	}
	if !wildcard {
		return false
	}

	for _, v := range m.All() {
		switch v := v.(type) {
		case *value.Map:
			if w.inMap(v, want) {
				return true
			}
		case []any:
			for _, x := range v {
				if w.matchValue(x, want) {
					return true
				}
			}
		default:
			if w.matchValue(v, want) {
				return true
			}
		}
	}

	return false
}

// matchValue reports whether one value, as text in lower case, matches want by the mode of the
// walk. Salt converts regular expressions to lower case, too.
func (w *walk) matchValue(v any, want string) bool {
	if w.steps <= 0 {
		return false
	}

	have, want := strings.ToLower(pythonStr(v)), strings.ToLower(want)
	if !w.spendSteps(1 + (len(have)+len(want))/64) {
		return false
	}

	switch w.mode {
	case regex:
		return w.effort.matchRegex(want, have)
	case exact:
		return have == want
	}

	return globMatch(want, have)
}
