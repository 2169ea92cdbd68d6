// Package ratelog limits how many log lines of a kind are written, since strangers can cause some of
// them. The kind of a line is its level and the beginning of its message, up to the first colon,
// quotation mark or digit. Lines that are dropped are counted, and the next written line of their
// kind carries the count.
//
// Lines below Info are always written: they are off unless somebody looks for a fault.
package ratelog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

const (
	// Of each kind, burst lines may be written at once, and after that perSecond lines a second.
	burst     = 50
	perSecond = 2
	maxKinds  = 64
	maxKind   = 48 // how many bytes of a message, at most, make its kind
)

// Handler is a slog.Handler. It is safe for concurrent use. Handlers that WithAttrs and WithGroup
// return share its counts.
type Handler struct {
	next  slog.Handler
	kinds *kinds
}

// New returns a Handler that passes lines on to the handler next, but not too many.
func New(next slog.Handler, now func() time.Time) *Handler {
	return &Handler{next, &kinds{now: now, by: map[kind]*bucket{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.next.WithAttrs(attrs), h.kinds}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.kinds}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.next.Handle(ctx, r)
	}
	skipped, ok := h.kinds.allowLine(r)
	if !ok {
		return nil
	}
	if skipped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("skipped", skipped))
	}
	return h.next.Handle(ctx, r)
}

type kind struct {
	level slog.Level
	text  string
}

type bucket struct {
	ratelimit.Bucket
	skipped int
}

var rate = ratelimit.Rate{Burst: burst, PerSecond: perSecond}

// kinds holds a token bucket for each kind of line.
type kinds struct {
	now func() time.Time
	mu  sync.Mutex
	by  map[kind]*bucket
}

func (k *kinds) allowLine(r slog.Record) (skipped int, ok bool) {
	text := r.Message
	if i := strings.IndexAny(text, ":\"'0123456789"); i > 0 {
		text = text[:i]
	}

	key := kind{r.Level, strings.Clone(text[:min(len(text), maxKind)])}
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()

	b := k.by[key]
	if b == nil {
		// the program does not have that many kinds: a stranger makes them up; they share one bucket
		if len(k.by) >= maxKinds {
			key = kind{}
			b = k.by[key]
		}

		if b == nil {
			b = &bucket{}
			k.by[key] = b
		}
	}

	if !b.Take(now, rate, 1) {
		b.skipped++
		return 0, false
	}

	skipped, b.skipped = b.skipped, 0
	return skipped, true
}
