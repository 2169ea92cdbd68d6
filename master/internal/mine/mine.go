// Package mine answers queries of minions for values in the mines of other minions. A mine holds
// the values that its minion publishes for other minions. The package applies the option mine_get
// and the permissions that the publishing minion has attached to a value.
//
// Sources: salt/daemons/masterapi.py (_mine_get), salt/utils/mine.py.
package mine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/master/target"
	"saltern/master/value"
)

// Keys of a value that contains its own permissions (salt/utils/mine.py).
const (
	aclID      = "__saltmine_acl__"
	aclData    = "__data__"
	allowTgt   = "allow_tgt"
	allowType  = "allow_tgt_type"
	maxFunName = 1024
	maxFuns    = 100 // largest number of functions in one query
)

// ErrTooLarge means that a query exceeds a bound.
var ErrTooLarge = errors.New("mine query is too large")

// Service answers mine queries. It is safe for concurrent use if its functions are.
type Service struct {
	// Data returns the mine of a minion.
	Data func(id string) (*value.Map, bool)
	// Resolve returns the ids that a target selects. It leaves out unknown minions. Pillar matches
	// must be exact, so that nobody can guess pillar values by mine queries. If there are
	// candidates, Resolve considers only these ids, whose keys must be accepted.
	Resolve func(e *target.Effort, tgt any, typ string, candidates ...string) ([]string, error)
	// ACL is the option mine_get: a map from regular expressions for the id of the querying minion
	// to expressions for functions. Restricted means that the option is set.
	ACL        *value.Map
	Restricted bool
	// Match reports whether pattern matches s as Python's re.match does.
	Match func(pattern, s string) bool
}

// Get answers a _mine_get load of the minion id. For one function the answer is a map of ids to
// values. For several functions it is a map of functions to such maps. e bounds and counts the
// work.
func (s *Service) Get(e *target.Effort, id string, load *value.Map) (*value.Map, error) {
	funs, several := functions(load)
	if len(funs) > maxFuns {
		return nil, fmt.Errorf("%w: %d functions, at most %d", ErrTooLarge, len(funs), maxFuns)
	}

	if s.Restricted {
		funs = s.permitted(id, funs)
	}

	ret := value.NewMap()
	if len(funs) == 0 {
		return ret, nil
	}

	tgt, _ := load.Get("tgt")
	ids, err := s.Resolve(e, tgt, targetType(load))
	if err != nil {
		return nil, fmt.Errorf("resolve the target of a mine query: %w", err)
	}

	for _, minion := range ids {
		if err := e.Do(len(funs)); err != nil {
			return nil, fmt.Errorf("answer a mine query: %w", err)
		}

		data, ok := s.Data(minion)
		if !ok {
			continue
		}

		for _, fun := range funs {
			v, ok := data.Get(fun)
			if !ok {
				continue
			}

			if v, ok = s.visibleValue(e, id, v); !ok {
				continue
			}
			if !several {
				ret.Set(minion, v)
				continue
			}

			if ret.Map(fun) == nil {
				ret.Set(fun, value.NewMap())
			}

			ret.Map(fun).Set(minion, v)
		}
	}

	return ret, nil
}

// functions returns the requested functions. several is true if the load contains a list, or a text
// with commas; then the answer must be a map by function.
func functions(load *value.Map) (funs []string, several bool) {
	raw, _ := load.Get("fun")
	switch v := raw.(type) {
	case string:
		if len(v) > maxFunName {
			return nil, false
		}

		for f := range strings.SplitSeq(v, ",") {
			if !slices.Contains(funs, f) {
				funs = append(funs, f)
			}
		}

		return funs, len(funs) > 1
	case []any:
		for _, f := range v {
			if f, ok := f.(string); ok {
				funs = append(funs, f)
			}
		}
		return funs, true
	}

	return nil, false
}

func (s *Service) permitted(id string, funs []string) []string {
	var perms, out []string
	for k, v := range s.ACL.All() {
		pattern, _ := k.(string)
		if !s.Match(pattern, id) {
			continue
		}

		if l, ok := v.([]any); ok {
			for _, p := range l {
				if p, ok := p.(string); ok {
					perms = append(perms, p)
				}
			}
		}
	}

	for _, f := range funs {
		if slices.ContainsFunc(perms, func(p string) bool { return s.Match(p, f) }) {
			out = append(out, f)
		}
	}

	return out
}

// targetType returns the field tgt_type of a load, or expr_form, which old minions send. It
// replaces types of pillar matches by the exact pillar match, so that nobody can guess values in
// the pillars of other minions. (Salt does not do that for pillar_pcre.)
func targetType(load *value.Map) string {
	typ := "glob"
	if _, ok := load.Get("tgt_type"); ok {
		typ = load.Str("tgt_type")
	} else if old := load.Str("expr_form"); old != "" {
		typ = old
	}

	typ = strings.ToLower(typ)
	switch typ {
	case "pillar", "pillar_pcre":
		return "pillar_exact"
	case "compound":
		return "compound_pillar_exact"
	}

	return typ
}

// visibleValue returns a value without the permissions attached to it. It reports whether the
// minion id may see the value.
func (s *Service) visibleValue(e *target.Effort, id string, v any) (any, bool) {
	m, ok := v.(*value.Map)
	if !ok {
		return v, true
	}

	if _, ok := m.Get(aclID); !ok {
		return v, true
	}

	data, _ := m.Get(aclData)
	tgt, ok := m.Get(allowTgt)
	if !ok {
		return data, true
	}

	typ := m.Str(allowType)
	typ = cmp.Or(typ, "glob")
	allowed, err := s.Resolve(e, tgt, typ, id)
	return data, err == nil && slices.Contains(allowed, id)
}
