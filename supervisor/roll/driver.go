package roll

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrRunning means that the node drives a roll already.
var ErrRunning = errors.New("a roll is under way")

// maxSteps bounds what is kept of one roll: a few lines for each of 64 nodes.
const maxSteps = 1000

// Driver makes one roll at a time. A roll goes on when whoever asked for it is gone; it ends
// with [Driver.Run], and may then be asked for again. Its methods are safe for concurrent use.
type Driver[R any] struct {
	now   func() time.Time
	asked chan request[R]

	mu   sync.Mutex
	last Progress[R]
}

// Progress is how far the newest roll is.
type Progress[R any] struct {
	What    string // as it was asked for
	Since   time.Time
	Running bool
	Lines   []string // the steps so far
	Result  *R       // when it does not run; nil: there was none
}

// Roll is one roll that somebody asks for.
type Roll[R any] struct {
	What string // names it in the progress
	// Begun is called before [Driver.Begin] returns. It may be nil.
	Begun func()
	// Make makes the roll; note keeps a step of it.
	Make func(ctx context.Context, note func(step string)) R
}

type request[R any] struct {
	Roll[R]
	taken chan struct{}
	ended chan R // takes the result without waiting
}

// NewDriver returns a driver that waits for a roll.
func NewDriver[R any](now func() time.Time) *Driver[R] {
	return &Driver[R]{now: now, asked: make(chan request[R])}
}

// Begin makes a roll, and returns when it has begun; the result comes by the channel. While
// another one is under way the error is [ErrRunning]; see [Driver.Progress].
func (d *Driver[R]) Begin(ctx context.Context, roll Roll[R]) (<-chan R, error) {
	q := request[R]{Roll: roll, taken: make(chan struct{}), ended: make(chan R, 1)}
	select {
	case d.asked <- q:
		<-q.taken
		return q.ended, nil
	default:
	}

	if d.Progress().Running {
		return nil, ErrRunning
	}

	select { // the loop is between two of them
	case d.asked <- q:
		<-q.taken
		return q.ended, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run makes the rolls that are asked for until ctx ends.
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
	d.update(func(p *Progress[R]) { *p = Progress[R]{What: q.What, Since: d.now(), Running: true} })
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

// note keeps a step of the roll that runs.
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

// Progress returns how far the newest roll is.
func (d *Driver[R]) Progress() Progress[R] {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.last
	p.Lines = append([]string{}, p.Lines...)
	return p
}
