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

func (s *Silence) covers(rule string, a *alert.Alert, now time.Time) bool {
	return !s.Ended && now.Before(s.Until) &&
		(s.Rule == "" || pattern.Glob(s.Rule, rule)) &&
		(s.Minions == "" || a.Minion != "" && pattern.Glob(s.Minions, a.Minion)) &&
		(s.Kind == "" || s.Kind == a.Kind)
}

// silences are all silences that this master knows. They are safe for concurrent use.
type silences struct {
	path string

	mu  sync.Mutex
	all map[string]Silence
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
// the silences that it added.
func (s *silences) put(now time.Time, list ...Silence) (added []Silence, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.all {
		if now.Sub(one.Until) > rememberedAfter {
			delete(s.all, name)
		}
	}

	for _, one := range list {
		known, has := s.all[one.Name]
		if has && !one.Set.After(known.Set) {
			continue
		}
		if !has && len(s.all) >= maxSilences {
			return added, errManySilences
		}
		s.all[one.Name] = one
		added = append(added, one)
	}

	if len(added) == 0 {
		return nil, nil
	}

	content, err := json.Marshal(s.sorted())
	if err == nil {
		err = durable.Replace(s.path, content, 0o600)
	}
	if err != nil {
		return added, fmt.Errorf("write the silences of notifications: %w", err)
	}
	return added, nil
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
	return slices.DeleteFunc(s.known(), func(one Silence) bool { return one.Ended || !now.Before(one.Until) })
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
