// Package launch starts jobs. It resolves the target of a job and limits the job of a caller
// without all rights to the minions that he may command. It stores the job, announces and publishes
// it, and collects the returns. It records which minions may return for the job, to check later
// returns.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/target"
	"saltern/master/value"
)

// Peers are the other masters of the cluster.
type Peers interface {
	// Spread prepares for the event that publishes a job. wait returns when the connected masters
	// have received the job, or after a short time. The caller must call done at the end.
	Spread(jid string) (wait func(context.Context), done func())
}

// noPeers are the Peers of a master that is not in a cluster.
type noPeers struct{}

func (noPeers) Spread(string) (wait func(context.Context), done func()) {
	return func(context.Context) {}, func() {}
}

// Problems records the persistent faults of the master.
type Problems interface {
	// Report reports a fault. If err is nil, the fault has ended.
	Report(fault control.Fault, err error)
}

// Config of a Launcher.
type Config struct {
	Targets *Targets
	Jobs    jobs.Cache
	Bus     *event.Bus
	// Fire fires an event on the bus.
	Fire func(tag string, data *value.Map)
	// Running reports whether a runner of this master has this job id. It may be nil: no runner has
	// it.
	Running func(jid string) bool
	// Limits and Quota apply to callers without permission for everything. Quota is how many MiB of
	// jobs a caller may store within the time Keep; 0 means the default, a negative value means no
	// quota. QuotaFile stores the used quotas across restarts.
	Limits    Limits
	Quota     int
	Keep      time.Duration
	QuotaFile string
	Now       func() time.Time
	// Publish sends a load to the given minions.
	Publish  func(ctx context.Context, load *value.Map, minions []string) error
	Peers    Peers // may be nil: the master is not in a cluster
	Problems Problems
	// User is the master's account, under which its own jobs run.
	User     string
	MasterID any // option master_id
	// OrderMasters means that there are lower masters. This master does not know their minions: SyndicWait is
	// how long their syndics have to tell which of them have a job.
	OrderMasters bool
	SyndicWait   time.Duration
	// Syndics knows which minions are syndics. It may be nil: none is.
	Syndics Syndics
	// Timeout and GatherTimeout are the default waiting times of Ask: for returns, and for answers
	// to find_job.
	Timeout, GatherTimeout time.Duration
	Started                time.Time // when this master started
	// Log is the logger. Quiet is the logger for lines that minions can provoke at no cost.
	Log, Quiet *slog.Logger
}

// Launcher starts jobs. It is safe for concurrent use.
type Launcher struct {
	cfg            Config
	started        string // job id with the time of this master's start
	expected       *expected
	claims         *claims
	quota          *quota
	jobs, unlisted atomic.Uint64
	refused        struct{ taken, overQuota atomic.Uint64 }
}

// New returns a Launcher.
func New(cfg Config) *Launcher {
	if cfg.Running == nil {
		cfg.Running = func(string) bool { return false }
	}

	if cfg.Peers == nil {
		cfg.Peers = noPeers{}
	}

	if cfg.Syndics == nil {
		cfg.Syndics = noSyndics{}
	}

	l := &Launcher{
		cfg:      cfg,
		started:  jobs.FromTime(cfg.Started),
		expected: newExpected(),
		claims:   newClaims(),
		quota:    newQuota(cfg.Quota, cfg.Keep),
	}

	if err := l.quota.loadUsage(cfg.QuotaFile, cfg.Now()); err != nil {
		cfg.Log.Warn("the quotas of users begin anew", "path", cfg.QuotaFile, "error", err)
	}

	return l
}

// SaveQuota writes the used quotas of callers without all rights. If the master is killed, the use
// since the last call is lost. If l is nil, SaveQuota does nothing.
func (l *Launcher) SaveQuota(context.Context) {
	if l == nil {
		return
	}
	if err := l.quota.saveUsage(l.cfg.QuotaFile, l.cfg.Now()); err != nil {
		l.cfg.Log.Warn("after a restart the quotas of users begin with an older count", "path",
			l.cfg.QuotaFile, "error", err)
	}
}

