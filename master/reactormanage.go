package master

import (
	"crypto/subtle"
	"path/filepath"
	"strings"

	"saltern/master/event"
	"saltern/master/msgpack"
)

// manageSpace is part of the tags by which the runners reactor.* of Salt ask
// the running reactor (salt/runners/reactor.py, salt/utils/reactor.py
// Reactor.run). The name space of a runner's own job may be in front of it.
const manageSpace = "salt/reactors/manage"

func manages(tag string) bool { return strings.Contains(tag, manageSpace+"/") }

// manage answers a question to the reactor. What it changes lasts until the
// master stops. Whoever asks must know the key of the master's user.
func (r *reactor) manage(e event.Event) {
	_, what, _ := strings.Cut(e.Tag, manageSpace+"/")
	switch what {
	case "is_leader", "set_leader", "add", "delete", "list":
	default:
		return // an answer
	}
	if !r.mayManage(e.Data) {
		r.m.log.Error("received salt/reactors/manage event without matching master_key. discarding", "tag", e.Tag)
		return
	}
	answer := func(name string, data ...any) { r.m.fire(manageSpace+"/"+name, msgpack.NewMap(data...)) }
	switch what {
	case "set_leader":
		if v, ok := get(e.Data, "value").(bool); ok && e.Data.Str("id") == r.m.cfg.ID {
			r.idle.Store(!v)
			r.m.log.Info("reactor was told whether to react", "react", v)
		}
		fallthrough
	case "is_leader":
		answer("leader/value", "result", !r.idle.Load())
	case "add":
		next, ok := r.rules.Load().Added(e.Data.Str("event"), get(e.Data, "reactors"))
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

func outcome(ok bool, done, not string) *msgpack.Map {
	if ok {
		return msgpack.NewMap("status", true, "comment", done)
	}
	return msgpack.NewMap("status", false, "comment", not)
}

func (r *reactor) mayManage(data *msgpack.Map) bool {
	key, err := readUserKey(filepath.Join(r.m.cfg.CacheDir, "."+r.m.cfg.User+"_key"))
	if err != nil {
		r.m.log.Error("key of the master's user cannot be read", "error", err)
		return false
	}
	return subtle.ConstantTimeCompare([]byte(key), []byte(strings.TrimSpace(data.Str("key")))) == 1
}
