package alert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/master/internal/notify/rules"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func failedRun(states ...string) Run {
	run := Run{Minion: "web1", JID: "20261129120000000000", Time: noon}
	run.Summary = summary.Summary{Function: "state.apply", Result: summary.Failed, OK: 2, Failed: len(states)}
	for _, id := range states {
		run.Summary.FailedStates = append(run.Summary.FailedStates,
			summary.State{ID: id, Function: "pkg.installed", Comment: "no such package", Changes: "password=hunter2"})
	}
	return run
}

func TestOfRun(t *testing.T) {
	a, ok := OfRun(failedRun("nginx"))
	if !ok || a.Title != "state.apply failed on web1: 1 of 3 states" || len(a.Lines) != 1 ||
		a.Lines[0] != "nginx (pkg.installed): no such package" {
		t.Errorf("%+v", a)
	}
	if strings.Contains(fmt.Sprint(a), "hunter2") {
		t.Error("what a state changed is in the message")
	}

	later := failedRun("nginx")
	later.JID = "20261129130000000000"
	other := failedRun("php")
	b, _ := OfRun(later)
	c, _ := OfRun(other)
	if b.ID == a.ID || b.Key != a.Key || c.ID != a.ID || c.Key == a.Key {
		t.Error("an id belongs to a job and a minion, a key to what failed")
	}

	drift := OfDrift(failedRun("nginx"), []summary.State{{ID: "motd"}})
	if drift.ID == a.ID || drift.Key == a.Key || drift.Kind != rules.Drift {
		t.Errorf("%+v", drift)
	}

	for result, want := range map[summary.Result]bool{
		summary.OK: false, summary.Changed: false, summary.WouldChange: false, summary.Failed: true, summary.Error: true,
	} {
		run := failedRun()
		run.Summary.Result = result
		if _, ok := OfRun(run); ok != want {
			t.Errorf("%s: %t", result, ok)
		}
	}
}

// Two masters that see the same condition, or the same problem of a third node, make alerts with
// the same key.
func TestKeysOfConditions(t *testing.T) {
	since := noon.Add(-time.Hour)
	one := OfProblem(Problem{Node: "n1", Scope: "n3", Code: "SCA-104", Subject: "n3", Title: "away", Since: since}, noon)
	two := OfProblem(Problem{Node: "n2", Scope: "n3", Code: "SCA-104", Subject: "n3", Title: "away", Since: since}, noon)
	own := OfProblem(Problem{Node: "n2", Scope: "n2", Code: "SCA-401", Title: "full", Since: since}, noon)
	if one.Key != two.Key || one.ID == two.ID || own.Key == two.Key {
		t.Error("keys of problems")
	}
	if Gone("m", since, noon, time.Hour).Key != Gone("m", noon, noon, time.Hour).Key ||
		Gone("m", since, noon, time.Hour).Key == Gone("m", since, noon, 2*time.Hour).Key {
		t.Error("keys of absences")
	}
	if NewKey("m", "aa", noon).ID == NewKey("m", "bb", noon).ID {
		t.Error("another key of the same minion")
	}
}

// FuzzClean: whatever a master sends, what is left of it is bounded and of one line each.
func FuzzClean(f *testing.F) {
	f.Add("web1", "state.apply failed", "a\nb\x1b[31m", int64(900))
	f.Add(strings.Repeat("x", 1<<20), "", strings.Repeat("\xff", 1<<16), int64(-1))
	f.Fuzz(func(t *testing.T, minion, title, line string, after int64) {
		a := Alert{ID: Digest(minion), Key: Digest(title), Kind: rules.Gone, Time: noon, Minion: minion, Title: title, After: after}
		for range 100 {
			a.Lines = append(a.Lines, line)
		}
		usable := a.Clean()
		if usable != (after >= 0) || len(a.Lines) > maxLines || a.Title == "" {
			t.Errorf("%t %+v", usable, a)
		}
		for _, text := range append(a.Lines, a.Minion, a.Title) {
			if len(text) > maxLine+10 || strings.ContainsAny(text, "\n\r\x00\x1b") {
				t.Errorf("%.400q", text)
			}
		}
	})
}
