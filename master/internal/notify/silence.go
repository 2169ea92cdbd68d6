package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/printable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/pattern"
)

// Bounds of silences.
const (
	maxSilences     = 500 // with those that have ended in the last days
	maxSilenceFile  = 1 << 20
	longestSilence  = 366 * 24 * time.Hour
	rememberedAfter = 7 * 24 * time.Hour // how long the end of a silence is remembered, so that all masters learn it
)

// Silence keeps messages from being sent. All its conditions must hold.
type Silence struct {
	Name    string     `json:"name"`
	Rule    string     `json:"rule,omitempty"`    // glob of names of rules; "": all
	Minions string     `json:"minions,omitempty"` // glob; "": all, also messages about no minion
	Kind    rules.Kind `json:"kind,omitempty"`    // "": all
	Until   time.Time  `json:"until"`
	By      string     `json:"by,omitempty"` // user
	// Set is when this version was made. Of two versions, the later one counts at all masters.
	Set time.Time `json:"set"`
	// Ended is set if somebody has ended the silence before Until.
	Ended bool `json:"ended,omitempty"`
}

func (s *Silence) valid() bool {
	for _, text := range []string{s.Name, s.Rule, s.Minions, string(s.Kind), s.By} {
		if len(text) > 255 || printable.Line(text) != text {
			return false
		}
	}
	return s.Name != "" && !s.Set.IsZero() && s.Until.Sub(s.Set) <= longestSilence
}

// inForce reports whether the silence has not ended.
func (s *Silence) inForce(now time.Time) bool { return !s.Ended && now.Before(s.Until) }

func (s *Silence) covers(rule string, a *alert.Alert, now time.Time) bool {
	return s.inForce(now) &&
		(s.Rule == "" || pattern.Glob(s.Rule, rule)) &&
		(s.Minions == "" || a.Minion != "" && pattern.Glob(s.Minions, a.Minion)) &&
		(s.Kind == "" || s.Kind == a.Kind)
}

// silences are all silences that this master knows. They are safe for concurrent use.
type silences struct {
	path string

	writing sync.Mutex // held from a change until it is in the file; taken before mu
	mu      sync.Mutex
	all     map[string]Silence
}

// openSilences reads the silences of a file. After an error there are none.
func openSilences(path string) (*silences, error) {
	s := &silences{path: path, all: map[string]Silence{}}
	content, err := durable.Read(path, maxSilenceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}

	var list []Silence
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		return s, fmt.Errorf("read the silences of notifications: %w", err)
	}

	for _, one := range list {
		if one.valid() {
			s.all[one.Name] = one
		}
	}
	return s, nil
}

var errManySilences = fmt.Errorf("there are %d silences, which is the most that are kept; end some by notify.unsilence", maxSilences)

// put adds silences that are newer than those that this master knows, and writes the file. It returns
// the silences that it added. If there is no room for one, it adds the others, and returns
// errManySilences.
func (s *silences) put(now time.Time, list ...Silence) (added []Silence, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	added, all, err := s.add(now, list)
	if len(added) == 0 {
		return nil, err
	}

	content, writeErr := json.Marshal(all)
	if writeErr == nil {
		writeErr = durable.Replace(s.path, content, 0o600)
	}
	if writeErr != nil {
		return added, fmt.Errorf("write the silences of notifications: %w", writeErr)
	}
	return added, err
}

// add adds silences to the memory, and returns those that are new, and all.
func (s *silences) add(now time.Time, list []Silence) (added, all []Silence, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.all {
		if now.Sub(one.Until) > rememberedAfter {
			delete(s.all, name)
		}
	}

	for _, one := range list {
		known, has := s.all[one.Name]
		switch {
		case has && !one.Set.After(known.Set):
			continue
		case !has && len(s.all) >= maxSilences && !one.inForce(now):
			continue // it takes no room from others
		case !has && !s.makeRoom(now):
			err = errManySilences
			continue
		}
		s.all[one.Name] = one
		added = append(added, one)
	}

	return added, s.sorted(), err
}

// makeRoom forgets a silence if there are too many: of those that have ended, the one that ended
// first. It reports whether there is room for one more. The caller holds mu.
func (s *silences) makeRoom(now time.Time) bool {
	if len(s.all) < maxSilences {
		return true
	}

	var first Silence
	for _, one := range s.all {
		if !one.inForce(now) && (first.Name == "" || one.Until.Before(first.Until)) {
			first = one
		}
	}
	delete(s.all, first.Name)
	return first.Name != ""
}

// sorted returns all silences by name. The caller holds mu.
func (s *silences) sorted() []Silence {
	list := make([]Silence, 0, len(s.all))
	for _, one := range s.all {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Silence) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// known returns all silences, also those that have ended.
func (s *silences) known() []Silence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted()
}

// inForce returns the silences that have not ended.
func (s *silences) inForce(now time.Time) []Silence {
	return slices.DeleteFunc(s.known(), func(one Silence) bool { return !one.inForce(now) })
}

// covers reports whether a silence is about an alert.
func (s *silences) covers(rule string, a *alert.Alert, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.covers(rule, a, now) {
			return true
		}
	}
	return false
}

// SilencesOf returns the silences in force that may keep messages about a minion from being sent. s may
// be nil: there are no rules.
func (s *Service) SilencesOf(minion string) (list []Silence) {
	if s == nil {
		return nil
	}
	for _, one := range s.silences.inForce(s.cfg.Now()) {
		if one.Minions == "" || pattern.Glob(one.Minions, minion) {
			list = append(list, one)
		}
	}
	return list
}
