package main

import (
	"errors"
	"testing"
	"time"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestLedger(t *testing.T) {
	began := time.Now()
	after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	l := newLedger([]string{"sw-0", "sw-1", "sw-2"}, 1)
	find := &order{jid: "2", fun: findJob, kind: "list", target: []any{"sw-1"}}
	l.heard(find, after(1))
	l.returned(find, time.Millisecond, after(2), nil)

	if isClosed(l.done) {
		t.Error("a search for a job counts as one")
	}

	o := &order{jid: "1", fun: "test.ping", kind: "glob", target: "sw-[01]"}
	complete := l.begun("1", began, after(3))
	l.heard(o, after(5))
	l.heard(o, after(8))
	l.returned(o, 2*time.Millisecond, after(10), nil)

	if isClosed(complete) || isClosed(l.done) {
		t.Error("complete with one return of two")
	}

	l.returned(o, 0, after(20), errors.New("not taken"))
	if !isClosed(complete) || !isClosed(l.done) {
		t.Error("not complete with both returns")
	}

	jobs, faults := l.sum()
	if len(jobs) != 2 || len(faults) != 1 {
		t.Fatalf("%+v, %v", jobs, faults)
	}

	j := jobs[1]
	if j.Matched != 2 || j.Returned != 1 || j.Failed != 1 || j.Start != 3 || j.Total != 10 || j.FanOut != 3 ||
		j.Whole != 5 || j.Rate != 200 {
		t.Errorf("%+v", j)
	}
}
