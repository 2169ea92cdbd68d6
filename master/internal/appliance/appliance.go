// Package appliance adds runners that show the state of the machines on which a master runs, and
// wheel functions that change a few things on these machines. Permissions apply as for all other
// functions. The master forwards the calls to its supervisor, over the supervisor's admin socket.
package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/runner"
	"saltern/master/value"
)

// ErrNone means that this master has no supervisor.
var ErrNone = errors.New("this master has no applianced: it runs on a host of its own")

// Appliance is a client of the supervisor's admin socket. The zero value belongs to a master
// without a supervisor.
type Appliance struct{ door *control.Door }

// New returns a client of the socket at path. The process that listens on the socket must run as
// root or as the user with the id uid. An empty path means that there is no supervisor.
func New(path string, uid int) Appliance {
	if path == "" {
		return Appliance{}
	}
	return Appliance{control.NewDoor(path, uid)}
}

// Newest asks the supervisor of this node to copy changes from the shared volume.
func (a Appliance) Newest(ctx context.Context, q control.NewestQuestion) (control.Newest, error) {
	if a.door == nil {
		return control.Newest{}, ErrNone
	}
	return a.door.Newest(ctx, q)
}

// NewestEverywhere asks the supervisors of all nodes to copy changes from the shared volume.
func (a Appliance) NewestEverywhere(ctx context.Context) (control.Newest, error) {
	return a.Newest(ctx, control.NewestQuestion{All: true})
}

// AddRunners adds the runners appliance.status and appliance.course.
func (a Appliance) AddRunners(t *runner.Table) {
	t.Add("appliance.status",
		a.plainRunner("status", func(ctx context.Context) (any, error) { return a.door.Appliance(ctx) }))
	t.Add("appliance.course", a.plainRunner("course", func(ctx context.Context) (any, error) { return a.door.Course(ctx) }))
}

// plainRunner returns a runner without arguments that returns the result of ask.
func (a Appliance) plainRunner(name string, ask func(context.Context) (any, error)) runner.Func {
	return func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		given := len(args)
		for _, k := range named.Keys() {
			if !strings.HasPrefix(k, "__") {
				given++
			}
		}

		if given > 0 {
			return nil, &runner.ArgumentError{
				Reason: fmt.Sprintf("%s() takes 0 arguments but %d were given", name, given),
				Usage:  "salt-run appliance." + name,
			}
		}

		if a.door == nil {
			return nil, ErrNone
		}

		v, err := ask(ctx)
		if err != nil {
			return nil, err
		}

		return Value(v)
	}
}

// Status returns the state of the nodes and the problems that this node reports.
func (a Appliance) Status(ctx context.Context) (control.Appliance, error) {
	if a.door == nil {
		return control.Appliance{}, ErrNone
	}
	return a.door.Appliance(ctx)
}

// Minion asks the masters of all nodes where a minion is.
func (a Appliance) Minion(ctx context.Context, id string) (control.MinionPlaces, error) {
	if a.door == nil {
		return control.MinionPlaces{}, ErrNone
	}
	return a.door.Minion(ctx, control.MinionQuestion{Minion: id})
}

// Records returns the audit records of all nodes.
func (a Appliance) Records(ctx context.Context, q audit.Query) (list audit.List, err error) {
	if a.door == nil {
		return list, ErrNone
	}
	text, err := a.door.Records(ctx, control.Question{
		Since:   q.Since,
		User:    q.User,
		Action:  q.Action,
		Last:    q.Last,
		Acts:    q.Acts,
		Refused: q.Refused,
	})
	if err != nil {
		return list, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return list, fmt.Errorf("read the records of the nodes: %w", err)
	}
	return list, nil
}

// Drain tells the load balancers to send a node no new minions. If end is set, Drain ends that
// state.
func (a Appliance) Drain(ctx context.Context, node string, end bool) error {
	if a.door == nil {
		return ErrNone
	}
	return a.door.DrainNode(ctx, control.Drain{By: byCaller(ctx), Node: node, End: end})
}

// Restart restarts a service of a node.
func (a Appliance) Restart(ctx context.Context, node, service string) error {
	if a.door == nil {
		return ErrNone
	}
	return a.door.Restart(ctx, control.Restart{By: byCaller(ctx), Node: node, Service: service})
}

// byCaller returns the user on whose behalf ctx runs. If ctx contains no user, the master's own
// reactor is the caller, and byCaller returns the user UNKNOWN.
func byCaller(ctx context.Context) control.By {
	who, ok := audit.ActorOf(ctx)
	if !ok {
		who = audit.Actor{User: "UNKNOWN", Proof: audit.Unproven, From: audit.Local}
	}
	return control.By{
		User:    who.User,
		Proof:   string(who.Proof),
		Eauth:   who.Eauth,
		From:    who.From,
		Via:     who.Via,
		Limited: who.Limited,
	}
}

// Value converts a value to Salt's types, by way of JSON.
func Value(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write down what applianced says: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		return nil, fmt.Errorf("read what applianced says: %w", err)
	}
	return ofJSON(plain), nil
}

func ofJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := value.NewMap()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			m.Set(k, ofJSON(v[k]))
		}
		return m
	case []any:
		for i := range v {
			v[i] = ofJSON(v[i])
		}
		return v
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}

		f, err := v.Float64()
		if err != nil {
			return v.String()
		}

		return f
	}

	return v
}
