package health

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/returner"
	"saltern/master/value"
	"saltern/test/await"
)

// TestLossStandsBesideItsCause: the loss of events is reported for some time, both while the
// returner accepts none and when it accepts events again.
func TestLossStandsBesideItsCause(t *testing.T) {
	bus := event.NewBus(time.Now, 0)
	events := returner.NewEvents(returner.EventsConfig{
		Dir:       t.TempDir(),
		Bytes:     4 << 10,
		Returners: []string{"own"},
		Bus:       bus,
		Open:      func(context.Context) (returner.Worker, error) { return nil, errors.New("the service is away") },
		Log:       slog.New(slog.DiscardHandler),
	})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { events.Run(ctx); close(done) }() // until cancel
	t.Cleanup(func() { cancel(); <-done })
	r := &Reporter{EventReturn: events, Problems: NewProblems(slog.New(slog.DiscardHandler), time.Now)}

	for range 100 {
		if err := bus.Fire("my/event", value.NewMap("text", strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}

	await.That(t, "the returner fails, and events are lost", func() bool {
		stats := events.Stats()
		return len(stats) == 1 && stats[0].Error != "" && stats[0].Lost > 0
	})

	for range 2 {
		r.watchReturners()
		var stand []control.Fault
		for _, p := range r.Problems.List() {
			stand = append(stand, p.What)
		}

		if len(stand) != 2 || stand[0] != control.ReturnerLoss || stand[1] != control.ReturnerFault {
			t.Errorf("these stand: %q", stand)
		}
	}
}
