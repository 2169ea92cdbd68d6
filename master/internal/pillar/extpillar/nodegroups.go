package extpillar

import "saltern/master/value"

// groupsOf returns the names of the groups that a minion is in (salt/pillar/nodegroups.py).
func (e *Entry) groupsOf(m Minion) (*value.Map, error) {
	names := []any{}
	for name, definition := range m.Groups.All() {
		in, err := m.InGroup(definition)
		if err != nil {
			return nil, ErrInexact
		}
		if in {
			names = append(names, name)
		}
	}
	return value.NewMap(e.pillarName, names), nil
}