// Stats are counters since the start of the master.
type Stats struct {
	Jobs uint64 `json:"jobs"` // published jobs
	// Unlisted counts returns that were refused because the minion was not sent the job.
	Unlisted uint64 `json:"unlisted"`
	Taken    uint64 `json:"taken"` // jobs refused because another job has their id
	// OverQuota counts jobs that were refused because the caller has used up his quota of the job
	// cache.
	OverQuota uint64 `json:"over_quota"`
}

// Stats returns the counters.
func (l *Launcher) Stats() Stats {
	return Stats{
		Jobs:      l.jobs.Load(),
		Unlisted:  l.unlisted.Load(),
		Taken:     l.refused.taken.Load(),
		OverQuota: l.refused.overQuota.Load(),
	}
}

// Job is a job that is being started.
type Job struct {
	Load             *value.Map // load as the client sent it, without secrets
	Target           any
	Eauth            string     // external system that authenticated the user; "" for a key
	JID              string     // job id, set by Start
	Minions, Missing []string   // in Minions, the resources come last
	implied          int        // resources in Minions that the target does not name
	only             bool       // only the minions in Minions get the job
	account          string     // account whose quota the job uses; "": no quota
	saved            *value.Map // value of [jobs.SavedField]; nil: no saved job started it
	slice            bool       // the job is the next slice of a batch that this master runs
	spelled          any        // target for minions, if Target names a saved target; else nil
}

// Only reports whether only the minions in the job's Minions get the job.
func (j *Job) Only() bool { return j.only }

// Own returns the load for a job that the master itself starts.
func (l *Launcher) Own(fun string, arg []any, tgt any, tgtType, ret string) *value.Map {
	return value.NewMap("fun", fun, "arg", arg, "tgt", tgt, "tgt_type", tgtType, "ret", ret, "user", l.cfg.User)
}

// New returns a Job with the minions that the target of a load selects. It returns an error if the
// caller disconnects meanwhile.
func (l *Launcher) New(ctx context.Context, load *value.Map) (*Job, error) {
	work, stop := request.WhileAsked(ctx)
	defer stop()
	return l.NewWithin(target.NewEffort(work), load)
}

// NewWithin works like New, with the work bounded by e.
func (l *Launcher) NewWithin(e *target.Effort, load *value.Map) (*Job, error) {
	tgt := load.Value("tgt")
	targets := l.cfg.Targets.pinned() // minions get the words by which this master selects them
	found, err := targets.Select(e, tgt, TargetType(load), Delimiter(load), load.Value("fun"))
	if err != nil {
		return nil, fmt.Errorf("resolve the target %.100q: %w", value.StrMax(tgt, 100), err)
	}

	j := &Job{Load: load, Target: tgt, Minions: slices.Concat(found.Minions, found.Resources), Missing: found.Missing}
	j.spelled = targets.spellOut(tgt, TargetType(load))
	if found.Implied {
		j.implied = len(found.Resources)
	}
	return j, nil
}

// StartOwn starts a job of the master itself on the minions of its target. It returns false if the
// target selects no minions.
func (l *Launcher) StartOwn(ctx context.Context, load *value.Map) (found bool, err error) {
	j, err := l.New(ctx, load)
	if err != nil || l.ReachesNobody(j) {
		return false, err
	}
	return true, l.Start(ctx, j)
}

// errNobody means that no minion of the slice has an accepted key.
var errNobody = errors.New("none of them has an accepted key")

// StartSlice starts the job of a batch on the next slice of its minions. It restricts the job to
// these minions, because the user may have permission only for them.
func (l *Launcher) StartSlice(ctx context.Context, load *value.Map) error {
	j, err := l.New(ctx, load)
	if err != nil {
		return err
	}
	if l.ReachesNobody(j) {
		return errNobody
	}

	j.slice = true
	j.Eauth = load.Str(event.EauthField)
	j.account = load.Str(jobs.AccountField)
	j.saved = load.Map(jobs.SavedField)
	load.Delete(event.EauthField)
	if !l.cfg.OrderMasters { // lower masters resolve the target themselves
		if err := j.Restrict(); err != nil {
			return err
		}
	}

	return l.Start(ctx, j)
}

