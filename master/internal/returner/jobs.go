package returner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/event"
	"saltern/master/internal/pyframe"
	"saltern/master/internal/spool"
	"saltern/master/jobs"
	"saltern/master/value"
)

// LocalCache is the returner whose files the master writes itself.
const LocalCache = "local_cache"

// loadWait bounds how long a publish waits until the returner has its load.
const loadWait = 2 * time.Second

// ownFields are fields of stored loads that Salt's masters do not have.
var ownFields = []string{event.EauthField, jobs.AccountField, jobs.ChosenField, jobs.OnlyField}

// JobsConfig of Jobs.
type JobsConfig struct {
	Dir   string // of the spools, of this node alone
	Bytes int64  // bound of the spool of each returner
	// Master is master_job_cache, which gets all of a job; "" or LocalCache: no returner.
	Master string
	// External is ext_job_cache, which gets the loads; "" or LocalCache: no returner. Minions send
	// their returns to it themselves.
	External string
	// StoreEndtime is job_cache_store_endtime.
	StoreEndtime bool
	Open         func(ctx context.Context) (Worker, error)
	Now          func() time.Time
	Log          *slog.Logger

	pause time.Duration // after the first failure; 0: firstPause
}

// Jobs is a job cache that also tells returners what it keeps, by the calls that Salt's master makes
// (salt/master.py publish, salt/utils/job.py store_job). A job or return is acknowledged when the
// cache below and the spools of the returners have it on the disk. The returner gets it afterwards,
// in the same order. Reading asks the cache below.
//
// In a cluster each master tells its returners of the jobs that it published, and of the returns
// that it acknowledged.
type Jobs struct {
	jobs.Cache
	cfg      JobsConfig
	master   *sink // nil: none
	external *sink // nil: none; may be the same
	cleaning atomic.Uint64
}

// sink is one returner with its spool.
type sink struct {
	spool   *spool.Spool
	feed    *feed
	notKept atomic.Uint64 // records that were too large for the spool
	log     *slog.Logger
}

// OpenJobs opens the spools of the returners. Run must be called, and Close after it. It
// returns nil without an error when the options name no returner.
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
		Dir:     filepath.Join(cfg.Dir, "jobs", url.PathEscape(name)),
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
			log:    cfg.Log,
		},
		log: cfg.Log,
	}, nil
}

// sinks returns each returner once.
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

// Run hands jobs and returns over until ctx ends. The rest stays on the disk for the next start.
func (j *Jobs) Run(ctx context.Context) {
	var feeds sync.WaitGroup
	for _, s := range j.sinks() {
		feeds.Go(func() { s.feed.handOver(ctx) })
	}
	feeds.Wait()
}

// Close closes the spools; the cache below stays open. Saving fails afterwards.
func (j *Jobs) Close() error {
	var err error
	for _, s := range j.sinks() {
		err = errors.Join(err, s.spool.Close())
	}
	return err
}

// Stats returns the figures of the returners. A nil Jobs has none.
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

// call is a call of a function of a returner.
type call struct {
	function string
	args     []any
	named    *value.Map
}

// write packs calls and writes them to the spool. Call s.spool.Sync with the number that it returns.
// Overflow policy: calls that are too large for the spool are counted and logged; the cache below
// keeps what they hold.
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

// writeDurably is write with Sync.
func (s *sink) writeDurably(jid string, calls ...call) error {
	end, err := s.write(jid, calls...)
	if err != nil {
		return err
	}
	return s.spool.Sync(end)
}

// prepared is the declaration of a job. The id is the master's: the returner cannot choose another.
func prepared(jid string, nocache bool) call {
	return call{
		function: "prep_jid",
		args:     []any{},
		named:    value.NewMap("nocache", nocache, "passed_jid", jid),
	}
}

// plain returns a load as Salt's master has it.
func plain(load *value.Map) *value.Map {
	out := load.Clone()
	for _, name := range ownFields {
		out.Delete(name)
	}
	return out
}

