package roll

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrRunning means that the node is already driving a rolling change.
var ErrRunning = errors.New("a roll is under way")

// maxSteps bounds how many steps of one change are stored. It suffices for a few steps at each of
// 64 nodes.
const maxSteps = 1000

// Driver carries out one rolling change at a time. A change continues after the caller of
// [Driver.Begin] has returned. It ends when [Driver.Run] ends, and may then be started again. The
// methods are safe for concurrent use.
type Driver[R any] struct {
	now   func() time.Time
	asked chan request[R]

	mu   sync.Mutex
	last Progress[R]
}

// Progress is the progress of the newest rolling change.
type Progress[R any] struct {
	What    string // the change's name, see [Roll]
	Since   time.Time
	Running bool
	Lines   []string // the steps so far
	Result  *R       // result of the last change that has ended; nil: none has
}

// Roll describes one rolling change that Begin starts.
type Roll[R any] struct {
	What string // name of the change for its progress
	// Begun is called before [Driver.Begin] returns. It may be nil.
	Begun func()
	// Make carries out the rolling change and returns its result. It calls note with the text of
	// each step.
	Make func(ctx context.Context, note func(step string)) R
}

type request[R any] struct {
	Roll[R]
	taken chan struct{}
	ended chan R // capacity 1: receives the result
}

// NewDriver returns a driver without a rolling change.
func NewDriver[R any](now func() time.Time) *Driver[R] {
	return &Driver[R]{now: now, asked: make(chan request[R])}
}

// Begin starts a rolling change and returns when it has begun. The channel delivers the result.
// While another change is running, or waits for [Driver.Run], Begin returns [ErrRunning]; see
// [Driver.Progress].
func (d *Driver[R]) Begin(ctx context.Context, roll Roll[R]) (<-chan R, error) {
	before, free := d.claim(roll.What)
	if !free {
		return nil, ErrRunning
	}

	q := request[R]{Roll: roll, taken: make(chan struct{}), ended: make(chan R, 1)}
	select {
	case d.asked <- q:
		<-q.taken
		return q.ended, nil
	case <-ctx.Done(): // Run is not running
		d.update(func(p *Progress[R]) { *p = before })
		return nil, ctx.Err()
	}
}

// claim replaces the stored progress with that of a new rolling change, and returns the progress of
// the previous change. It returns false if a change is running.
func (d *Driver[R]) claim(what string) (before Progress[R], free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.Running {
		return before, false
	}

	before = d.last
	d.last = Progress[R]{What: what, Since: d.now(), Running: true}
	return before, true
}

// Run carries out the rolling changes that Begin starts, until ctx ends.
func (d *Driver[R]) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-d.asked:
			d.make(ctx, q)
		}
	}
}

func (d *Driver[R]) make(ctx context.Context, q request[R]) {
	if q.Begun != nil {
		q.Begun()
	}
	close(q.taken)

	result := q.Make(ctx, d.note)
	d.update(func(p *Progress[R]) {
		p.Running = false
		p.Result = &result
	})
	q.ended <- result
}

// note records a step of the running change.
func (d *Driver[R]) note(step string) {
	d.update(func(p *Progress[R]) {
		if len(p.Lines) < maxSteps {
			p.Lines = append(p.Lines, step)
		}
	})
}

func (d *Driver[R]) update(change func(*Progress[R])) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.last)
}

// Progress returns the progress of the newest rolling change.
func (d *Driver[R]) Progress() Progress[R] {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.last
	p.Lines = append([]string{}, p.Lines...)
	return p
}
