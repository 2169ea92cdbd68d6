package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

const (
	// recheckedFor is how long the index is relied on after the files of an id were read again.
	recheckedFor = time.Second
	// maxRechecked is the largest number of ids whose last read is remembered.
	maxRechecked = 4096
)

// recheckRate is the rate at which sign-ins with another key make the master read key files again.
func recheckRate() ratelimit.Rate { return ratelimit.Rate{Burst: 100, PerSecond: 20} }

// rechecks bounds how often the files of keys are read again. Its zero value is ready.
type rechecks struct {
	mu   sync.Mutex
	rate ratelimit.Bucket
	done map[string]time.Time // when the files of an id were read last
}

var errTooManyRechecks = errors.New("too many sign-ins of minions with another key")

// begin reports whether the files of an id must be read now. It returns an error if too many were
// read lately.
func (r *rechecks) begin(id string, now time.Time) (needed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.done[id]; ok && now.Sub(at) < recheckedFor {
		return false, nil
	}
	if !r.rate.Take(now, recheckRate(), 1) {
		return false, errTooManyRechecks
	}
	return true, nil
}

// end records that the files of an id were read at the time now.
func (r *rechecks) end(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil || len(r.done) >= maxRechecked {
		r.done = map[string]time.Time{} // after this reset, a few files are read again too early
	}
	r.done[id] = now
}

// recheckKey reads the files of an id again, unless that was done a moment ago. It returns an error if
// the disk does not answer in time, or too many keys are to be read.
func (s *Service) recheckKey(ctx context.Context, id string) error {
	now := s.cfg.Secrets.cfg.Now()
	needed, err := s.rechecks.begin(id, now)
	if err != nil || !needed {
		return err
	}
	if err := s.changeStore(ctx, func() error { return s.cfg.Keys.Recheck(id) }); err != nil {
		return err
	}
	s.rechecks.end(id, now)
	return nil
}
