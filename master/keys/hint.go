package keys

import (
	"maps"
	"slices"

	"saltern/master/crypt"
)

// maxHints bounds the hints that wait for a check. Overflow policy: further hints are dropped; the
// next scan of the folders finds the keys that they name.
const maxHints = 16384

// Hint reports that another master saw the key pem of id in state st; None means that the other
// master removed the key. pem may be "" when the caller does not know the key. If the index agrees
// with the hint, Hint does nothing, so that the many sign-ins of known minions at other masters
// cost nothing. Otherwise Run checks the folders, and their content decides. Hint never blocks.
func (s *Store) Hint(id string, st State, pem string) {
	if st >= numStates || ValidID(id) != nil {
		return
	}

	s.mu.RLock()
	now, f := s.effective(id)
	known := now == st
	if st == Denied {
		f = s.files[Denied][id]
		known = f != nil
	}

	if f != nil && st != None && st != Denied {
		known = known && (pem == "" || f.pem == crypt.NormalizePEM(pem))
	}

	var states []State
	for o := Accepted; o < numStates; o++ {
		if o == st || st != Denied && o != Denied && s.files[o][id] != nil {
			states = append(states, o)
		}
	}
	s.mu.RUnlock()

	if known || len(states) == 0 {
		return
	}

	s.hintMu.Lock()
	if len(s.hints) < maxHints || s.hints[id] != nil {
		for _, o := range states {
			if !slices.Contains(s.hints[id], o) {
				s.hints[id] = append(s.hints[id], o)
			}
		}
	}
	s.hintMu.Unlock()

	select {
	case s.hinted <- struct{}{}:
	default:
	}
}

// takeHints checks the keys that Hint named.
func (s *Store) takeHints() {
	s.hintMu.Lock()
	hints := s.hints
	s.hints = map[string][]State{}
	s.hintMu.Unlock()

	if s.incoming != nil {
		if err := s.incoming.listFresh(); err != nil {
			s.report(err)
		}

		s.takeIncoming()
		s.hintMu.Lock()
		for id, states := range hints { // repeat the hints that may concern an incomplete file
			if s.incoming.unread(id) && len(s.hints) < maxHints {
				s.hints[id] = append(s.hints[id], states...)
				signal(s.hinted)
			}
		}
		s.hintMu.Unlock()

		maps.DeleteFunc(hints, func(id string, states []State) bool {
			return !slices.ContainsFunc(states, func(st State) bool {
				f := s.keyFileOf(st, id)
				return f == nil || f.claim == nil
			})
		})
	}

	s.examineAll(hints)
}
