package mount

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// Keeper watches a mount. It mounts the volume again when the mount was lost, when its client died,
// or when it hangs for too long.
type Keeper struct {
	Probe   func(context.Context) Health
	Mount   func(context.Context) error
	Unmount func(ctx context.Context, abort bool) error
	Log     *slog.Logger
	// Every is the time between probes; 0 means 5 s.
	Every time.Duration
	// Patience is how long a mount may be stale or hung before Keeper replaces it. 0 means 30 s. A
	// mount whose client has ended is replaced at once. A mount that hangs because the volume has
	// lost its quorum recovers by itself, so Keeper calls Healthy before it replaces a mount. If
	// the new mount also hangs, it gets twice the time, and so on, up to ten times: on a slow
	// machine each new mount is additional work.
	Patience time.Duration
	// Healthy reports whether the volume could serve a new mount, that is, whether its bricks run.
	// It may be nil: the volume always could.
	Healthy func() bool

	mu     sync.Mutex
	last   Health
	lastAt time.Time
}

// Last returns the newest health and the time of its probe. Before the first probe the time is
// zero. Any goroutine may call Last; it never blocks.
func (k *Keeper) Last() (Health, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.lastAt
}

// Run watches the mount until ctx ends. The volume stays mounted after that.
func (k *Keeper) Run(ctx context.Context) {
	every, patience := k.Every, k.Patience
	every = cmp.Or(every, 5*time.Second)
	patience = cmp.Or(patience, 30*time.Second)
	var badSince, goodSince time.Time
	var notBefore time.Time
	hung := patience // how long the present mount may hang
	backOff := every
	state := State("")
	for {
		h := k.Probe(ctx)
		if ctx.Err() != nil {
			return
		}

		now := time.Now()
		k.mu.Lock()
		k.last, k.lastAt = h, now
		k.mu.Unlock()

		if h.State != state {
			k.Log.Info("mount", "state", string(h.State), "was", string(state), "text", h.Text)
			state = h.State
		}

		switch h.State {
		case OK:
			badSince = time.Time{}
			notBefore = time.Time{}
			backOff = every
			if goodSince.IsZero() {
				goodSince = now
			}

			if now.Sub(goodSince) >= hung {
				hung = patience
			}
		case Absent, Stale, Hung:
			goodSince = time.Time{}
			if badSince.IsZero() {
				badSince = now
			}

			limit := patience
			if h.State == Hung {
				limit = hung
			}

			// Unmount a mount that hangs for very long, even if the volume is not healthy. Every
			// probe of such a mount leaves a process that cannot end.
			bad := now.Sub(badSince)
			due := h.State == Absent || h.Ended ||
				bad >= limit && (k.Healthy == nil || k.Healthy() || bad >= 10*patience)
			if due && !now.Before(notBefore) {
				if k.remake(ctx, h.State) && h.State == Hung {
					badSince, hung = time.Time{}, min(2*hung, 10*patience)
				}
				notBefore = time.Now().Add(backOff)
				backOff = min(2*backOff, time.Minute)
			}
		}

		t := time.NewTimer(every)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// remake unmounts the volume and mounts it again. It reports whether the new mount succeeded.
func (k *Keeper) remake(ctx context.Context, was State) bool {
	if was != Absent {
		k.Log.Warn("mount is taken away to be made again", "state", string(was))
		if err := k.Unmount(ctx, true); err != nil {
			k.Log.Error("unmounting failed", "error", err)
			return false
		}
	}
	if err := k.Mount(ctx); err != nil {
		k.Log.Warn("mounting failed", "error", err)
		return false
	}
	return true
}