// Start gives the job its id, stores it, announces it and publishes it. Nothing of a job leaves
// this master before the job is durable, and Start returns an error only for a job that no minion
// gets, because a caller who gets an error may start the job again. If the error is a [Refusal],
// the caller may see its text.
func (l *Launcher) Start(ctx context.Context, j *Job) error {
	for _, own := range []string{"cmd", jobs.OnlyField, jobs.AccountField, jobs.ChosenField, jobs.SavedField} {
		j.Load.Delete(own)
	}
	if !j.slice {
		j.Load.Delete(jobs.BatchField)
	}
	if j.saved != nil {
		j.Load.Set(jobs.SavedField, j.saved)
	}

	leave, err := l.identify(ctx, j)
	if err != nil {
		return err
	}
	defer leave()

	load := j.Load
	load.Set("jid", j.JID)
	l.expected.addJob(j.JID, j.only, j.Minions)
	started := value.NewMap("jid", j.JID, "tgt_type", TargetType(load), "tgt", j.Target,
		"user", load.Str("user"), "fun", load.Value("fun"), "arg", load.Value("arg"), "minions", j.Minions, "missing", j.Missing,
		event.EauthField, j.Eauth)
	for _, own := range []string{jobs.AccountField, jobs.ChosenField, jobs.BatchField, jobs.SavedField} {
		if v, ok := load.Get(own); ok {
			started.Set(own, v)
		}
	}

	kept := load.Clone()
	kept.Set(event.EauthField, j.Eauth)
	if j.only {
		started.Set(jobs.OnlyField, true)
		kept.Set(jobs.OnlyField, true)
	}

	awaitShown, err := l.cfg.Jobs.Stage(ctx, j.JID, kept, j.Minions)
	l.cfg.Problems.Report(control.JobCacheFault, err)
	if err != nil {
		return fmt.Errorf("keep job %s: %w", j.JID, err)
	}

	leave() // from now on the job cache contains the job, so other callers need not wait
	l.cfg.Fire(event.Tag("job", j.JID, "new"), started)

	spread, done := l.cfg.Peers.Spread(j.JID)
	defer done()
	pub := l.Publication(j)
	// A caller who goes away now does not stop the job between this master and the others.
	if err := l.cfg.Publish(context.WithoutCancel(ctx), pub, j.Minions); err != nil {
		return fmt.Errorf("publish job %s: %w", j.JID, err)
	}

	l.cfg.Fire(event.Tag("job", j.JID, "publish"), pub) // the other masters publish it by this event
	l.jobs.Add(1)
	l.cfg.Log.Info("job published", "jid", j.JID, "user", load.Str("user"), "fun", load.Value("fun"),
		"minions", len(j.Minions))

	awaitShown(ctx)
	spread(ctx) // wait until the other masters have the job; this master has already sent it to its minions
	return nil
}

// identify gives a job its id, and charges the job to its account. If the user has chosen an id,
// and no other job has it, the job gets that id. The caller of identify must call leave when the
// job is in the job cache.
func (l *Launcher) identify(ctx context.Context, j *Job) (leave func(), err error) {
	asked, nocache := j.Load.Str("jid"), j.Load.Map("kwargs").Bool("nocache")
	if asked != "" && !jobs.Valid(asked) {
		return nil, refuse("%.40q is no job id: leave it out and the master makes one", asked)
	}

	if j.account != "" {
		j.Load.Set(jobs.AccountField, j.account)
	}

	leave, again := func() {}, j.slice && l.expected.knows(asked)
	if asked != "" && !j.slice {
		j.Load.Set(jobs.ChosenField, true)
		if leave, again, err = l.claimJID(ctx, asked, j.Load); err != nil {
			return nil, err
		}
	}

	if err := l.chargeJob(j, again); err != nil {
		leave()
		return nil, err
	}

	j.JID = asked // Stage stores the job under the id in j.JID
	if asked == "" || nocache {
		if j.JID, err = l.cfg.Jobs.Prep(ctx, asked, nocache); err != nil {
			leave()
			l.cfg.Problems.Report(control.JobCacheFault, err)
			return nil, fmt.Errorf("start a job: %w", err)
		}
	}

	if j.only && asked != "" {
		// This call loads an earlier job with that id into expected, because that job may permit
		// returns of all minions.
		l.mayReturn(ctx, asked, "")
	}

	return leave, nil
}

