package returner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/internal/pyframe"
	"saltern/master/internal/spool"
	"saltern/master/jobs"
	"saltern/master/value"
)

// LocalCache names Salt's returner local_cache. The master need not call it, because the master
// itself writes the same files.
const LocalCache = "local_cache"

// loadWait is the longest time that a publish waits until the returner has the load.
const loadWait = 2 * time.Second

// ownFields lists the fields of stored loads that the loads of Salt's masters do not have.
var ownFields = append(jobs.OwnFields(), event.EauthField, summary.RevisionField)

// JobsConfig configures Jobs.
type JobsConfig struct {
	Dir   string // directory of the spools; no other node may use it
	Bytes int64  // bound of the size of each returner's spool, in bytes
	// Master is master_job_cache: the returner that gets everything about each job. "" or
	// LocalCache means none.
	Master string
	// External is ext_job_cache: the returner that gets the loads of jobs; minions send their
	// returns to it themselves. "" or LocalCache means none.
	External string
	// StoreEndtime is job_cache_store_endtime.
	StoreEndtime bool
	Open         func(ctx context.Context) (Worker, error)
	Now          func() time.Time
	Log          *slog.Logger

	pause time.Duration // pause after the first failure; 0: firstPause
}

// Jobs is a job cache on top of another job cache, the cache below. It stores everything in the
// cache below and reads from there. It also passes everything that it stores to returners, with the
// same calls as Salt's master (salt/master.py publish, salt/utils/job.py store_job). A job or
// return is acknowledged when the cache below and the spools of the returners have stored it on
// disk. The returners get jobs and returns after that, in the order in which they were stored.
//
// In a cluster each master calls its returners for the jobs that it published, and for the returns
// that it acknowledged.
type Jobs struct {
	jobs.Cache
	cfg      JobsConfig
	master   *sink // may be nil: no returner is set
	external *sink // may be nil: no returner is set. May equal master
	cleaning atomic.Uint64
}

// sink is one returner with its spool.
type sink struct {
	spool   *spool.Spool
	feed    *feed
	notKept atomic.Uint64 // calls that were too large for the spool
	log     *slog.Logger
}

// OpenJobs opens the spools of the returners. The caller must call Run, and after Run has returned,
// Close. If the options name no returner, OpenJobs returns nil and no error.
func OpenJobs(below jobs.Cache, cfg JobsConfig) (*Jobs, error) {
	j := &Jobs{Cache: below, cfg: cfg}
	var err error
	if cfg.Master != "" && cfg.Master != LocalCache {
		if j.master, err = openSink(cfg, cfg.Master); err != nil {
			return nil, err
		}
	}

	switch {
	case cfg.External == "" || cfg.External == LocalCache:
	case cfg.External == cfg.Master:
		j.external = j.master
	default:
		if j.external, err = openSink(cfg, cfg.External); err != nil {
			return nil, errors.Join(err, j.Close())
		}
	}

	if len(j.sinks()) == 0 {
		return nil, nil
	}
	return j, nil
}

