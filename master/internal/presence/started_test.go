package presence

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"saltern/master/cluster"
)

// TestStarted: a sign-in with a token that was not seen is a new process of its minion, at the
// time of the master that has seen it first.
func TestStarted(t *testing.T) {
	s := NewStarted()
	after := func(second float64) []string {
		ids, sure := s.After(at(second), at(100))
		if !sure {
			t.Error("it is not sure who has started")
		}
		return sortedIDs(ids)
	}

	sawAt := func(id string, token uint64, second float64, want float64, wantFresh bool) {
		t.Helper()
		since, fresh := s.Saw(id, token, at(second))
		if !since.Equal(at(want)) || fresh != wantFresh {
			t.Errorf("%s with %d at %v: since %v, fresh %v", id, token, second, since.Sub(began), fresh)
		}
	}

	sawAt("a", 1, 10, 10, true)
	sawAt("a", 1, 50, 10, false) // it signs in again, as after a refused request
	sawAt("b", 7, 20, 20, true)
	sawAt("a", 2, 60, 60, true) // it was started anew
	sawAt("a", 1, 61, 10, false)

	if got := after(15); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after 15 s: %v", got)
	}

	if got := after(60); len(got) > 0 {
		t.Errorf("after 60 s: %v", got)
	}

	// Without a token each sign-in may be that of a new process; those of a moment are one.
	sawAt("c", 0, 70, 70, true)
	sawAt("c", 0, 72, 70, false)
	sawAt("c", 0, 80, 80, true)

	// Another master has seen a process before; a later start of the same minion stays.
	sawAt("d", 1, 60, 60, true)
	sawAt("d", 2, 90, 90, true)
	sawAt("d", 1, 55, 55, false)
	if got := after(85); !slices.Equal(got, []string{"d"}) {
		t.Errorf("after 85 s: %v", got)
	}

	if got := after(57); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("after 57 s: %v", got)
	}

	s.Forget("d")
	if len(s.All(100, at(100))) != 4 { // a twice, b, c
		t.Errorf("all: %v", s.All(100, at(100)))
	}

	if latest := s.All(1, at(100)); len(latest) != 1 || latest[0].ID != "c" || latest[0].Age != 20*time.Second {
		t.Errorf("the latest: %v", latest)
	}
}

// TestAsksToken: the first start of a minion, which cannot show a token yet, is asked for it once, at
// the first request; so it is known when its connections are made anew later. Others are not asked.
func TestAsksToken(t *testing.T) {
	type step struct {
		second float64
		token  uint64 // of a sign-in
		asks   bool   // at the request after it
	}

	for name, steps := range map[string][]step{
		"first start":                  {{1, 0, true}, {1.2, 5, false}, {70, 5, false}},
		"restarted":                    {{1, 5, false}, {20, 6, false}},
		"shows none ever":              {{1, 0, true}, {1.2, 0, false}, {2, 0, false}, {70, 0, true}, {70.1, 0, false}},
		"lost the master's key":        {{1, 5, false}, {20, 0, true}, {20.1, 6, false}},
		"salt-call before the daemon":  {{1, 0, true}, {1.1, 5, false}, {8, 6, false}},
		"both begin without a token":   {{1, 0, true}, {2, 0, false}, {2.1, 5, false}, {2.2, 6, false}},
		"another master saw it before": {{5, 0, true}, {4, 5, false}, {6, 5, false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStarted()
			for _, x := range steps {
				s.Saw("a", x.token, at(x.second))
				if s.AsksToken("a", "_pillar") || s.AsksToken("a", "_return") {
					t.Errorf("after %v s: asks at a request that another process of the minion may have sent", x.second)
				}
				asks, again := s.AsksToken("a", eventCommand), s.AsksToken("a", eventCommand)
				if asks != x.asks || again || s.AsksToken("b", eventCommand) {
					t.Errorf("after %v s: asks %v, once more %v", x.second, asks, again)
				}
			}
		})
	}

	if (*Started)(nil).AsksToken("a", eventCommand) {
		t.Error("a master that is alone asks")
	}
}

// TestStartedBounds: minions and processes are bounded. Where one found no room it is not sure
// any more who has started.
func TestStartedBounds(t *testing.T) {
	s := NewStarted()
	var told []cluster.Start
	for i := range maxStarted + 1 {
		told = append(told, cluster.Start{ID: fmt.Sprint(i), Process: 1})
	}

	if fresh := s.Learn(told, at(0)); len(fresh) != maxStarted {
		t.Errorf("%d of them are known", len(fresh))
	}

	if _, sure := s.After(at(1), at(2)); sure {
		t.Error("it is sure who has started, though one found no room")
	}

	if _, sure := s.After(at(1), at(1).Add(2*startedFor)); sure {
		t.Error("it is sure of so long ago")
	}

	for i := range 100 {
		s.Saw("1", uint64(2+i), at(3+float64(i)))
	}

	if n := len(s.processes["1"]); n != maxProcesses {
		t.Errorf("%d processes of a minion", n)
	}

	later := at(0).Add(startedFor + time.Hour)
	s.Saw("1", 1000, later)
	if ids, sure := s.After(later.Add(-time.Minute), later); !sure || len(ids) != 1 || len(s.starts) != 1 {
		t.Errorf("an hour later: %v %v, %d kept", ids, sure, len(s.starts))
	}
}
