package pyhost

import (
	"slices"

	"saltern/master/internal/pyfork"
	"saltern/master/value"
)

// warmth is what parents load in advance because a worker had to load it by itself: names of
// modules, which the parent imports, and paths of files, of which the parent reads the compiled code
// but does not run it. Each parent loads all of it after its start. The program of the host decides
// what is in the list; nothing of an administrator's own modules may be.
type warmth struct {
	names []string // in the order in which workers reported them
	// off is set when modules that a parent imported in advance have started threads, or when their
	// import hangs. After that no parent loads anything in advance.
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

// replaceUnfit replaces a parent that modules have made unfit to fork workers: it runs threads, which a
// forked worker would not have, or it has given up an import that took too long. m is the parent's message.
func (h *Host) replaceUnfit(p *parent, m pyfork.Message) {
	why := "it has threads"
	if m.Op == opSlow {
		why = "a module takes too long to import"
	}

	// A parent that has threads although it loaded nothing in advance stays: the next one would have threads,
	// too.
	if h.stopWarming(why, m.Error) {
		h.replaceParent(p, why)
	}
}

// stopWarming ensures that parents load nothing in advance from now on, because each later parent would
// meet the same module. It returns false if that was so before. what names the cause in the log.
func (h *Host) stopWarming(why, what string) bool {
	h.mu.Lock()
	before := h.warm.off
	h.warm.off = true
	h.mu.Unlock()

	if !before {
		h.cfg.Log.Warn("a Python that imports modules of runners in advance cannot start runners; "+
			"each call imports them for itself from now on", "why", why, "what", what)
	}
	return !before
}

// hasWarmed reports whether a parent was ordered to load something in advance.
func (h *Host) hasWarmed(p *parent) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.warmed > 0
}
