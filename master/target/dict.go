package target

import (
	"strings"

	"saltern/master/value"
)

// mode is how values are compared. Case never matters.
type mode uint8

const (
	wild  mode = iota // glob
	regex             // regular expression, from the beginning
	exact             // equal
)

const (
	// maxSteps bounds the work of one match: patterns with several "*:" can visit deep data again
	// and again.
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
	return lookup{expr, delimiter, m, data, e}, nil
}

func (l lookup) matches(id string) bool {
	if !l.effort.spendSteps(1) {
		return false
	}
	d, ok := l.data(id)
	return ok && subdict(d, l.expr, l.delimiter, l.mode, l.effort)
}

// subdict implements salt.utils.data.subdict_match: key:value, where keys may contain the delimiter
// and a value may be any member of a list. Deeper keys are tried first.
func subdict(data *value.Map, expr, delimiter string, m mode, e *Effort) bool {
	w := walk{mode: m, steps: maxSteps, effort: e}
	return w.subdict(data, expr, delimiter)
}

type walk struct {
	mode   mode
	steps  int
	effort *Effort
}

// spendSteps charges work to the budget; one step is a comparison of short texts. When the budget
// is used up, nothing matches.
func (w *walk) spendSteps(cost int) bool { w.steps -= cost; return w.steps >= 0 }

func (w *walk) subdict(data *value.Map, expr, delimiter string) bool {
	parts := strings.Split(expr, delimiter)
	for i := len(parts) - 1; i > 0 && w.spendSteps(len(parts)); i-- {
		key, want := strings.Join(parts[:i], delimiter), strings.Join(parts[i:], delimiter)
		var v any = data
		if key == "*" {
			want = expr // search the whole data
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

// matchValue compares one value as lower-case text. Salt converts regular expressions to lower
// case, too.
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
