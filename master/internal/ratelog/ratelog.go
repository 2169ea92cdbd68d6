// Package ratelog bounds the rate of log lines of each kind, because untrusted senders can provoke
// some of them. The kind of a line is its level and the beginning of its message, up to the first
// colon, quotation mark or digit. Dropped lines are counted; the next line of the same kind that is
// written contains the count.
//
// Lines below Info are not bounded: these levels are enabled only while an administrator looks for
// a fault.
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
	// For each kind, burst lines may be written at once, and after them perSecond lines a second.
	burst     = 50
	perSecond = 2
	maxKinds  = 64
	maxKind   = 48 // how many bytes of a message determine its kind
)

// Handler is a slog.Handler. It is safe for concurrent use. The Handlers that WithAttrs and
// WithGroup return share its counts.
type Handler struct {
	next  slog.Handler
	kinds *kinds
}

// New returns a Handler that passes lines to the handler next, at a bounded rate.
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
		// The program itself does not have so many kinds of lines: an untrusted sender causes new
		// kinds. All further kinds share one bucket.
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
