package master

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/internal/fleet"
	"saltern/master/internal/postgres"
	"saltern/master/jobs"
	"saltern/master/runner"
)

// openArchive opens what keeps returns beside the job cache: the history, and the journal of PostgreSQL. The
// archive is nil if there is neither.
func (m *Master) openArchive(ctx context.Context) jobs.Archive {
	kept := m.openHistory(ctx)
	m.openPostgres()
	if m.postgresJournal == nil {
		return kept
	}
	return &archives{recorder: m.recorder, journal: m.postgresJournal}
}

// openPostgres opens the journal of what PostgreSQL is to get, and what writes that. If the journal cannot be
// opened, the master works without it and reports a lasting problem.
func (m *Master) openPostgres() {
	c := m.cfg
	if c.PostgresOption.Len() == 0 {
		return
	}
	if !c.JobCache || c.ExtJobCache != "" {
		m.log.Warn("no returns are written to PostgreSQL, because this master keeps none (job_cache, ext_job_cache)")
	}

	err := errors.New("saltern_postgres cannot be obeyed: salt-master --check says why")
	dir := filepath.Join(c.CacheDir, "postgres")
	if c.Postgres != nil {
		m.postgresJournal, err = postgres.OpenJournal(dir, int64(c.Postgres.Spool)<<20, m.now, m.quiet)
	}
	if err != nil {
		m.log.Error("nothing is written to PostgreSQL until the master is started again", "error", err)
		m.problems.Report(control.PostgresFault, err)
		m.postgresUnable = err
		return
	}
	node := cmp.Or(c.Node, c.ID)
	if c.Postgres.Lookups {
		m.postgresLookups = postgres.NewLookups(postgres.LookupsConfig{
			Settings: c.Postgres,
			Node:     node,
			Now:      m.now,
			Log:      m.quiet,
		})
	}
	m.postgres = postgres.New(postgres.Config{
		Settings: c.Postgres,
		Node:     node,
		Journal:  m.postgresJournal,
		Lookups:  m.postgresLookups,
		Now:      m.now,
		Log:      m.quiet,
	})
}

// openPostgresEvents opens what writes events to PostgreSQL, if that is asked for. It uses the bus.
func (m *Master) openPostgresEvents() {
	c := m.cfg
	if m.postgres == nil || !c.Postgres.Events {
		return
	}
	m.postgresEvents = postgres.NewEvents(postgres.EventsConfig{
		Settings: c.Postgres,
		Dir:      filepath.Join(c.CacheDir, "postgres", "events"),
		Master:   c.ID,
		Bus:      m.bus,
		Wants:    event.ByGlobs(c.EventReturnWhitelist, c.EventReturnBlacklist),
		Now:      m.now,
		Log:      m.quiet,
	})
}

// olderJobs returns nil, not an interface with a nil pointer, on a master that does not look jobs up in PostgreSQL.
func (m *Master) olderJobs() runner.OlderJobs {
	if m.postgresLookups == nil {
		return nil
	}
	return m.postgresLookups
}

// olderRuns is olderJobs for runs.
func (m *Master) olderRuns() fleet.Older {
	if m.postgresLookups == nil {
		return nil
	}
	return m.postgresLookups
}

// closePostgres closes the journal of PostgreSQL. The job cache must be closed before.
func (m *Master) closePostgres() error {
	if m.postgresJournal == nil {
		return nil
	}
	err := m.postgresJournal.Close()
	m.postgresJournal = nil
	return err
}

// archives passes returns to the history, and with the summary to the journal of PostgreSQL. Neither waits for the
// other: when one of them cannot be written, the job cache passes the same return again, and only that one gets it.
type archives struct {
	recorder *fleet.Recorder // may be nil: the master keeps no history
	journal  *postgres.Journal

	pending pendingReturn // only the writer of the job cache uses it
}

// pendingReturn is a return that the history and the journal have not both taken.
type pendingReturn struct {
	jid, minion string
	recorded    bool         // the history has taken it, or left it out
	leftOut     error        // wraps [jobs.ErrLeftOut] if the history lacks it, or its content
	run         *history.Run // nil: the history has not taken it
	journaled   bool
}

var (
	_ jobs.JobArchive = (*archives)(nil)
	_ jobs.Refiller   = (*archives)(nil)
)

// AddJob implements [jobs.JobArchive].
func (a *archives) AddJob(j jobs.ArchivedJob) error {
	var err error
	if a.recorder != nil {
		err = a.recorder.AddJob(j)
	}
	return errors.Join(err, a.journal.AddJob(j))
}

// Add implements [jobs.Archive].
func (a *archives) Add(r jobs.Archived) error {
	p := &a.pending
	if p.jid != r.JID || p.minion != r.Minion {
		*p = pendingReturn{jid: r.JID, minion: r.Minion, recorded: a.recorder == nil}
	}

	var recordErr, journalErr error
	if !p.recorded {
		p.run, recordErr = a.recorder.Record(r)
		if errors.Is(recordErr, jobs.ErrLeftOut) {
			p.leftOut = recordErr
			recordErr = nil
		}
		p.recorded = recordErr == nil
	}
	if !p.journaled {
		var made *summary.Summary
		if p.run != nil {
			made = &p.run.Summary
		}
		journalErr = a.journal.Add(r, made)
		p.journaled = journalErr == nil
	}

	if err := errors.Join(recordErr, journalErr); err != nil {
		return err
	}
	leftOut := p.leftOut
	*p = pendingReturn{}
	return leftOut
}

// Holds implements [jobs.Refiller]. PostgreSQL loses nothing with a folder of this node, so only the history counts.
func (a *archives) Holds(r jobs.Archived) (jobs.Holding, error) {
	if a.recorder == nil {
		return jobs.NotKept, nil
	}
	return a.recorder.Holds(r)
}

// Refill implements [jobs.Refiller].
func (a *archives) Refill(r jobs.Archived) error {
	if a.recorder == nil {
		return nil
	}
	return a.recorder.Refill(r)
}

// AddMissing implements [jobs.Refiller].
func (a *archives) AddMissing(sources int) {
	if a.recorder != nil {
		a.recorder.AddMissing(sources)
	}
}

// WholeSince implements [jobs.Archive]. What waits for PostgreSQL may be dropped, so only the history counts.
func (a *archives) WholeSince() time.Time {
	if a.recorder == nil {
		return time.Time{}
	}
	return a.recorder.WholeSince()
}

// Sync implements [jobs.Archive].
func (a *archives) Sync() error {
	var err error
	if a.recorder != nil {
		err = a.recorder.Sync()
	}
	return errors.Join(err, a.journal.Sync())
}
