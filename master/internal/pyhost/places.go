package pyhost

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// places limits how many workers run at once, and how many of them compute. A slot is here called a
// place. A caller waits in a queue for a place, until the caller's context ends.
//
// A worker first takes one of the places of all workers, and then one of the fewer places of
// workers that compute. It frees the latter as soon as it only waits, for example for minions. So
// many workers that wait hold up nobody, while a burst of calls neither takes the memory of many
// Pythons nor the processors from the master.
//
// A quarter of each kind of places is reserved for callers with a deadline, such as requests of
// minions. Callers without a deadline may be orchestrations, which occupy their places for hours.
type places struct {
	all       line
	computing line
	running   atomic.Int64 // workers that have their places
	waiting   atomic.Int64
	waited    atomic.Int64 // nanoseconds that callers have waited, in total
	left      atomic.Uint64
}

// line is a bounded number of places of one kind. Callers get them in the order of their arrival.
type line struct {
	places chan struct{}
	// patient is a further limit for callers without a deadline: three quarters of the places.
	patient chan struct{}
}

func newLine(n int) line {
	return line{
		places:  make(chan struct{}, n),
		patient: make(chan struct{}, max(1, n-n/4)),
	}
}

func newPlaces(workers, computing int) *places {
	return &places{all: newLine(workers), computing: newLine(computing)}
}

// take waits for a place of the line. The caller must call leave to free the place.
func (l line) take(ctx context.Context) (leave func(), err error) {
	limits := []chan struct{}{l.places}
	if _, hurries := ctx.Deadline(); !hurries {
		limits = []chan struct{}{l.patient, l.places}
	}

	leave = func() {}
	for _, limit := range limits {
		select {
		case limit <- struct{}{}:
			before := leave
			leave = func() { <-limit; before() }
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}

	return leave, nil
}

// place is the place of one worker.
type place struct {
	leave func() // frees the place; the owner calls it once
	// stopComputing frees the place among the workers that compute, if the worker still has it. Any
	// goroutine may call it, several times.
	stopComputing func()
}

// waitPlace waits for a place. The caller must call leave of the place to free it.
func (p *places) waitPlace(ctx context.Context) (*place, error) {
	began := time.Now()
	p.waiting.Add(1)
	defer func() {
		p.waiting.Add(-1)
		p.waited.Add(int64(time.Since(began)))
	}()

	leaveAll, err := p.all.take(ctx)
	if err != nil {
		return nil, p.noPlace(began, cap(p.all.places), "saltern_runner_max", err)
	}

	leaveComputing, err := p.computing.take(ctx)
	if err != nil {
		leaveAll()
		return nil, p.noPlace(began, cap(p.computing.places), "saltern_runner_computing", err)
	}

	p.running.Add(1)
	stopComputing := sync.OnceFunc(leaveComputing)
	leave := func() {
		p.running.Add(-1)
		stopComputing()
		leaveAll()
	}
	return &place{leave: leave, stopComputing: stopComputing}, nil
}

// noPlace counts a caller that has stopped waiting, and returns the error for it. workers is how
// many workers the option allows.
func (p *places) noPlace(began time.Time, workers int, option string, cause error) error {
	p.left.Add(1)
	return fmt.Errorf("no Python was free within %s, %d are at work (%s): %w",
		time.Since(began).Round(time.Second), workers, option, cause)
}
