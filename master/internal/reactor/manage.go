package reactor

import (
	"context"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// ManageSpace is the prefix of the tags with which Salt's runners reactor.* send requests to the
// reactor of a running master.
const ManageSpace = event.ManageSpace

func manages(tag string) bool { return strings.Contains(tag, ManageSpace+"/") }

// manage answers a request to the reactor, and changes the rules if the request asks for that. The
// request must contain the key of the user as whom the master runs. Changes last until the master
// stops.
func (r *Engine) manage(ctx context.Context, e event.Event) {
	_, what, _ := strings.Cut(e.Tag, ManageSpace+"/")
	switch what {
	case "is_leader", "set_leader", "add", "delete", "list":
	default:
		return // the event is an answer, not a request
	}

	if may, err := event.MayOrderBy(e, event.ReactorManage, r.cfg.UserKey); !may {
		r.cfg.Log.Error("received salt/reactors/manage event without matching master_key. discarding", "tag",
			e.Tag, "origin", e.Origin, "error", err)
		return
	}

	r.awaitReaders(ctx)
	answer := func(name string, data ...any) { r.cfg.Fire(ManageSpace+"/"+name, value.NewMap(data...)) }
	switch what {
	case "set_leader":
		if v, ok := e.Data.Value("value").(bool); ok && e.Data.Str("id") == r.cfg.ID {
			r.rules.Lead(v)
		}
		fallthrough
	case "is_leader":
		answer("leader/value", "result", r.rules.Leads())
	case "add":
		result := r.rules.Add(e.Data.Str("event"), e.Data.Value("reactors"))
		answer("add-complete", "reactors", r.rules.All(), "result", result)
	case "delete":
		result := r.rules.Delete(e.Data.Str("event"))
		answer("delete-complete", "reactors", r.rules.All(), "result", result)
	case "list":
		answer("list-results", "reactors", r.rules.All())
	}
}

// awaitReaders waits up to two seconds until the event bus has accepted the sender of a request as
// a reader, so that the sender receives the answer. The sender connected to the bus before it sent
// the request, but the bus may not have accepted that connection yet.
func (r *Engine) awaitReaders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := r.cfg.Settle(ctx); err != nil {
		r.cfg.Log.Warn("a tool may miss the answer of the reactor", "error", err)
	}
}
