package reactor

import (
	"strings"

	"saltern/master/event"
	"saltern/master/value"
)

// ManageSpace is part of the tags by which the runners reactor.* of Salt ask
// the running reactor.
const ManageSpace = event.ManageSpace

func manages(tag string) bool { return strings.Contains(tag, ManageSpace+"/") }

// manage answers a question to the reactor. What it changes lasts until the
// master stops. Whoever asks must know the key of the master's user.
func (r *Engine) manage(e event.Event) {
	_, what, _ := strings.Cut(e.Tag, ManageSpace+"/")
	switch what {
	case "is_leader", "set_leader", "add", "delete", "list":
	default:
		return // an answer
	}
	if may, err := event.MayOrderBy(e, event.ReactorManage, r.cfg.UserKey); !may {
		r.cfg.Log.Error("received salt/reactors/manage event without matching master_key. discarding", "tag", e.Tag, "origin", e.Origin, "error", err)
		return
	}
	answer := func(name string, data ...any) { r.cfg.Fire(ManageSpace+"/"+name, value.NewMap(data...)) }
	switch what {
	case "set_leader":
		if v, ok := e.Data.Value("value").(bool); ok && e.Data.Str("id") == r.cfg.ID {
			r.idle.Store(!v)
			r.cfg.Log.Info("reactor was told whether to react", "react", v)
		}
		fallthrough
	case "is_leader":
		answer("leader/value", "result", !r.idle.Load())
	case "add":
		next, ok := r.rules.Load().Added(e.Data.Str("event"), e.Data.Value("reactors"))
		r.rules.Store(&next)
		answer("add-complete", "reactors", next.All(), "result", outcome(ok, "Reactor added.", "Reactor already exists."))
	case "delete":
		next, ok := r.rules.Load().Removed(e.Data.Str("event"))
		r.rules.Store(&next)
		answer("delete-complete", "reactors", next.All(), "result", outcome(ok, "Reactor deleted.", "Reactor does not exists."))
	case "list":
		answer("list-results", "reactors", r.rules.Load().All())
	}
}

func outcome(ok bool, done, not string) *value.Map {
	if ok {
		return value.NewMap("status", true, "comment", done)
	}
	return value.NewMap("status", false, "comment", not)
}
