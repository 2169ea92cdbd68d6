// Package health reports the state of a master: lasting faults, faults of its storage, and the
// files by which others see that it serves.
package health

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
)

// Problems holds lasting faults of the master. It logs when one begins and ends, and the status
// file lists them for the supervisor. It is safe for concurrent use.
type Problems struct {
	log    *slog.Logger
	now    func() time.Time
	mu     sync.Mutex
	listed map[control.Fault]control.Problem
}

// ProblemFor is how long a problem stays listed after it last occurred. It ends then, because the
// operation whose success would end it may never be tried again.
const ProblemFor = 10 * time.Minute

// NewProblems returns an empty list.
func NewProblems(log *slog.Logger, now func() time.Time) *Problems {
	return &Problems{log: log, now: now, listed: map[control.Fault]control.Problem{}}
}

// Report records a problem, or ends it when err is nil.
func (p *Problems) Report(what control.Fault, err error) {
	if err == nil {
		p.Clear(what)
	} else {
		p.Set(what, err)
	}
}

// Set records that a problem has occurred.
func (p *Problems) Set(what control.Fault, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.listed[what]
	if !ok {
		old = control.Problem{What: what, Since: p.now()}
		p.log.Error("problem", "what", what, "error", err)
	}
	old.Text = err.Error()
	old.Count++
	old.Last = p.now()
	p.listed[what] = old
}

// Clear ends a problem, if it is listed.
func (p *Problems) Clear(what control.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(what)
}

// endLocked ends a problem, if it is listed; mu is held.
func (p *Problems) endLocked(what control.Fault) {
	if old, ok := p.listed[what]; ok {
		p.log.Info("problem is over", "what", what, "lasted", p.now().Sub(old.Since).Round(time.Second))
		delete(p.listed, what)
	}
}

// clearQuiet ends a problem that has not occurred for the last d.
func (p *Problems) clearQuiet(what control.Fault, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.listed[what].Last) > d {
		p.endLocked(what)
	}
}

// List returns the listed problems, sorted by name, and ends those older than ProblemFor.
func (p *Problems) List() []control.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]control.Problem, 0, len(p.listed))
	for what, v := range p.listed {
		if p.now().Sub(v.Last) > ProblemFor {
			p.log.Info("problem was not met again", "what", what, "for", ProblemFor)
			delete(p.listed, what)
			continue
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b control.Problem) int { return cmp.Compare(a.What, b.What) })
	return out
}
