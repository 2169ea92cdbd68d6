package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/internal/fleet"
	"saltern/master/internal/postgres"
	"saltern/master/internal/postgres/settings"
	"saltern/master/internal/spool"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/check"
)

// failingHistory is a history that takes no runs while err is set.
type failingHistory struct {
	err    error
	runs   int
	latest history.Run
}

func (h *failingHistory) Misses(*history.Run) (bool, error) { return false, nil }

func (h *failingHistory) Amend(history.Run) error { return h.err }

func (h *failingHistory) Append(run history.Run) error {
	if h.err == nil {
		h.runs++
		h.latest = run
	}
	return h.err
}

func (h *failingHistory) Sync() error { return h.err }

func (h *failingHistory) Oldest() time.Time { return time.Time{} }

func (h *failingHistory) WholeSince() time.Time { return time.Unix(1, 0) }

func (h *failingHistory) HasRestored() bool { return false }

func (h *failingHistory) Query(context.Context, history.Filter, int, history.Cursor) (history.Page, error) {
	return history.Page{}, nil
}

// PostgreSQL gets the returns that the history does not take, and each of the two gets a return once.
func TestHistoryThatFailsTakesNoReturnFromPostgreSQL(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	journal, err := postgres.OpenJournal(t.TempDir(), 16<<20, time.Now, log)
	check.Must(t, err)
	defer journal.Close()
	sink := postgres.New(postgres.Config{Settings: &settings.Settings{}, Journal: journal, Now: time.Now, Log: log})
	store := &failingHistory{}
	recorder, err := fleet.New(t.Context(), fleet.Config{Store: store, Dir: t.TempDir(), Now: time.Now, Log: log})
	check.Must(t, err)
	a := &archives{recorder: recorder, journal: journal}
	add := func(minion string) error {
		return a.Add(jobs.Archived{
			JID:    jobs.FromTime(time.Now().Truncate(time.Hour)),
			Minion: minion,
			Time:   time.Now(),
			Own:    true,
			Return: []byte("\x81\xa6return\xc3"),
			Load:   func() *value.Map { return value.NewMap("fun", "test.ping") },
		})
	}
	want := func(doing string, waiting uint64, runs int) {
		t.Helper()
		if got := sink.Stats().Waiting; got != waiting || store.runs != runs {
			t.Errorf("%s: %d returns wait for PostgreSQL and %d are in the history, not %d and %d",
				doing, got, store.runs, waiting, runs)
		}
	}

	store.err = syscall.EIO
	for range 3 {
		if err := add("web1"); !errors.Is(err, syscall.EIO) {
			t.Errorf("the job cache is told %v", err)
		}
	}
	want("the history fails", 1, 0)

	store.err = nil
	check.Must(t, add("web1"))
	want("it takes returns again", 1, 1)

	store.err = syscall.EIO
	_ = add("web2")
	_ = add("web3") // the job cache has given up the other one
	want("returns are given up", 3, 1)

	store.err = nil
	check.Must(t, journal.Close())
	for range 3 {
		if err := add("web4"); err == nil {
			t.Error("a return is taken that PostgreSQL does not get")
		}
	}
	want("the journal fails", 3, 2)
	if n := sink.Stats().Unkept; n != 0 {
		t.Errorf("%d returns count as lost that are tried again", n)
	}
	_ = add("web5")
	if n := sink.Stats().Unkept; n != 1 {
		t.Errorf("%d returns count as lost, not the one that was given up", n)
	}
}

// What waits for PostgreSQL may be dropped: without a history the job cache has the only copy.
func TestWithoutHistoryNothingIsArchived(t *testing.T) {
	if since := (&archives{}).WholeSince(); !since.IsZero() {
		t.Errorf("all returns since %v", since)
	}
}

// A return that the history leaves out is passed to PostgreSQL once, also while that is away.
func TestReturnThatTheHistoryLeavesOut(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	journal, err := postgres.OpenJournal(dir, 16<<20, time.Now, log)
	check.Must(t, err)
	store := &failingHistory{err: history.ErrRun}
	recorder, err := fleet.New(t.Context(), fleet.Config{Store: store, Dir: t.TempDir(), Now: time.Now, Log: log})
	check.Must(t, err)
	a := &archives{recorder: recorder, journal: journal}
	refused := jobs.Archived{
		JID:    jobs.FromTime(time.Now()),
		Minion: "web1",
		Time:   time.Now(),
		Return: []byte("\x81\xa6return\xc3"),
		Load:   func() *value.Map { return value.NewMap("fun", "test.ping") },
	}
	check.Must(t, journal.Close())
	if err := a.Add(refused); err == nil || errors.Is(err, jobs.ErrLeftOut) {
		t.Errorf("the journal fails: %v", err)
	}

	a.journal, err = postgres.OpenJournal(dir, 16<<20, time.Now, log)
	check.Must(t, err)
	defer a.journal.Close()
	if err := a.Add(refused); !errors.Is(err, jobs.ErrLeftOut) || recorder.Stats().Refused != 1 {
		t.Errorf("the journal has it: %v, refused %d times", err, recorder.Stats().Refused)
	}
}

// PostgreSQL gets the summary that the history has made, the loads of jobs, and each sync.
func TestArchivesPassTheSummary(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	journal, err := postgres.OpenJournal(dir, 16<<20, time.Now, log)
	check.Must(t, err)
	store := &failingHistory{}
	recorder, err := fleet.New(t.Context(), fleet.Config{Store: store, Dir: t.TempDir(), Now: time.Now, Log: log})
	check.Must(t, err)
	a := &archives{recorder: recorder, journal: journal}
	jid := jobs.FromTime(time.Now().Truncate(time.Hour))
	load := value.NewMap("fun", "state.apply", "arg", []any{"test=True"})
	check.Must(t, a.AddJob(jobs.ArchivedJob{JID: jid, Time: time.Now(), Load: load}))
	check.Must(t, a.Add(jobs.Archived{
		JID:    jid,
		Minion: "web1",
		Time:   time.Now(),
		Own:    true,
		Return: []byte("\x81\xa6return\xc3"),
		Load:   func() *value.Map { return load },
	}))
	check.Must(t, a.Sync())

	store.err = syscall.EIO
	if err := a.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the history is not synced: %v", err)
	}
	store.err = nil

	// The journal opens its file by name to sync it.
	check.Must(t, a.AddJob(jobs.ArchivedJob{JID: jid, Time: time.Now(), Load: load}))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	check.Must(t, err)
	for _, file := range files {
		check.Must(t, os.Rename(file, file+"~"))
		check.Must(t, os.Mkdir(file, 0o700))
	}
	if err := a.Sync(); err == nil {
		t.Error("the journal is not synced, and nobody is told")
	}
	for _, file := range files {
		check.Must(t, os.Remove(file))
		check.Must(t, os.Rename(file+"~", file))
	}
	check.Must(t, journal.Close())

	kept, err := spool.Open(spool.Config{Dir: filepath.Join(dir, "own"), Bytes: 8 << 20, Durable: true})
	check.Must(t, err)
	defer kept.Close()
	reader, err := kept.Reader("postgresql")
	check.Must(t, err)
	records, _, err := reader.Read(10, 1<<20)
	check.Must(t, err)
	if !store.latest.Summary.Test || len(records) != 3 ||
		!bytes.Contains(records[1], summary.Append(nil, store.latest.Summary)) {
		t.Errorf("%d records; the summary is of a test: %v", len(records), store.latest.Summary.Test)
	}
}
