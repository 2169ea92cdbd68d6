package mastertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/test/check"
)

// Hostile is a text that would become a script, an attribute or an entity if a page did not escape
// it. It is a valid minion id.
const Hostile = `<img src=x onerror=alert(1)>"'&lt;`

// HostileSupervisor is a supervisor that reports hostile names.
type HostileSupervisor struct {
	mu    sync.Mutex
	Acted []control.By
	verbs []string
}

// Appliance returns a node, a cluster and services with hostile names.
func (s *HostileSupervisor) Appliance(context.Context) (control.Appliance, error) {
	evil := Hostile + "<script>alert(1)</script>"
	return control.Appliance{
		Node:    "n1",
		Health:  evil,
		Cluster: evil,
		Address: evil,
		Holders: []string{evil},
		Nodes: []control.NodeState{
			{Name: "n1", This: true, State: "ready", Role: "voter"},
			{
				Name:    evil,
				State:   evil,
				Role:    evil,
				Master:  evil,
				Storage: evil,
			},
		},
		Services: []control.Service{{Name: evil, State: evil, Message: evil}},
		Storage:  control.Space{Kind: evil},
		Findings: []control.NodeProblem{{
			Code:    evil,
			Title:   evil,
			Subject: `javascript:alert(1)`,
			Cause:   evil,
			Next:    evil,
		}},
	}, nil
}

// Course returns the history of a node with a hostile name.
func (s *HostileSupervisor) Course(context.Context) (control.Course, error) {
	n := 5.0
	return control.Course{
		Nodes:   []control.Series{{Node: Hostile, Points: []control.Point{{At: time.Now(), Minions: &n}}}},
		Unasked: map[string]string{Hostile: Hostile},
	}, nil
}

// Records returns an audit record of a node with a hostile name.
func (s *HostileSupervisor) Records(context.Context, control.Question) (json.RawMessage, error) {
	r := audit.Record{
		Time:    time.Now(),
		Node:    Hostile,
		Program: "applianced",
		Actor:   audit.Actor{User: "alice", Proof: audit.Login, From: audit.Local},
		Action:  "node.drain",
		Object:  "n3",
		Result:  audit.OK,
	}
	return json.Marshal(audit.List{
		Page:    audit.Page{Records: []audit.Record{r}},
		Unasked: map[string]string{"n3": Hostile},
	})
}

// DrainNode records the request.
func (s *HostileSupervisor) DrainNode(_ context.Context, q control.Drain) error {
	return s.act(q.By, "drain "+q.Node)
}

// Restart records the request.
func (s *HostileSupervisor) Restart(_ context.Context, q control.Restart) error {
	return s.act(q.By, "restart "+q.Service+" "+q.Node)
}

// Minion reports a minion that is connected to a node with a hostile name.
func (s *HostileSupervisor) Minion(context.Context, control.MinionQuestion) (control.MinionPlaces, error) {
	return control.MinionPlaces{Connected: true, Node: Hostile}, nil
}

// Newest reports that the master serves the original files.
func (s *HostileSupervisor) Newest(context.Context, control.NewestQuestion) (control.Newest, error) {
	return control.Newest{Direct: true}, nil
}

func (s *HostileSupervisor) act(by control.By, verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Acted, s.verbs = append(s.Acted, by), append(s.verbs, verb)
	return nil
}

// Verbs returns the recorded requests, each with its object.
func (s *HostileSupervisor) Verbs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.verbs)
}

// StartSupervised works like StartAPI, on a node with a HostileSupervisor.
func StartSupervised(t *testing.T) (*API, *HostileSupervisor) {
	t.Helper()
	dir, err := os.MkdirTemp("", "door")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "door")
	ln, err := localsock.Listen(path, 0o600, -1)
	check.Must(t, err)
	s := &HostileSupervisor{}
	door := control.ServeDoor(ln, os.Geteuid(), s, slog.New(slog.DiscardHandler))
	t.Cleanup(door.Close)
	return StartAPIWith(t, "saltern_door: "+path+"\n", "console: true\n"), s
}
