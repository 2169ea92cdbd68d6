package life

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/status"
)

// door is where the master's account asks for what users of the master want of the
// nodes: how they are, and three verbs. The master decides who may; its account, which
// salt-api has as well, gets no more here than these verbs, at a rate. It implements
// [control.Supervisor].
type door struct {
	env      child.Env
	account  layout.Account // of the master
	record   *audit.Log     // of what is done through this node
	document func() status.Document
	points   func() []control.Point
	restarts *restarts
	records  func(ctx context.Context, q audit.Query) (audit.List, error) // of all nodes
	newest   func(ctx context.Context) control.Newest                     // of this node
	member   *member.Member                                               // nil: this node is alone

	mu          sync.Mutex
	read, acted ratelimit.Bucket
	asks        ratelimit.Bucket // for records
	course      control.Course   // a moment ago
	asked       time.Time        // when
}

const (
	doorAgain  = 5 * time.Second
	courseKept = 30 * time.Second
	courseTake = 10 * time.Second
)

func readRate() ratelimit.Rate { return ratelimit.Rate{Burst: 60, PerSecond: 10} }

// each node reads files of 128 MiB
func recordRate() ratelimit.Rate { return ratelimit.Rate{Burst: 10, PerSecond: 0.5} }
func actRate() ratelimit.Rate    { return ratelimit.Rate{Burst: 6, PerSecond: 0.05} }

var errDoorBusy = &rpc.Error{
	Code: rpc.CodeBusy,
	Text: "too much was asked of applianced: try again in half a minute",
}

// run answers at the door until ctx ends.
func (d *door) run(ctx context.Context) {
	path, warned := d.env.Settings.DoorSocket(), ""
	for {
		ln, err := localsock.Listen(path, 0o660, d.account.GID)
		if err == nil {
			s := control.ServeDoor(ln, d.account.UID, d, d.env.Log)
			<-ctx.Done()
			s.Close()
			return
		}

		if err.Error() != warned {
			d.env.Log.Warn("the master cannot ask this node's supervisor; trying again", "path", path, "error", err)
			warned = err.Error()
		}

		if pause.For(ctx, doorAgain) != nil {
			return
		}
	}
}

func (d *door) may(b *ratelimit.Bucket, r ratelimit.Rate) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !b.Take(d.env.Now(), r, 1) {
		return errDoorBusy
	}
	return nil
}

// Appliance implements [control.Supervisor].
func (d *door) Appliance(context.Context) (control.Appliance, error) {
	if err := d.may(&d.read, readRate()); err != nil {
		return control.Appliance{}, err
	}
	var drained []string
	if d.member != nil {
		for _, m := range d.member.Settings().Members {
			if m.Draining {
				drained = append(drained, m.Name)
			}
		}
	}
	return appliance(d.document(), drained), nil
}

// appliance is what of a status the master may know.
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

func (d *door) peers() map[string]*nodeapi.Client {
	if d.member == nil {
		return nil
	}
	return d.member.Peers()
}

// Course implements [control.Supervisor]: it asks all nodes, at most twice a minute.
func (d *door) Course(ctx context.Context) (control.Course, error) {
	if err := d.may(&d.read, readRate()); err != nil {
		return control.Course{}, err
	}

	d.mu.Lock()
	c, fresh := d.course, d.env.Now().Sub(d.asked) < courseKept
	d.mu.Unlock()

	if fresh {
		return c, nil
	}

	ctx, cancel := context.WithTimeout(ctx, courseTake)
	defer cancel()
	ask := map[string]func() ([]control.Point, error){d.env.Settings.Node: func() ([]control.Point, error) { return d.points(), nil }}
	for name, p := range d.peers() {
		ask[name] = func() ([]control.Point, error) { return p.Points(ctx) }
	}

	c = control.Course{}
	c.Unasked = everynode.Ask(ask, func(node string, points []control.Point) {
		if len(points) > 0 {
			c.Nodes = append(c.Nodes, control.Series{Node: node, Points: points})
		}
	})

	slices.SortFunc(c.Nodes, func(a, b control.Series) int { return strings.Compare(a.Node, b.Node) })
	c = c.Clean()
	d.mu.Lock()
	defer d.mu.Unlock()

	d.course, d.asked = c, d.env.Now()
	return c, nil
}

// Records implements [control.Supervisor].
func (d *door) Records(ctx context.Context, q control.Question) (json.RawMessage, error) {
	if err := d.may(&d.asks, recordRate()); err != nil {
		return nil, err
	}
	query, err := audit.ParseQuery(audit.Query{Since: q.Since, User: q.User, Action: q.Action, Last: q.Last}.Values())
	if err != nil {
		return nil, &rpc.Error{Code: rpc.CodeBadRequest, Text: err.Error()}
	}
	list, err := d.records(ctx, query)
	if err != nil {
		return nil, err
	}
	return json.Marshal(list)
}

// actor is for whom the master says that it asks. It is the master's word: the account
// that brought it stands beside.
func (d *door) actor(by control.By) audit.Actor {
	proof := audit.Proof(by.Proof)
	if !slices.Contains([]audit.Proof{audit.Token, audit.Password, audit.Key}, proof) {
		proof = audit.Unproven
	}
	return audit.Actor{
		User:    by.User,
		Proof:   proof,
		As:      cmp.Or(d.account.Name, "root"),
		Eauth:   by.Eauth,
		From:    by.From,
		Via:     cmp.Or(by.Via, "salt-master"),
		Limited: by.Limited,
	}
}

// recorded does something that a user asked for, and writes it down before and after.
func (d *door) recorded(
	ctx context.Context,
	by control.By,
	action, object string,
	goesOn bool,
	do func(context.Context) error,
) error {
	r := audit.Record{
		Actor:  d.actor(by),
		Action: action,
		Object: object,
		Op:     audit.NewOp(),
		Result: audit.Asked,
	}

	if err := d.may(&d.acted, actRate()); err != nil {
		r.Result, r.Detail, r.Stranger = audit.Refused, err.Error(), true // at the rate of strangers
		d.record.Note(r)
		return err
	}

	d.record.Write(ctx, r)
	err := do(audit.WithActor(ctx, r.Actor))
	r = r.Ended(err)
	switch {
	case errors.Is(err, api.ErrState), errors.Is(err, service.ErrUnknown):
		r.Result = audit.Refused
		err = &rpc.Error{Code: rpc.CodeState, Text: err.Error()}
	case err == nil && goesOn:
		r.Result = audit.Started
	}

	d.record.Note(r)
	return err
}

// DrainNode implements [control.Supervisor].
func (d *door) DrainNode(ctx context.Context, q control.Drain) error {
	action := "node.drain"
	if q.End {
		action = "node.undrain"
	}
	return d.recorded(ctx, q.By, action, q.Node, false, func(ctx context.Context) error {
		if d.member == nil {
			return fmt.Errorf("%w: this node is not part of a cluster", api.ErrState)
		}
		return member.Verbs{Member: d.member}.Drain(ctx, q.Node, q.End)
	})
}

// Restart implements [control.Supervisor].
func (d *door) Restart(ctx context.Context, q control.Restart) error {
	return d.recorded(ctx, q.By, "service.restart", q.Service+" of "+q.Node, true, func(ctx context.Context) error {
		if q.Node == d.env.Settings.Node {
			return d.restarts.RestartSoon(q.Service)
		}
		p := d.peers()[q.Node]
		if p == nil {
			return fmt.Errorf("%w: there is no node %.70q that answers", api.ErrState, q.Node)
		}
		return p.RestartService(ctx, q.Service, q.By)
	})
}
