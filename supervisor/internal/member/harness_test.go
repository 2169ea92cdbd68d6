package member

import (
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/history"
	"saltern/supervisor/status"
)

// idle is the observer of a node that does nothing.
type idle struct{}

func (idle) Document() status.Document                     { return status.Document{} }
func (idle) Serving() bool                                 { return false }
func (idle) Events(history.Query) ([]history.Event, error) { return nil, nil }
func (idle) Points() []control.Point                       { return nil }

// serving is the observer of a node that answers minions.
type serving struct{ idle }

func (serving) Serving() bool { return true }

func (serving) Document() status.Document {
	return status.Document{
		Health:       status.Healthy,
		ServingSince: &time.Time{},
		Nodes:        []status.Node{{This: true, Master: "ok", Storage: "ok"}},
	}
}

// servedElsewhere is the observer of a node whose own master is down. The masters of other nodes
// answer its minions.
type servedElsewhere struct{ serving }

func (s servedElsewhere) Document() status.Document {
	d := s.serving.Document()
	d.Health = status.Degraded
	d.Nodes[0].Master = "down"
	return d
}

// newMember returns the member of a node that does nothing else.
func newMember(t *testing.T, env Env, master Master) *Member {
	t.Helper()
	own, err := Open(env, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	return New(own, Config{Observer: idle{}, Master: master})
}