func openSink(cfg JobsConfig, name string) (*sink, error) {
	opened, err := spool.Open(spool.Config{
		Dir:     filepath.Join(cfg.Dir, "jobs", spool.FileName(name)),
		Bytes:   cfg.Bytes,
		Durable: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open the spool of jobs for returner %s: %w", name, err)
	}

	reader, err := opened.Reader(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the spool of jobs for returner %s: %w", name, err), opened.Close())
	}

	return &sink{
		spool: opened,
		feed: &feed{
			name:   name,
			reader: reader,
			batch:  1,
			pause:  cmp.Or(cfg.pause, firstPause),
			open:   cfg.Open,
			eager:  true,
			// prep_jid creates an id without connecting to the service, and a returner may lack
			// some functions. The success of a call of prep_jid, or of a function that is lacking,
			// does not show that the service is reachable.
			telling: func(record []byte) bool {
				made, err := pyframe.Map(record)
				return err == nil && slices.Contains([]string{"save_load", "returner", "save_minions"}, made.Str("function"))
			},
			log: cfg.Log,
		},
		log: cfg.Log,
	}, nil
}

// sinks returns all returners without duplicates.
func (j *Jobs) sinks() []*sink {
	var all []*sink
	if j.master != nil {
		all = append(all, j.master)
	}
	if j.external != nil && j.external != j.master {
		all = append(all, j.external)
	}
	return all
}

// Run passes jobs and returns to the returners until ctx ends. Those that remain stay on disk for
// the next start.
func (j *Jobs) Run(ctx context.Context) {
	var feeds sync.WaitGroup
	for _, s := range j.sinks() {
		feeds.Go(func() { s.feed.handOver(ctx) })
	}
	feeds.Wait()
}

// Close closes the spools, but not the cache below. Afterwards nothing can be stored any more.
func (j *Jobs) Close() error {
	var err error
	for _, s := range j.sinks() {
		err = errors.Join(err, s.spool.Close())
	}
	return err
}

// Stats returns the metrics of each returner. j may be nil.
func (j *Jobs) Stats() []Stats {
	if j == nil {
		return nil
	}

	var all []Stats
	for _, s := range j.sinks() {
		stats := s.feed.Stats()
		stats.Returner += " (job cache)"
		stats.Lost += s.notKept.Load()
		all = append(all, stats)
	}
	return all
}

// call is a call of one function of a returner.
type call struct {
	function string
	args     []any
	named    *value.Map
}

// write packs calls and writes them to the spool, without a sync. The caller passes end to
// s.spool.Sync. Overflow policy: calls that are too large for the spool are counted and logged, and
// their data are stored in the cache below only.
func (s *sink) write(jid string, calls ...call) (end uint64, err error) {
	records := make([][]byte, 0, len(calls))
	for _, c := range calls {
		named := c.named
		if named == nil {
			named = &value.Map{}
		}

		packed, err := pyframe.Pack(value.NewMap("function", c.function, "args", c.args, "kwargs", named))
		if err != nil {
			return 0, fmt.Errorf("pack job %s for returner %s: %w", jid, s.feed.name, err)
		}
		records = append(records, packed)
	}

	end, err = s.spool.Write(records...)
	if errors.Is(err, spool.ErrTooLarge) {
		s.notKept.Add(uint64(len(calls)))
		s.log.Error("this of a job is too large for its returner; only the master's own job cache has it",
			"returner", s.feed.name, "jid", jid, "error", err)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("keep job %s for returner %s: %w", jid, s.feed.name, err)
	}

	return end, nil
}

// writeDurably writes calls to the spool and syncs the spool. end is the number that the next
// record will get.
func (s *sink) writeDurably(jid string, calls ...call) (end uint64, err error) {
	end, err = s.write(jid, calls...)
	if err != nil {
		return 0, err
	}
	if err := s.spool.Sync(end); err != nil {
		return 0, fmt.Errorf("keep job %s for returner %s: %w", jid, s.feed.name, err)
	}
	return end, nil
}

// prepared returns the call that announces a job. The call contains the job id, so that the
// returner does not choose another id.
func prepared(jid string, nocache bool) call {
	return call{
		function: "prep_jid",
		args:     []any{},
		named:    value.NewMap("nocache", nocache, "passed_jid", jid),
	}
}

// plain returns a copy of a load without ownFields.
func plain(load *value.Map) *value.Map {
	out := load.Clone()
	for _, name := range ownFields {
		out.Delete(name)
	}
	return out
}

// plainReturn returns the load of a return in the form in which Salt's master passes it to a
// returner. In that form it contains the time, which Salt adds when it fires the event of the
// return.
func plainReturn(load *value.Map, now time.Time) *value.Map {
	out := plain(load)
	stamped := out
	_, ofRunner := load.Get(event.EauthField)
	// The load of a runner contains the data of the runner's event.
	if result, ok := load.Value("return").(*value.Map); ok && ofRunner {
		stamped = plain(result)
		out.Set("return", stamped)
	}

	if _, ok := stamped.Get("_stamp"); !ok {
		stamped.Set("_stamp", event.Stamp(now))
	}
	return out
}

// SaveLoad implements jobs.Cache. It is called for a return to a job that no master of this cluster
// has published.
func (j *Jobs) SaveLoad(ctx context.Context, jid string, load *value.Map, minions []string) error {
	if err := j.Cache.SaveLoad(ctx, jid, load, minions); err != nil || j.master == nil {
		return err
	}
	_, err := j.master.writeDurably(jid,
		prepared(jid, load.Bool("nocache")),
		call{function: "save_load", args: []any{jid, plain(load)}})
	return err
}

// Stage implements jobs.Cache. The spools come first: when one of them cannot store the job, the
// cache below does not get it either. (When only the cache below fails, the returners get a load of
// a job that no minion gets.) The function that Stage returns also waits, for up to loadWait, until
// the master_job_cache returner has the load. Python's salt reads the load from that returner at
// once, and if there is no load it assumes that the job does not exist (salt/client/__init__.py
// get_iter_returns).
func (j *Jobs) Stage(
	ctx context.Context,
	jid string,
	load *value.Map,
	minions []string,
) (func(context.Context), error) {
	ends := map[*sink]uint64{}
	for _, s := range j.sinks() {
		end, err := s.writeDurably(jid, j.published(s, jid, load, minions)...)
		if err != nil {
			return nil, err
		}
		ends[s] = end
	}

	awaitShown, err := j.Cache.Stage(ctx, jid, load, minions)
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context) {
		awaitShown(ctx)
		if j.master != nil {
			short, cancel := context.WithTimeout(ctx, loadWait)
			defer cancel()
			j.master.feed.awaitDone(short, ends[j.master])
		}
	}, nil
}

