package jobs

import (
	"errors"
	"fmt"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// Archive keeps returns for longer than the job cache does.
type Archive interface {
	// Add takes a return, before its record leaves the journal. After a crash the same return may
	// come again. When Add returns a transient error (a full disk), the writer tries again.
	Add(a Archived) error
	// Sync makes durable what Add has taken. It is called before the journal removes the records.
	Sync() error
	// WholeSince returns the time since which the archive still has all returns that it has taken, or the zero time if
	// it has none.
	WholeSince() time.Time
}

// ErrLeftOut is wrapped by the error of [Archive.Add] for a return that the archive will never have, or only without
// its content.
var ErrLeftOut = errors.New("left out of the archive")

// JobArchive is an Archive that takes the loads of jobs as well. A load may come again like a return. It comes before
// the returns of its job, unless another master hands it over later.
type JobArchive interface {
	Archive
	AddJob(j ArchivedJob) error
}

// ArchivedJob is a job for a JobArchive.
type ArchivedJob struct {
	JID  string
	Time time.Time // when a master took the load
	Load *value.Map
	// LoadOf is that of an Archived. For this job it may return another load, which outranks Load.
	LoadOf func(jid string) *value.Map
}

// Archived is a return for an Archive.
type Archived struct {
	JID, Minion string
	Time        time.Time // when a master took the return
	// Own means that this master took the return, in this run. Otherwise the return is a copy from
	// another master, or comes from the journal of an earlier run.
	Own    bool
	Return []byte // content of return.p; the Archive must not change it
	Out    []byte // content of out.p, or nil if the function asked for no outputter
	// Load returns the load of the job, or nil if it has none. It reads a file.
	Load func() *value.Map
	// LoadOf returns the load of any job, or nil if it has none.
	LoadOf func(jid string) *value.Map
}

// archivePatience is how long the archive may fail before the cache goes on without it.
const archivePatience = 20 * time.Second

// archiveFailures has the times since which Add and Sync of the archive have failed without
// interruption. Only one goroutine uses it at a time.
type archiveFailures struct{ add, sync time.Time }

// mayRetry reports whether the cache waits for an archive that has failed since *since; it sets a
// zero *since. If an archive fails for longer than archivePatience, or for good, the cache goes on
// without it. A clock that jumps ends the patience.
func (c *Local) mayRetry(since *time.Time, err error) bool {
	now := c.cfg.Now()
	if since.IsZero() {
		*since = now
	}
	failing := now.Sub(*since)
	return transient(err) && failing >= 0 && failing < archivePatience
}

// archiveRecord passes the record of a return or a load to the archive. It returns an error that a
// retry may mend. Records that the archive does not take are counted, unless it says that it leaves them out.
func (c *Local) archiveRecord(r *record) error {
	if c.cfg.Archive == nil || r.kind != kindReturn && r.kind != kindLoad {
		return nil
	}

	err := c.passToArchive(r)
	if errors.Is(err, ErrLeftOut) {
		c.noteUnarchived(r)
		err = nil
	}
	if err == nil {
		if c.leftOut > 0 {
			c.log.Warn("job cache: the archive takes returns again", "left_out", c.leftOut)
			c.leftOut = 0
		}
		c.failures.add = time.Time{}
		return nil
	}

	if c.mayRetry(&c.failures.add, err) {
		return fmt.Errorf("archive: %w", err)
	}
	if c.leftOut == 0 {
		c.log.Error("job cache: returns are left out of the archive until it takes them", "jid", r.jid, "minion", r.id,
			"error", err)
	}
	c.noteUnarchived(r)
	c.leftOut++
	c.unarchived.Add(1)
	return nil
}

// noteUnarchived notes that the archive lacks a record, if it stays in its segment.
func (c *Local) noteUnarchived(r *record) {
	if r.segment != nil && r.segment.home != nil {
		c.home.noteUnarchived(r.segment.home)
	}
}

// passToArchive passes a return, or a load that the archive takes.
func (c *Local) passToArchive(r *record) error {
	if r.kind == kindReturn {
		return c.cfg.Archive.Add(c.archivedOf(r))
	}

	archive, ok := c.cfg.Archive.(JobArchive)
	if !ok {
		return nil
	}
	v, err := msgpack.Decode(r.a, msgpack.DefaultLimits)
	load, isMap := v.(*value.Map)
	if err != nil || !isMap {
		return nil // the job cache reports it to whoever reads the load
	}
	return archive.AddJob(ArchivedJob{
		JID:    r.jid,
		Time:   time.Unix(0, r.time),
		Load:   load,
		LoadOf: c.loadOf,
	})
}

// archivedOf returns the return of a record for the archive.
func (c *Local) archivedOf(r *record) Archived {
	return Archived{
		JID:    r.jid,
		Minion: r.id,
		Time:   time.Unix(0, r.time),
		Own:    r.own,
		Return: r.a,
		Out:    r.b,
		Load:   func() *value.Map { return c.loadOf(r.jid) },
		LoadOf: c.loadOf,
	}
}

// loadOf returns the load of a job for the archive, or nil if there is none that can be read.
func (c *Local) loadOf(jid string) *value.Map {
	packed := c.keptLoad(jid).load
	if open := c.overlay.snapshot(jid); open.load != nil {
		packed = open.load
	}

	var v any
	var err error
	if packed != nil {
		v, err = msgpack.Decode(packed.a, msgpack.DefaultLimits)
	} else {
		v, _, err = readValue(c.files.jobDir(jid) + "/" + loadFile)
	}
	if err != nil {
		c.log.Warn("job cache: a load cannot be read for the archive", "jid", jid, "error", err)
	}
	load, _ := v.(*value.Map)
	return load
}

// syncArchive makes durable what the archive has taken. It returns an error as long as the journal
// must keep those records, which are in segs.
func (c *Local) syncArchive(segs []*segment) error {
	if c.cfg.Archive == nil {
		return nil
	}
	err := c.cfg.Archive.Sync()
	if err == nil {
		c.failures.sync = time.Time{}
		return nil
	}

	if c.mayRetry(&c.failures.sync, err) {
		return fmt.Errorf("archive: %w", err)
	}
	for _, s := range segs {
		if s.home != nil {
			c.home.noteUnarchived(s.home)
		}
	}
	c.log.Error("job cache: the archive is not durable, a power cut may cost its latest returns", "error", err)
	return nil
}
