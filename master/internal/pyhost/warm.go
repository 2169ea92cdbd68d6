package pyhost

import (
	"slices"

	"saltern/master/value"
)

// warmth is what parents load in advance because a worker had to load it by itself: names of
// modules, which the parent imports, and paths of files, of which the parent reads the compiled code
// but does not run it. Each parent loads all of it after its start. The program of the host decides
// what is in the list; nothing of an administrator's own modules may be.
type warmth struct {
	names []string // in the order in which workers reported them
	// off is set when modules that a parent imported in advance have started threads. After that no
	// parent loads anything in advance.
	off bool
}

// learnWarm adds names to those that parents load in advance, and has p load those that it has not
// loaded yet. It ignores names that are too long, and those for which the list has no room.
func (h *Host) learnWarm(p *parent, names []string) {
	if len(names) == 0 {
		return
	}

	h.mu.Lock()
	for _, name := range names {
		full := len(h.warm.names) == maxWarm
		if !full && len(name) <= maxName && !slices.Contains(h.warm.names, name) {
			h.warm.names = append(h.warm.names, name)
		}
	}
	h.mu.Unlock()

	h.orderWarm(p)
}

// orderWarm orders a parent to load what it has not loaded in advance yet.
func (h *Host) orderWarm(p *parent) {
	h.mu.Lock()
	names := h.warm.names[p.warmed:]
	if h.warm.off {
		names = nil
	}
	p.warmed += len(names)
	h.mu.Unlock()

	for some := range slices.Chunk(names, maxOrdered) {
		if err := p.Order(value.NewMap("op", "warm", "worker", 0, "names", some), nil); err != nil {
			h.cfg.Log.Debug("Python cannot be told what to load in advance", "error", err)
			return
		}
	}
}

// replaceThreaded replaces a parent that runs threads, because a forked worker would not have these
// threads. names are the names of the threads.
func (h *Host) replaceThreaded(p *parent, names string) {
	h.mu.Lock()
	again := h.warm.off
	h.warm.off = true
	h.mu.Unlock()
	if again {
		// The parent has threads although it loaded nothing in advance. A new parent would have
		// threads, too.
		return
	}
	h.cfg.Log.Warn("modules that runners import make threads as they are imported; each call imports them for itself from now on",
		"threads", names)
	h.replaceParent(p, "it has threads")
}
