package master

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// problems are the faults that last: they are logged when they come and go,
// and written to the status file for the supervisor.
type problems struct {
	log *slog.Logger
	now func() time.Time
	mu  sync.Mutex
	m   map[string]Problem
}

// Problem is a lasting fault of the master.
type Problem struct {
	What  string    `json:"what"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"` // when it was met last
	Count uint64    `json:"count"`
}

// problemFor is how long a problem is told of that nothing has met again:
// what would end it may never be tried again.
const problemFor = 10 * time.Minute

func newProblems(log *slog.Logger, now func() time.Time) *problems {
	return &problems{log: log, now: now, m: map[string]Problem{}}
}

func (p *problems) set(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.m[what]
	if !ok {
		old = Problem{What: what, Since: p.now()}
		p.log.Error("problem", "what", what, "error", err)
	}
	old.Text = err.Error()
	old.Count++
	old.Last = p.now()
	p.m[what] = old
}

func (p *problems) clear(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.m[what]; ok {
		p.log.Info("problem is over", "what", what, "lasted", p.now().Sub(old.Since).Round(time.Second))
		delete(p.m, what)
	}
}

// quiet tells whether a problem stands that has not been met for d.
func (p *problems) quiet(what string, d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.m[what]
	return ok && p.now().Sub(v.Last) > d
}

// list gives the problems that stand, by name.
func (p *problems) list() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Problem, 0, len(p.m))
	for what, v := range p.m {
		if p.now().Sub(v.Last) > problemFor {
			p.log.Info("problem was not met again", "what", what, "for", problemFor)
			delete(p.m, what)
			continue
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.What, b.What) })
	return out
}
