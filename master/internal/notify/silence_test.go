package notify

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// When the list is full, those that have ended make room, and one that finds no room takes no other
// with it.
func TestSilencesAreFull(t *testing.T) {
	s, err := openSilences(filepath.Join(t.TempDir(), "silences.json"))
	check.Must(t, err)
	now := time.Now()
	var list []Silence
	for i := range maxSilences {
		list = append(list, Silence{Name: fmt.Sprint("s", i), Until: now.Add(time.Hour), Set: now})
	}
	_, err = s.put(now, list...)
	check.Must(t, err)

	longer := list[7]
	longer.Until = now.Add(2 * time.Hour)
	longer.Set = now.Add(time.Second)
	added, err := s.put(now, Silence{Name: "new", Until: now.Add(time.Hour), Set: now}, longer)
	if !errors.Is(err, errManySilences) || len(added) != 1 || added[0].Name != "s7" {
		t.Errorf("%v, %v", added, err)
	}

	ended := list[3]
	ended.Ended = true
	ended.Until = now
	ended.Set = now.Add(time.Second)
	_, err = s.put(now, ended)
	check.Must(t, err)
	added, err = s.put(now, Silence{Name: "new", Until: now.Add(time.Hour), Set: now})
	if err != nil || len(added) != 1 || len(s.known()) != maxSilences {
		t.Errorf("%v, %v", added, err)
	}

	// Another master that still has it offers it again: it does not displace others.
	if added, err := s.put(now, ended); err != nil || len(added) > 0 {
		t.Errorf("%v, %v", added, err)
	}
}

// A list that is full is no fault of the disk, and notify.unsilence frees a place.
func TestFullSilencesOfAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.startAll()
		defer w.stopAll()
		n := w.nodes[0]
		now := time.Now()
		var list []Silence
		for i := range maxSilences {
			list = append(list, Silence{Name: fmt.Sprint("s", i), Until: now.Add(time.Hour), Set: now})
		}
		_, err := n.service.silences.put(now, list...)
		check.Must(t, err)

		m := peerMessage{Silences: []Silence{{Name: "other", Until: now.Add(time.Hour), Set: now}}}
		packed, err := m.pack()
		check.Must(t, err)
		n.service.handle("n1", packed)
		n.service.diskMu.Lock()
		failed := n.service.diskFail
		n.service.diskMu.Unlock()
		if failed {
			t.Error("a full list is a fault of the disk")
		}

		_, err = n.service.unsilence(t.Context(), value.NewMap("name", "s7"))
		check.Must(t, err)
		n.service.handle("n1", packed)
		a := alert.NewKey("m", "aa:bb", now)
		if all := n.service.silences.inForce(now); len(all) != maxSilences || !n.service.silenced("r", &a, now) {
			t.Errorf("%d are in force", len(all))
		}
	})
}

// TestNumbersAreNoNames: a silence of minions, or of a rule, whose name YAML has made a number of is refused:
// without the name it would be of all.
func TestNumbersAreNoNames(t *testing.T) {
	var s *Service
	table := runner.New()
	s.AddRunners(table)
	for _, field := range []string{"name", "rule", "minions", "kind"} {
		for _, v := range []any{1.1, int64(5), true} {
			named := value.NewMap("name", "x")
			named.Set(field, v)
			_, err := table.Call(t.Context(), &runner.Env{}, "notify.silence", nil, named)
			if err == nil || !strings.Contains(err.Error(), "quotes") {
				t.Errorf("%s=%v: %v", field, v, err)
			}
		}
	}
}

// A silence that would be obeyed in part, or that nothing can match, is refused.
func TestSilenceThatMeansNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.startAll()
		defer w.stopAll()
		s := w.nodes[0].service
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		for _, args := range []*value.Map{
			value.NewMap("name", "x", "minutes", int64(5), "until", until),
			value.NewMap("name", "x", "rule", "nope"),
			value.NewMap("name", "x", "minions", "["),
			value.NewMap("name", "x", "minions", "web[1-3]db["),
			value.NewMap("name", "x", "minutes", 1.5),
		} {
			if got, err := s.silence(t.Context(), args); err == nil {
				t.Errorf("%v: %v", value.StrMax(args, 200), value.StrMax(got, 200))
			}
		}
		for _, args := range []*value.Map{
			value.NewMap("name", "a", "until", until, "minutes", nil, "rule", "r"),
			value.NewMap("name", "b", "minutes", int64(5), "minions", "web[1-3]*", "rule", "*"),
		} {
			if _, err := s.silence(t.Context(), args); err != nil {
				t.Error(err)
			}
		}
	})
}
