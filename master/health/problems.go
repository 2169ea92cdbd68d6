// Package health reports the state of a master: lasting faults, faults of its storage, and the
// files by which other programs see that the master serves.
package health

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
)

// Problems holds lasting faults of the master. It logs when a fault begins and when it ends, and
// the status file lists the faults for the supervisor. Problems is safe for concurrent use.
type Problems struct {
	log    *slog.Logger
	now    func() time.Time
	mu     sync.Mutex
	listed map[control.Fault]control.Problem
}

// ProblemFor is how long a problem remains listed after it last occurred. Then the problem is
// removed, because the operation whose success would remove it may never be tried again.
const ProblemFor = 10 * time.Minute

// NewProblems returns an empty list.
func NewProblems(log *slog.Logger, now func() time.Time) *Problems {
	return &Problems{log: log, now: now, listed: map[control.Fault]control.Problem{}}
}

// Report records a problem, or ends it when err is nil.
func (p *Problems) Report(fault control.Fault, err error) {
	if err == nil {
		p.Clear(fault)
	} else {
		p.Set(fault, err)
	}
}

// Set records that a problem has occurred.
func (p *Problems) Set(fault control.Fault, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.listed[fault]
	if !ok {
		old = control.Problem{What: fault, Since: p.now()}
		p.log.Error("problem", "what", fault, "error", err)
	}
	old.Text = err.Error()
	old.Count++
	old.Last = p.now()
	p.listed[fault] = old
}

// Clear ends a problem, if it is listed.
func (p *Problems) Clear(fault control.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(fault)
}

// endLocked ends a problem if it is listed. The caller holds mu.
func (p *Problems) endLocked(fault control.Fault) {
	if old, ok := p.listed[fault]; ok {
		p.log.Info("problem is over", "what", fault, "lasted", p.now().Sub(old.Since).Round(time.Second))
		delete(p.listed, fault)
	}
}

// clearQuiet ends a problem that has not occurred for the last d.
func (p *Problems) clearQuiet(fault control.Fault, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.listed[fault].Last) > d {
		p.endLocked(fault)
	}
}

// List returns the listed problems, sorted by name, and ends those older than ProblemFor.
func (p *Problems) List() []control.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]control.Problem, 0, len(p.listed))
	for fault, v := range p.listed {
		if p.now().Sub(v.Last) > ProblemFor {
			p.log.Info("problem was not met again", "what", fault, "for", ProblemFor)
			delete(p.listed, fault)
			continue
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b control.Problem) int { return cmp.Compare(a.What, b.What) })
	return out
}
