package reactor

import (
	"context"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// ManageSpace begins the tags of questions from Salt's runners reactor.* to the reactor of a running
// master.
const ManageSpace = event.ManageSpace

func manages(tag string) bool { return strings.Contains(tag, ManageSpace+"/") }

// manage answers a question to the reactor, and changes the rules if the question asks for that. The
// sender must know the key of the user whom the master runs as. Changes last until the master stops.
func (r *Engine) manage(ctx context.Context, e event.Event) {
	_, what, _ := strings.Cut(e.Tag, ManageSpace+"/")
	switch what {
	case "is_leader", "set_leader", "add", "delete", "list":
	default:
		return // an answer, not a question
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

// awaitReaders waits up to two seconds, so that the sender will hear the answer: it connected to the
// event bus before it asked, but the master may not have accepted that connection yet.
func (r *Engine) awaitReaders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := r.cfg.Settle(ctx); err != nil {
		r.cfg.Log.Warn("a tool may miss the answer of the reactor", "error", err)
	}
}
