package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"saltern/master/internal/postgres/settings"
	"saltern/test/check"
)

func TestFault(t *testing.T) {
	j, err := OpenJournal(t.TempDir(), 400<<10, time.Now, discard())
	check.Must(t, err)
	defer j.Close()
	clock := time.Now()
	s := New(Config{
		Settings: &settings.Settings{},
		Node:     "n",
		Journal:  j,
		Now:      func() time.Time { return clock },
		Log:      discard(),
	})
	if err := s.Fault(s.Stats()); err != nil {
		t.Errorf("at the start: %v", err)
	}

	s.feeds[0].noteFailure(errors.New("connection refused"), 1)
	clock = clock.Add(faultAfter - time.Second)
	if err := s.Fault(s.Stats()); err != nil {
		t.Errorf("too early: %v", err)
	}
	clock = clock.Add(time.Second)
	if err := s.Fault(s.Stats()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("after a minute: %v", err)
	}
	s.feeds[0].count(func(st *Stats) { st.Error = "" })
	if err := s.Fault(s.Stats()); err != nil {
		t.Errorf("it takes returns again: %v", err)
	}

	addMany(t, j, 1, 2000)
	if err := s.Fault(s.Stats()); err == nil || !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("full spool: %v", err)
	}
}

func TestErrorsHideSecretsAndRows(t *testing.T) {
	err := fmt.Errorf("write returns: %w", &pgconn.PgError{
		Severity: "ERROR",
		Code:     "23514",
		Message:  "it violates a constraint",
		Detail:   "Failing row contains (hunter2)",
		Where:    "hunter2",
	})
	if got := wordError(err, "").Error(); got != "write returns: ERROR: it violates a constraint (SQLSTATE 23514)" {
		t.Error(got)
	}
	if got := wordError(errors.New("cannot connect by hunter2\n"), "hunter2").Error(); got != "cannot connect by …" {
		t.Error(got)
	}
}
