package reactor

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"saltern/master/value"
)

// Rules are the rules in force, and whether this master reacts. What is changed lasts
// until the master stops. It is safe for concurrent use.
type Rules struct {
	log *slog.Logger

	mu   sync.Mutex // held by whoever changes the rules
	list atomic.Pointer[Map]
	// idle is set by reactor.set_leader False: events do not react.
	idle atomic.Bool
}

// NewRules begins with the option reactor. Entries that Salt would pass over are logged
// and passed over.
func NewRules(option []any, log *slog.Logger) *Rules {
	list, faults := Parse(option)
	for _, err := range faults {
		log.Error("entry of the option reactor is passed over", "error", err)
	}
	r := &Rules{log: log}
	r.list.Store(&list)
	return r
}

// All lists the rules, in the form of the option.
func (r *Rules) All() []any { return r.list.Load().All() }

// Files returns the files that react to a tag now.
func (r *Rules) Files(tag string) []string {
	if r.idle.Load() {
		return nil
	}
	return r.list.Load().Files(tag)
}

// Add adds a rule and tells in Salt's words how that went.
func (r *Rules) Add(tag string, files any) *value.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok := r.list.Load().Added(tag, files)
	r.list.Store(&next)
	return outcome(ok, "Reactor added.", "Reactor already exists.")
}

// Delete removes a rule and tells in Salt's words how that went.
func (r *Rules) Delete(tag string) *value.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok := r.list.Load().Removed(tag)
	r.list.Store(&next)
	return outcome(ok, "Reactor deleted.", "Reactor does not exists.")
}

// Leads reports whether this master reacts.
func (r *Rules) Leads() bool { return !r.idle.Load() }

// Lead sets whether this master reacts.
func (r *Rules) Lead(leads bool) {
	r.idle.Store(!leads)
	r.log.Info("reactor was told whether to react", "react", leads)
}

func outcome(ok bool, done, not string) *value.Map {
	if ok {
		return value.NewMap("status", true, "comment", done)
	}
	return value.NewMap("status", false, "comment", not)
}
