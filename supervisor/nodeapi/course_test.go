package nodeapi

import (
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/internal/control"
)

// Members are told how a node did, and may have a service of it restarted, which it
// writes down with whom it is for; strangers may do neither.
func TestCourse(t *testing.T) {
	c := startNode(t)
	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()

	points, err := cl.Points(within(t))
	if err != nil || len(points) != 1 || *points[0].Minions != 3 {
		t.Errorf("%+v %v", points, err)
	}

	by := control.By{User: "alice", Eauth: "pam", From: "10.0.0.7"}
	if err := cl.RestartService(within(t), "lb", by); err != nil {
		t.Error(err)
	}

	if err := cl.RestartService(within(t), "observe", by); err == nil ||
		!strings.Contains(err.Error(), "no such service") {
		t.Errorf("%v", err)
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	if err := stranger.RestartService(within(t), "lb", by); err == nil {
		t.Error("a stranger restarts a service")
	}

	if _, err := stranger.Points(within(t)); err == nil {
		t.Error("a stranger is told")
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) != 2 || c.records[0].Result != audit.Started || c.records[1].Result != audit.Refused ||
		c.records[0].User != "n1" || !strings.Contains(c.records[0].Detail, "alice (pam) from 10.0.0.7") {
		t.Errorf("%+v", c.records)
	}
}

// Members have a node copy what is new, and are told why it could not; strangers may not.
func TestNewest(t *testing.T) {
	c := startNode(t)
	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()

	if err := cl.Newest(within(t)); err != nil {
		t.Error(err)
	}

	c.mu.Lock()
	c.newest.Why = "the shared volume does not answer"
	c.mu.Unlock()

	if err := cl.Newest(within(t)); err == nil || err.Error() != c.newest.Why {
		t.Errorf("%v", err)
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	if err := stranger.Newest(within(t)); err == nil || err.Error() == c.newest.Why {
		t.Errorf("a stranger: %v", err)
	}
}
