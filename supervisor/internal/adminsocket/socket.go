// Package adminsocket serves the requests that the master may send to this node on behalf of the
// master's users: for the state of the nodes, for their audit records, and for three changes.
// [Restarts] restarts services for users.
package adminsocket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/internal/pause"
	"saltern/internal/ratelimit"
	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/status"
)

// Socket answers the master's account, which sends requests on behalf of users of the master: for
// the state of the nodes, and for three changes. The master decides which user may request what.
// The master's account, under which salt-api runs too, can make only these changes through the
// socket, at a limited rate. Socket implements [control.Supervisor].
type Socket struct {
	cfg    Config
	asking chan struct{} // capacity 1; held while Course asks all nodes for their metrics history

	mu           sync.Mutex
	read, acted  ratelimit.Bucket
	asks         ratelimit.Bucket // limits requests for audit records
	history      control.Course   // result of the last call of Course
	historyAsked time.Time        // when history was fetched
}

// Config holds what a [Socket] uses.
type Config struct {
	Node     string
	Path     string         // path of the socket
	Account  layout.Account // account of the master
	Log      *slog.Logger
	Now      func() time.Time
	Record   *audit.Log // audit log of what is done through this node
	Observer Observer
	Restarts *Restarts
	Records  Records                                  // audit records of all nodes
	Newest   func(ctx context.Context) control.Newest // updates this node's files from the shared volume
	Member   *member.Member                           // may be nil: this node has no cluster
	Masters  Masters
}

// Observer knows the state of this node: [observe.Observer].
type Observer interface {
	Document() status.Document
	Points() []control.Point
}

// Records returns the audit records of all nodes: [records.Cluster].
type Records interface {
	Audit(ctx context.Context, q audit.Query) (audit.List, error)
}

// Masters knows the minions of all nodes: [salttools.Cluster].
type Masters interface {
	Minions(ctx context.Context, finger bool) (status.MinionList, error)
}

// New returns a socket. The socket serves nothing before [Socket.Run].
func New(cfg Config) *Socket { return &Socket{cfg: cfg, asking: make(chan struct{}, 1)} }

func readRate() ratelimit.Rate { return ratelimit.Rate{Burst: 60, PerSecond: 10} }

// recordRate returns the limit for requests for audit records. It is low, because each node reads
// files of 128 MiB for a request.
func recordRate() ratelimit.Rate { return ratelimit.Rate{Burst: 10, PerSecond: 0.5} }
func actRate() ratelimit.Rate    { return ratelimit.Rate{Burst: 6, PerSecond: 0.05} }

var errBusy = &rpc.Error{
	Code: rpc.CodeBusy,
	Text: "too much was asked of applianced: try again in half a minute",
}

// Run answers until ctx ends.
func (s *Socket) Run(ctx context.Context) {
	path, warned := s.cfg.Path, ""
	for {
		ln, err := localsock.Listen(path, 0o660, s.cfg.Account.GID)
		if err == nil {
			server := control.ServeDoor(ln, s.cfg.Account.UID, s, s.cfg.Log)
			<-ctx.Done()
			server.Close()
			return
		}

		if err.Error() != warned {
			s.cfg.Log.Warn("the master cannot ask this node's supervisor; trying again", "path", path, "error", err)
			warned = err.Error()
		}

		if pause.For(ctx, 5*time.Second) != nil {
			return
		}
	}
}

func (s *Socket) checkRate(b *ratelimit.Bucket, r ratelimit.Rate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !b.Take(s.cfg.Now(), r, 1) {
		return errBusy
	}
	return nil
}

// Appliance implements [control.Supervisor].
func (s *Socket) Appliance(context.Context) (control.Appliance, error) {
	if err := s.checkRate(&s.read, readRate()); err != nil {
		return control.Appliance{}, err
	}
	var drained []string
	if s.cfg.Member != nil {
		for _, m := range s.cfg.Member.Settings().Members {
			if m.Draining {
				drained = append(drained, m.Name)
			}
		}
	}
	return appliance(s.cfg.Observer.Document(), drained), nil
}

// appliance returns the part of a status that the master may know.
func appliance(doc status.Document, drained []string) control.Appliance {
	a := control.Appliance{
		Time:     doc.Time,
		Health:   string(doc.Health),
		Cluster:  doc.Cluster,
		Node:     doc.Node,
		Nodes:    []control.NodeState{},
		Services: []control.Service{},
		Storage:  control.Space{Kind: doc.Storage.Kind, Total: doc.Storage.Total, Free: doc.Storage.Free},
		Findings: []control.NodeProblem{},
	}

	if doc.Virtual != nil {
		a.Address, a.Holders = doc.Virtual.Address, doc.Virtual.Nodes
	}

	for _, n := range doc.Nodes {
		s := control.NodeState{
			Name:    n.Name,
			This:    n.This,
			Address: n.Address,
			Version: n.Version,
			Role:    n.Role,
			State:   n.State,
			Drained: slices.Contains(drained, n.Name),
			Master:  n.Master,
			Proxy:   n.Proxy,
			Storage: n.Storage,
			Minions: n.Minions,
		}

		if n.LastSeen != nil {
			s.LastSeen = *n.LastSeen
		}

		a.Nodes = append(a.Nodes, s)
	}

	for _, s := range doc.Services {
		a.Services = append(a.Services, control.Service{
			Name:     s.Name,
			State:    s.State,
			Message:  s.Message,
			Since:    s.Since,
			Restarts: s.Restarts,
		})
	}

	for _, p := range doc.Problems {
		a.Findings = append(a.Findings, control.NodeProblem{
			Code:     string(p.Code),
			Severity: string(p.Severity),
			Title:    p.Title,
			Subject:  p.Subject,
			Cause:    p.Cause,
			Next:     p.Next,
			Since:    p.Since,
		})
	}

	return a.Clean()
}