// chargeJob charges a job to the quota of its account. known means that the files of the job
// already exist; then chargeJob charges only the load.
func (l *Launcher) chargeJob(j *Job, known bool) error {
	cost := jobCost(j.Load)
	if known {
		cost -= jobFiles
	}
	err := l.quota.chargeOrRefuse(j.account, cost, l.cfg.Now())
	if err != nil {
		l.refused.overQuota.Add(1)
		l.cfg.Quiet.Warn("job refused: its caller has used up his part of the job cache", "account", j.account)
	}
	return err
}

// A slice of a batch carries, beside function, arguments and returners, about sliceFields bytes: its minion,
// ids, user, account and [jobs.BatchField]. That field holds the batch's target up to sliceTarget bytes.
const (
	sliceFields = 2 << 10
	sliceTarget = 2 << 10
)

// RoomForBatch returns a Refusal if the quota of an account has no room for the job of a batch, which n
// minions get, size of them at first. It charges nothing: each slice of the batch is charged when it starts,
// with what a slice has of load.
func (l *Launcher) RoomForBatch(account string, load *value.Map, n, size int) error {
	slice := sliceFields
	slice += event.Weight(value.NewMap("fun", load.Value("fun"), "arg", load.Value("arg"), "ret", load.Value("ret")))
	if target := event.Weight(value.NewMap("tgt", load.Value("tgt"))); target <= sliceTarget {
		slice += target
	}
	if kwargs := load.Map("kwargs"); kwargs.Len() > 0 {
		slice += event.Weight(kwargs)
	}
	slices := 1 + max(n-size, 0)
	err := l.quota.roomOrRefuse(account, jobFiles+slices*slice, l.cfg.Now())
	if err != nil {
		l.refused.overQuota.Add(1)
	}
	return err
}

// Publication returns the load that minions receive. Its fields are in Salt's order (salt/master.py
// _prep_pub).
func (l *Launcher) Publication(j *Job) *value.Map {
	load := j.Load
	kwargs := load.Map("kwargs")
	pub := value.NewMap("fun", load.Value("fun"), "arg", load.Value("arg"), "tgt", load.Value("tgt"), "jid",
		load.Value("jid"), "ret", load.Value("ret"))
	if l.cfg.MasterID != nil {
		pub.Set("master_id", l.cfg.MasterID)
	}

	if id, ok := kwargs.Get("master_id"); ok {
		pub.Set("master_id", id)
	}

	if d := Delimiter(load); d != ":" {
		pub.Set("delimiter", d)
	}

	if id, ok := kwargs.Get("id"); ok {
		pub.Set("id", id)
	}

	if t, ok := load.Get("tgt_type"); ok {
		pub.Set("tgt_type", t)
	}

	if to, ok := load.Get("to"); ok {
		pub.Set("to", to)
	}

	for _, k := range []string{"ret_config", "metadata", "module_executors", "executor_opts", "ret_kwargs"} {
		if v, ok := kwargs.Get(k); ok {
			pub.Set(k, v)
		}
	}

	if kwargs.Bool("start_event") {
		pub.Set("start_event", true)
	}

	if u, ok := load.Get("user"); ok {
		pub.Set("user", u)
	}

	j.setTarget(pub)
	return pub
}
