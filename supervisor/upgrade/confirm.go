package upgrade

import (
	"context"
	"errors"
	"time"
)

// Well reports whether the node works as it should at this moment.
type Well func(context.Context) bool

// ErrNotWell means that the node was not healthy in time with the new version.
var ErrNotWell = errors.New("upgrade: the node has not become well with this version")

// Confirm waits until well has returned true for steadyFor without interruption, and then marks the
// running version good. It calls well every interval, and returns ErrNotWell after limit.
func (s *System) Confirm(ctx context.Context, well Well, interval, steadyFor, limit time.Duration) error {
	st, err := s.Status()
	if err != nil {
		return err
	}
	if !st.Trying {
		return nil
	}

	began := time.Now()
	var since time.Time
	tick := time.NewTicker(interval)
	defer tick.Stop()

	for {
		now := time.Now()
		switch {
		case !well(ctx):
			since = time.Time{}
		case since.IsZero():
			since = now
		}

		if !since.IsZero() && now.Sub(since) >= steadyFor {
			return s.Good()
		}
		if now.Sub(began) >= limit {
			return ErrNotWell
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// OnTrial reports whether the running version is on trial: it has not been marked good yet. On
// machines that were not made from the image OnTrial returns false.
func (s *System) OnTrial() (bool, error) {
	line, err := small(or(s.Cmdline, "/proc/cmdline"))
	if err != nil || !hasWord(line, "saltern.try") {
		return false, err
	}
	st, err := s.Status()
	return st.Trying, err
}
