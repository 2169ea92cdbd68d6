package main

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/history"
	"saltern/supervisor/status"
)

// What several nodes saw is one line with all of them, what one saw twice is two.
func TestHistory(t *testing.T) {
	at := time.Date(2026, 11, 21, 22, 44, 0, 0, time.UTC)
	away := history.Event{
		Time:    at,
		Kind:    history.Problem,
		Code:    "SCA-104",
		Subject: "n3",
		Text:    "node n3 is unreachable",
	}

	later := func(e history.Event, by time.Duration) history.Event {
		e.Time = e.Time.Add(by)
		return e
	}

	var l history.List
	l.Add("n2", []history.Event{away, later(away, 20*time.Second)})
	l.Add("n1", []history.Event{later(away, 2*time.Second), later(away, time.Hour)})
	l.Add("n3", []history.Event{{Time: at.Add(time.Minute), Kind: history.Started, Subject: "n3", Text: "started"}})
	l.Newest(10)
	var b strings.Builder
	if err := writeHistory(&b, l.Events); err != nil {
		t.Fatal(err)
	}

	want := `TIME                 SEEN BY  WHAT     SUBJECT  EVENT
2026-11-21 22:44:00  n1,n2    SCA-104  n3       node n3 is unreachable
2026-11-21 22:44:20  n2       SCA-104  n3       node n3 is unreachable
2026-11-21 22:45:00  n3       start    n3       started
2026-11-21 23:44:00  n1       SCA-104  n3       node n3 is unreachable
`
	if b.String() != want {
		t.Errorf("\n%s", b.String())
	}

	l.Newest(1)
	if len(l.Events) != 1 || l.Events[0].By != "n1" {
		t.Errorf("%+v", l.Events)
	}
}

// What other nodes say in an event cannot move the cursor of whoever reads it.
func TestAttack26Events(t *testing.T) {
	const evil = "\x1b[2J\x07n3\r\n\u009b31m"
	var b strings.Builder
	at := time.Date(2026, 11, 21, 22, 44, 0, 0, time.UTC)
	if err := writeEvents(&b, []history.Event{{Time: at, Kind: history.Kind(evil), Subject: evil, Text: evil},
		{
			Time:    at,
			Kind:    history.Problem,
			Code:    "SCA-104",
			Subject: "n3",
			Text:    "node n3 is unreachable",
		}, {Time: at, Kind: history.Virtual, Text: "moved"}}); err != nil {
		t.Fatal(err)
	}

	if i := strings.IndexFunc(b.String(),
		func(r rune) bool {
			return r < ' ' && r != '\n' ||
				r >= 0x7f && r < 0xa0
		}); i >= 0 || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("%q", b.String())
	}

	b2 := new(strings.Builder)
	var l history.List
	l.Add("n3",
		[]history.Event{{Time: at, Kind: history.Kind(evil), Code: status.Code(evil), Subject: evil, Text: evil}})

	if err := writeHistory(b2, l.Events); err != nil ||
		strings.ContainsAny(b2.String(), "\x1b\x07\r\u009b") || strings.Count(b2.String(), "\n") != 2 {
		t.Errorf("%q %v", b2.String(), err)
	}

	if !strings.Contains(b.String(), "2026-11-21 22:44:00  SCA-104  ") || !strings.Contains(b.String(), "  -  ") {
		t.Errorf("\n%s", b.String())
	}
}