func (s *Socket) peers() map[string]*nodeapi.Client {
	if s.cfg.Member == nil {
		return nil
	}
	return s.cfg.Member.Peers()
}

// Course implements [control.Supervisor]. It asks all nodes for their metrics history, at most
// twice a minute.
func (s *Socket) Course(ctx context.Context) (control.Course, error) {
	if err := s.checkRate(&s.read, readRate()); err != nil {
		return control.Course{}, err
	}

	select {
	case s.asking <- struct{}{}: // concurrent callers wait here, and use the history that the first of them fetches
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return control.Course{}, ctx.Err()
	}

	s.mu.Lock()
	// A history serves all callers for half a minute.
	c, fresh := s.history, s.cfg.Now().Sub(s.historyAsked) < 30*time.Second
	s.mu.Unlock()

	if fresh {
		return c, nil
	}

	caller := ctx
	ctx, cancel := context.WithTimeout(caller, 10*time.Second)
	defer cancel()
	ask := map[string]func() ([]control.Point, error){s.cfg.Node: func() ([]control.Point, error) { return s.cfg.Observer.Points(), nil }}
	for name, p := range s.peers() {
		ask[name] = func() ([]control.Point, error) { return p.Points(ctx) }
	}

	c = control.Course{}
	c.Unasked = everynode.Ask(ask, func(node string, points []control.Point) {
		if len(points) > 0 {
			c.Nodes = append(c.Nodes, control.Series{Node: node, Points: points})
		}
	})

	if caller.Err() != nil {
		return control.Course{}, caller.Err() // the next caller asks the nodes
	}

	slices.SortFunc(c.Nodes, func(a, b control.Series) int { return strings.Compare(a.Node, b.Node) })
	c = c.Clean()
	s.mu.Lock()
	defer s.mu.Unlock()

	s.history, s.historyAsked = c, s.cfg.Now()
	return c, nil
}

// Records implements [control.Supervisor].
func (s *Socket) Records(ctx context.Context, q control.Question) (json.RawMessage, error) {
	if err := s.checkRate(&s.asks, recordRate()); err != nil {
		return nil, err
	}
	query, err := audit.ParseQuery(audit.Query{
		Since:   q.Since,
		User:    q.User,
		Action:  q.Action,
		Last:    q.Last,
		Acts:    q.Acts,
		Refused: q.Refused,
	}.Values())
	if err != nil {
		return nil, &rpc.Error{Code: rpc.CodeBadRequest, Text: err.Error()}
	}
	list, err := s.cfg.Records.Audit(ctx, query)
	if err != nil {
		return nil, err
	}
	return json.Marshal(list)
}

// actor returns the user on whose behalf the master sends a request. The user is only the master's
// claim, so the actor also names the account that made the claim.
func (s *Socket) actor(by control.By) audit.Actor {
	proof := audit.Proof(by.Proof)
	if !slices.Contains([]audit.Proof{audit.Token, audit.Password, audit.Key}, proof) {
		proof = audit.Unproven
	}
	return audit.Actor{
		User:    by.User,
		Proof:   proof,
		As:      cmp.Or(s.cfg.Account.Name, "root"),
		Eauth:   by.Eauth,
		From:    by.From,
		Via:     cmp.Or(by.Via, "salt-master"),
		Limited: by.Limited,
	}
}

// recorded calls act, which a user has asked for, and writes audit records before and after it.
func (s *Socket) recorded(
	ctx context.Context,
	by control.By,
	action, object string,
	goesOn bool,
	act func(context.Context) error,
) error {
	r := audit.Record{
		Actor:  s.actor(by),
		Action: action,
		Object: object,
		Op:     audit.NewOp(),
		Result: audit.Asked,
	}

	if err := s.checkRate(&s.acted, actRate()); err != nil {
		r.Result = audit.Refused
		r.Detail = err.Error()
		r.Stranger = true // the record counts against the rate limit for unauthenticated senders
		s.cfg.Record.Note(r)
		return err
	}

	s.cfg.Record.Write(ctx, r)
	err := act(audit.WithActor(ctx, r.Actor))
	r = r.Ended(err)
	switch {
	case errors.Is(err, api.ErrState), errors.Is(err, service.ErrUnknown):
		r.Result = audit.Refused
		err = &rpc.Error{Code: rpc.CodeState, Text: err.Error()}
	case err == nil && goesOn:
		r.Result = audit.Started
	}

	s.cfg.Record.Note(r)
	return err
}

// DrainNode implements [control.Supervisor].
func (s *Socket) DrainNode(ctx context.Context, q control.Drain) error {
	action := "node.drain"
	if q.End {
		action = "node.undrain"
	}
	return s.recorded(ctx, q.By, action, q.Node, false, func(ctx context.Context) error {
		if s.cfg.Member == nil {
			return fmt.Errorf("%w: this node is not part of a cluster", api.ErrState)
		}
		return member.Verbs{Member: s.cfg.Member}.Drain(ctx, q.Node, q.End)
	})
}

// Restart implements [control.Supervisor].
func (s *Socket) Restart(ctx context.Context, q control.Restart) error {
	return s.recorded(ctx, q.By, "service.restart", q.Service+" of "+q.Node, true, func(ctx context.Context) error {
		if q.Node == s.cfg.Node {
			return s.cfg.Restarts.RestartSoon(q.Service)
		}
		p := s.peers()[q.Node]
		if p == nil {
			return fmt.Errorf("%w: there is no node %.70q that answers", api.ErrState, q.Node)
		}
		return p.RestartService(ctx, q.Service, q.By)
	})
}
