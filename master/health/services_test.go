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
	"saltern/master/internal/postgres"
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
	t.Cleanup(func() { cancel(); <-done; events.Close() })
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

// TestPostgresThatCannotBeUsedIsListedForGood: the problem of an option that is not obeyed lasts until the next start.
func TestPostgresThatCannotBeUsedIsListedForGood(t *testing.T) {
	now := time.Now()
	r := &Reporter{
		Problems:       NewProblems(slog.New(slog.DiscardHandler), func() time.Time { return now }),
		PostgresUnable: errors.New("the journal cannot be opened"),
	}
	for range 3 {
		r.watchPostgres()
		list := r.Problems.List()
		if len(list) != 1 || list[0].What != control.PostgresFault || list[0].Text != "the journal cannot be opened" {
			t.Errorf("these stand: %v", list)
		}
		now = now.Add(ProblemFor + time.Minute)
	}
}

// TestLostCopiesAreNoLossOfTheirOwn: what was dropped of the returns of other masters is worded apart.
func TestLostCopiesAreNoLossOfTheirOwn(t *testing.T) {
	text := postgresLoss(postgres.Stats{LostCopies: 7}, postgres.Stats{}).Error()
	if !strings.Contains(text, "7 copies") || strings.Contains(text, "did not get") {
		t.Error(text)
	}
	text = postgresLoss(postgres.Stats{Lost: 1, Unkept: 2, Refused: 3, LostCopies: 7}, postgres.Stats{}).Error()
	if !strings.Contains(text, "6 records did not get") || !strings.Contains(text, "7 copies") {
		t.Error(text)
	}
}