// plainReturn returns the load of a return as Salt's master has it after it has fired its event, which
// notes the time in it.
func plainReturn(load *value.Map, now time.Time) *value.Map {
	out := plain(load)
	stamped := out
	_, ofRunner := load.Get(event.EauthField)
	if result, ok := load.Value("return").(*value.Map); ok && ofRunner { // its event is inside
		stamped = plain(result)
		out.Set("return", stamped)
	}

	if _, ok := stamped.Get("_stamp"); !ok {
		stamped.Set("_stamp", event.Stamp(now))
	}
	return out
}

// SaveLoad implements jobs.Cache, for a return that belongs to no job of this master.
func (j *Jobs) SaveLoad(ctx context.Context, jid string, load *value.Map, minions []string) error {
	if err := j.Cache.SaveLoad(ctx, jid, load, minions); err != nil || j.master == nil {
		return err
	}
	return j.master.writeDurably(jid,
		prepared(jid, load.Bool("nocache")),
		call{function: "save_load", args: []any{jid, plain(load)}})
}

// Stage implements jobs.Cache. Its second step also waits, for a bounded time, until a returner in
// the place of local_cache has the load: Python's salt asks it for the load at once, and believes
// that a job without one does not exist (salt/client/__init__.py get_iter_returns).
func (j *Jobs) Stage(
	ctx context.Context,
	jid string,
	load *value.Map,
	minions []string,
) (func(context.Context) error, error) {
	wait, err := j.Cache.Stage(ctx, jid, load, minions)
	if err != nil {
		return nil, err
	}

	ends := map[*sink]uint64{}
	for _, s := range j.sinks() {
		if ends[s], err = s.write(jid, j.published(s, jid, load, minions)...); err != nil {
			return nil, err
		}
	}

	return func(ctx context.Context) error {
		if err := wait(ctx); err != nil {
			return err
		}

		for s, end := range ends {
			if err := s.spool.Sync(end); err != nil {
				return fmt.Errorf("keep job %s for returner %s: %w", jid, s.feed.name, err)
			}
		}

		if j.master != nil {
			short, cancel := context.WithTimeout(ctx, loadWait)
			defer cancel()
			j.master.feed.awaitDone(short, ends[j.master])
		}
		return nil
	}, nil
}

// published returns the calls for a job that begins.
func (j *Jobs) published(s *sink, jid string, load *value.Map, minions []string) []call {
	var calls []call
	ids := make([]any, len(minions))
	for i, id := range minions {
		ids[i] = id
	}

	shown := value.NewMap("cmd", "publish") // as it came to Salt's master
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

	return j.master.writeDurably(jid,
		call{function: "save_minions", args: []any{jid, ids}, named: value.NewMap("syndic_id", syndicID)})
}

// SaveReturn implements jobs.Cache. The returner gets each return that arrives, as in Salt: also one
// that the cache below has already, since nobody knows whether the process died in between.
func (j *Jobs) SaveReturn(ctx context.Context, r jobs.Return) (stored bool, err error) {
	stored, err = j.Cache.SaveReturn(ctx, r)
	if err != nil || j.master == nil {
		return stored, err
	}

	var calls []call
	load := plainReturn(r.Load, j.cfg.Now())
	if load.Str("tgt_type") == "" { // otherwise SaveLoad has declared the job
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

	return stored, j.master.writeDurably(r.JID, calls...)
}

// Clean implements jobs.Cache. The returner is asked to clean up too, unless it still has to do so.
func (j *Jobs) Clean(ctx context.Context, keep time.Duration) (removed int, err error) {
	removed, err = j.Cache.Clean(ctx, keep)
	if j.master == nil || !j.master.feed.reader.Past(j.cleaning.Load()) {
		return removed, err
	}

	end, failed := j.master.write("", call{function: "clean_old_jobs", args: []any{}})
	j.cleaning.Store(end)
	return removed, errors.Join(err, failed)
}
