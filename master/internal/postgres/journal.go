package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/printable"
	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/internal/spool"
	"saltern/master/jobs"
	"saltern/master/value"
)

// Journal keeps loads and returns on this node's disk until the database has them.
type Journal struct {
	own    *lane // loads, and the returns that this master took
	copied *lane
	now    func() time.Time
	log    *slog.Logger

	oversized atomic.Uint64 // records that were too large for the spool and are kept without their content

	unkept atomic.Uint64 // records that the job cache has given up, because a spool did not take them

	mu     sync.Mutex
	facts  map[string]jobFacts // of recent jobs
	failed recordKey           // of the record that the last write failed for, or the zero value
}

// lane is a spool and its only reader.
type lane struct {
	dir    string
	bytes  int64
	spool  *spool.Spool
	reader *spool.Reader
	end    atomic.Uint64 // number after the last record that was written
}

// jobFacts are the columns of a job besides its load.
type jobFacts struct {
	user, function string
	arguments      []byte // as JSON
}

// maxJobs bounds the jobs that a Journal remembers. Overflow policy: all are forgotten, and read again.
const maxJobs = 512

// OpenJournal opens the spools below dir. maxBytes bounds the size of both together.
func OpenJournal(dir string, maxBytes int64, now func() time.Time, log *slog.Logger) (*Journal, error) {
	j := &Journal{now: now, log: log, facts: map[string]jobFacts{}}
	for _, l := range []struct {
		name string
		lane **lane
	}{{"own", &j.own}, {"copied", &j.copied}} {
		opened, err := openLane(filepath.Join(dir, l.name), maxBytes/2, true)
		if err != nil {
			return nil, errors.Join(err, j.Close())
		}
		*l.lane = opened
	}
	return j, nil
}

// openLane opens a lane. durable means that its spool can be synced.
func openLane(dir string, maxBytes int64, durable bool) (*lane, error) {
	s, err := spool.Open(spool.Config{Dir: dir, Bytes: maxBytes, Durable: durable})
	if err != nil {
		return nil, fmt.Errorf("open the spool for PostgreSQL: %w", err)
	}
	r, err := s.Reader("postgresql")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the spool for PostgreSQL: %w", err), s.Close())
	}
	return &lane{dir: dir, bytes: maxBytes, spool: s, reader: r}, nil
}

func (j *Journal) lanes() (all []*lane) {
	for _, l := range []*lane{j.own, j.copied} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// Close closes the spools. What waits stays on disk for the next start.
func (j *Journal) Close() error {
	var err error
	for _, l := range j.lanes() {
		err = errors.Join(err, l.spool.Close())
	}
	return err
}

// isLeftOut reports whether the returns of a function are not written: tools ask by them every few seconds
// whether a job still runs.
func isLeftOut(function string) bool {
	return function == "saltutil.find_job" || function == "saltutil.running"
}

// AddJob keeps the load of a job.
func (j *Journal) AddJob(a jobs.ArchivedJob) error {
	facts := j.remember(a.JID, a.Load)
	if isLeftOut(facts.function) {
		return nil
	}

	plain := plainLoad(a.Load)
	_, fromReturn := plain.Get("return")
	if rank := jobs.Rank(a.Load); rank < jobs.TopRank && !fromReturn {
		plain.Set(rankField, int64(rank))
	}
	load, err := jobs.JSONOf(plain)
	if err != nil {
		j.log.Warn("load of a job is left out of PostgreSQL", "jid", a.JID, "error", err)
		return nil
	}
	return j.write(j.own, &record{
		kind:    kindLoad,
		time:    a.Time,
		added:   j.now(),
		jid:     a.JID,
		content: load.Text,
	})
}

// Add keeps a return with its summary. s may be nil: Add makes the summary.
func (j *Journal) Add(a jobs.Archived, s *summary.Summary) error {
	j.mu.Lock()
	facts, known := j.facts[a.JID]
	j.mu.Unlock()
	if !known {
		if load := a.Load(); load != nil {
			facts = j.remember(a.JID, load)
		}
	}
	if isLeftOut(facts.function) {
		return nil
	}

	if s == nil {
		made := summary.OfPacked(facts.function, a.Return)
		s = &made
	}
	l := j.copied
	if a.Own {
		l = j.own
	}
	return j.write(l, &record{
		kind:      kindReturn,
		time:      a.Time,
		added:     j.now(),
		jid:       a.JID,
		minion:    a.Minion,
		user:      facts.user,
		function:  facts.function,
		arguments: facts.arguments,
		summary:   summary.Append(nil, *s),
		out:       a.Out,
		content:   a.Return,
	})
}

// write writes a record, without a sync. Overflow policy: if the record is too large for the spool, it is
// written without its content, and counted.
func (j *Journal) write(l *lane, r *record) error {
	err := j.writeToSpool(l, r)
	j.noteKept(r.key(), err)
	return err
}

// noteKept counts the record that a write failed for, once the job cache passes another one instead.
func (j *Journal) noteKept(key recordKey, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != (recordKey{}) && j.failed != key {
		j.unkept.Add(1)
	}
	j.failed = recordKey{}
	if err != nil {
		j.failed = key
	}
}

func (j *Journal) writeToSpool(l *lane, r *record) error {
	end, err := l.spool.Write(r.pack())
	if errors.Is(err, spool.ErrTooLarge) {
		j.oversized.Add(1)
		j.log.Warn("return is too large for the spool of PostgreSQL and is written without its content",
			"jid", r.jid, "minion", r.minion, "bytes", len(r.content))
		r.content = nil
		r.arguments = nil
		r.out = nil
		end, err = l.spool.Write(r.pack())
	}
	if err != nil {
		return fmt.Errorf("keep a return for PostgreSQL: %w", err)
	}
	l.end.Store(end)
	return nil
}

// Sync makes durable what was added.
func (j *Journal) Sync() error {
	for _, l := range j.lanes() {
		if err := l.spool.Sync(l.end.Load()); err != nil {
			return fmt.Errorf("sync the spool of PostgreSQL: %w", err)
		}
	}
	return nil
}

// remember reads the load of a job and remembers what returns need of it.
func (j *Journal) remember(jid string, load *value.Map) jobFacts {
	facts := jobFacts{user: cleanText(load.Str("user"))}
	facts.function = cleanText(summary.FunctionOf(load))

	arguments := load.Value("arg")
	if arguments == nil { // the load came with a return
		arguments = load.Value("fun_args")
	}
	if list, ok := arguments.([]any); ok {
		if text, err := jobs.JSONOf(list); err == nil && len(text.Text) <= maxArguments {
			facts.arguments = text.Text
		}
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.facts) >= maxJobs {
		clear(j.facts)
	}
	j.facts[jid] = facts
	return facts
}

// Bounds of texts, in bytes. Larger arguments are in the job's load only, since each return repeats them.
const (
	maxArguments = 16 << 10
	maxText      = 255
)

// cleanText returns a text for a column of text, cut.
func cleanText(s string) string { return printable.Clip(printable.Clean(s), maxText) }

// rankField is the field of a load in jids whose job id a caller chose: the rank of the load. Others have none.
const rankField = "saltern_rank"

// plainLoad returns a copy of a load without the fields that the loads of Salt's masters do not have.
func plainLoad(load *value.Map) *value.Map {
	out := load.Clone()
	for _, name := range append(jobs.OwnFields(), event.EauthField, summary.RevisionField, rankField) {
		out.Delete(name)
	}
	return out
}