// published returns the calls that a returner gets for a new job.
func (j *Jobs) published(s *sink, jid string, load *value.Map, minions []string) []call {
	var calls []call
	ids := make([]any, len(minions))
	for i, id := range minions {
		ids[i] = id
	}

	shown := value.NewMap("cmd", "publish") // the form in which Salt's master receives the load
	shown.Update(plain(load))
	if s == j.master {
		calls = append(calls, prepared(jid, load.Map("kwargs").Bool("nocache")))
	}
	if s == j.external {
		calls = append(calls,
			call{function: "save_load", args: []any{jid, shown}, named: value.NewMap("minions", ids)})
	}
	if s == j.master {
		calls = append(calls, call{function: "save_load", args: []any{jid, shown, ids}})
	}
	return calls
}

// AddMinions implements jobs.Cache.
func (j *Jobs) AddMinions(ctx context.Context, jid string, minions []string, syndic string) error {
	if err := j.Cache.AddMinions(ctx, jid, minions, syndic); err != nil || j.master == nil {
		return err
	}

	ids := make([]any, len(minions))
	for i, id := range minions {
		ids[i] = id
	}

	var syndicID any
	if syndic != "" {
		syndicID = syndic
	}

	_, err := j.master.writeDurably(jid,
		call{function: "save_minions", args: []any{jid, ids}, named: value.NewMap("syndic_id", syndicID)})
	return err
}

// SaveReturn implements jobs.Cache. As in Salt, the returner gets every return that arrives, even a
// return that the cache below already contains. The master may have died after it stored that
// return and before it called the returner. stored is the result of the cache below.
func (j *Jobs) SaveReturn(ctx context.Context, r jobs.Return) (stored bool, err error) {
	stored, err = j.Cache.SaveReturn(ctx, r)
	isOther := errors.Is(err, jobs.ErrOtherReturn)
	if err != nil && !isOther || j.master == nil {
		return stored, err
	}

	var calls []call
	load := plainReturn(r.Load, j.cfg.Now())
	if load.Str("tgt_type") == "" { // otherwise SaveLoad has already announced the job to the returner
		calls = append(calls,
			call{function: "prep_jid", args: []any{false}, named: value.NewMap("passed_jid", r.JID)})
	}

	calls = append(calls,
		call{function: "save_load", args: []any{r.JID, load}},
		call{function: "returner", args: []any{load}})
	if j.cfg.StoreEndtime {
		calls = append(calls,
			call{function: "update_endtime", args: []any{r.JID, jobs.TimeText(j.cfg.Now())}})
	}

	_, err = j.master.writeDurably(r.JID, calls...)
	if err == nil && isOther {
		err = jobs.ErrOtherReturn
	}
	return stored, err
}

// Newest lists the newest jobs of the cache below; see [jobs.Find], which looks for this method.
func (j *Jobs) Newest(ctx context.Context, q jobs.Query) ([]jobs.Job, error) {
	return jobs.Find(ctx, j.Cache, q)
}

// Clean implements jobs.Cache. It also calls the returner's clean-up function, unless an earlier
// call of that function waits in the spool.
func (j *Jobs) Clean(ctx context.Context, keep time.Duration) (removed int, err error) {
	removed, err = j.Cache.Clean(ctx, keep)
	if j.master == nil || !j.master.feed.reader.Past(j.cleaning.Load()) {
		return removed, err
	}

	end, failed := j.master.write("", call{function: "clean_old_jobs", args: []any{}})
	j.cleaning.Store(end)
	return removed, errors.Join(err, failed)
}
