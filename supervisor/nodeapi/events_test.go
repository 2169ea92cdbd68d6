package nodeapi

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/history"
)

// Members ask what a node saw, strangers do not; what a hostile node says is bounded.
func TestEvents(t *testing.T) {
	c := startNode(t)
	for range history.MaxEvents + 10 {
		c.events = append(c.events,
			history.Event{Time: time.Unix(1, 0), Kind: history.Problem, Text: strings.Repeat("x", 2000)})
	}

	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()
	events, err := cl.Events(within(t), history.Query{Last: 5})
	if err != nil || len(events) != history.MaxEvents+10 {
		t.Fatalf("%d %v", len(events), err)
	}

	var l history.List
	l.Add("n1", events)
	if len(l.Events) != history.MaxEvents || l.Events[0].By != "n1" || len(l.Events[0].Text) > 1000 {
		t.Errorf("%d events, the first of %d bytes", len(l.Events), len(l.Events[0].Text))
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	if got, err := stranger.Events(within(t), history.Query{Last: 5}); err == nil || len(got) > 0 {
		t.Errorf("a stranger reads %d events", len(got))
	}

	if _, err := cl.Events(within(t), history.Query{Last: -1}); err == nil {
		t.Error("a query of -1 events was answered")
	}
}
