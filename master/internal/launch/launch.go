// Package launch starts jobs. It finds the minions of a target, limits the job of a caller without
// all rights to the minions that he may command, makes the job known and durable, publishes it, and
// collects the returns. Afterwards it knows which minions may return for it.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/target"
	"saltern/master/value"
)

// Peers is the other masters.
type Peers interface {
	// Spread prepares for the event that publishes a job. wait returns when the connected masters
	// have the job, or after a moment; done must be called in the end.
	Spread(jid string) (wait func(context.Context), done func())
}

// noPeers is the other masters of a master that is alone.
type noPeers struct{}

func (noPeers) Spread(string) (wait func(context.Context), done func()) {
	return func(context.Context) {}, func() {}
}

// Problems lists the lasting faults of the master.
type Problems interface {
	// Report reports a fault. A nil err ends it.
	Report(what control.Fault, err error)
}

// Config of a Launcher.
type Config struct {
	Targets *Targets
	Jobs    jobs.Cache
	Bus     *event.Bus
	// Fire puts an event on the bus.
	Fire func(tag string, data *value.Map)
	// Running reports whether a runner of this master has a job id. It may be nil: none has.
	Running func(jid string) bool
	// Limits and Quota, in MiB per Keep, bound callers without all rights. A Quota of 0 means the
	// default, a negative one none. QuotaFile stores what they have used for the next life.
	Limits    Limits
	Quota     int
	Keep      time.Duration
	QuotaFile string
	Now       func() time.Time
	// Publish sends a load to its minions.
	Publish  func(ctx context.Context, load *value.Map, minions []string) error
	Peers    Peers // may be nil: there are no other masters
	Problems Problems
	// User is the master's account, in whose name its own jobs run.
	User         string
	MasterID     any  // option master_id
	OrderMasters bool // lower masters have minions that are not known here
	// Timeout and GatherTimeout are how long Ask waits by default.
	Timeout, GatherTimeout time.Duration
	Started                time.Time // of this master
	// Quiet takes lines that minions can cause at no cost.
	Log, Quiet *slog.Logger
}

// Launcher starts jobs. It is safe for concurrent use.
type Launcher struct {
	cfg            Config
	started        string // id of a job that started with this master
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

// SaveQuota writes what callers without all rights have used of the job cache. A master that is
// killed forgets what they have used since the last call. A nil Launcher has nothing to write.
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
	Jobs uint64 `json:"jobs"` // published
	// Unlisted are returns refused because their minion did not get the job.
	Unlisted uint64 `json:"unlisted"`
	Taken    uint64 `json:"taken"` // Taken are jobs refused because another job has their id.
	// OverQuota are jobs refused because their caller has used up his part of the job cache.
	OverQuota uint64 `json:"over_quota"`
}

// Stats counts.
func (l *Launcher) Stats() Stats {
	return Stats{
		Jobs:      l.jobs.Load(),
		Unlisted:  l.unlisted.Load(),
		Taken:     l.refused.taken.Load(),
		OverQuota: l.refused.overQuota.Load(),
	}
}

// Job is a job on its way out.
type Job struct {
	Load             *value.Map // as the client sent it, without secrets
	Target           any
	Eauth            string // the system that proved the user; "" for a key
	JID              string // given by Start
	Minions, Missing []string
	only             bool   // goes to Minions, and to nobody else
	account          string // whose part of the job cache it takes; "": nobody's
	slice            bool   // slice: this is the next part of a batch that this master drives.
}

// Only reports whether a job goes to its Minions and to nobody else.
func (j *Job) Only() bool { return j.only }

// Own returns the load of a job of the master itself.
func (l *Launcher) Own(fun string, arg []any, tgt any, tgtType, ret string) *value.Map {
	return value.NewMap("fun", fun, "arg", arg, "tgt", tgt, "tgt_type", tgtType, "ret", ret, "user", l.cfg.User)
}

// New resolves the target of a load, for a caller that waits for the answer.
func (l *Launcher) New(ctx context.Context, load *value.Map) (*Job, error) {
	work, stop := request.WhileAsked(ctx)
	defer stop()
	return l.NewWithin(target.NewEffort(work), load)
}

// NewWithin is New with a bound on the work.
func (l *Launcher) NewWithin(e *target.Effort, load *value.Map) (*Job, error) {
	tgt := load.Value("tgt")
	minions, missing, err := l.cfg.Targets.Resolve(e, tgt, TargetType(load), Delimiter(load))
	if err != nil {
		return nil, fmt.Errorf("resolve the target %.100q: %w", value.StrMax(tgt, 100), err)
	}
	return &Job{Load: load, Target: tgt, Minions: minions, Missing: missing}, nil
}

// StartOwn starts a job of the master itself on the minions of its target, and
// reports whether there are any.
func (l *Launcher) StartOwn(ctx context.Context, load *value.Map) (found bool, err error) {
	j, err := l.New(ctx, load)
	if err != nil || len(j.Minions) == 0 {
		return false, err
	}
	return true, l.Start(ctx, j)
}

// errNobody means that no minion of a slice has an accepted key.
var errNobody = errors.New("none of them has an accepted key")

// StartSlice starts the job of a batch on its next minions only: the user may have been limited to
// them.
func (l *Launcher) StartSlice(ctx context.Context, load *value.Map) error {
	j, err := l.New(ctx, load)
	if err != nil {
		return err
	}
	if len(j.Minions) == 0 && !l.cfg.OrderMasters { // lower masters may have these minions
		return errNobody
	}

	j.slice = true
	if !l.cfg.OrderMasters { // lower masters resolve the target themselves
		if err := j.Restrict(); err != nil {
			return err
		}
	}

	return l.Start(ctx, j)
}

// Start gives the job its id, makes it known, stores it and publishes it. It returns when the job
// is durable; the minions have it by then. The text of a [Refusal] is for the caller.
func (l *Launcher) Start(ctx context.Context, j *Job) error {
	for _, own := range []string{"cmd", onlyField, jobs.AccountField, jobs.ChosenField} {
		j.Load.Delete(own)
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
	for _, own := range []string{jobs.AccountField, jobs.ChosenField} {
		if v, ok := load.Get(own); ok {
			started.Set(own, v)
		}
	}

	kept := load.Clone()
	kept.Set(event.EauthField, j.Eauth)
	if j.only {
		started.Set(onlyField, true)
		kept.Set(onlyField, true)
	}

	l.cfg.Fire(event.Tag("job", j.JID, "new"), started)
	wait, err := l.cfg.Jobs.Stage(ctx, j.JID, kept, j.Minions)
	if err != nil {
		l.cfg.Problems.Report(control.JobCacheFault, err)
		return fmt.Errorf("keep job %s: %w", j.JID, err)
	}

	leave() // from here on the job can be found

	spread, done := l.cfg.Peers.Spread(j.JID)
	defer done()
	pub := l.Publication(j)
	l.cfg.Fire(event.Tag("job", j.JID, "publish"), pub)
	l.jobs.Add(1)
	l.cfg.Log.Info("job published", "jid", j.JID, "user", load.Str("user"), "fun", load.Value("fun"),
		"minions", len(j.Minions))

	if err := l.cfg.Publish(ctx, pub, j.Minions); err != nil {
		return fmt.Errorf("publish job %s: %w", j.JID, err)
	}

	if err := wait(ctx); err != nil {
		l.cfg.Problems.Report(control.JobCacheFault, err)
		return fmt.Errorf("keep job %s: %w", j.JID, err)
	}

	l.cfg.Problems.Report(control.JobCacheFault, nil)
	spread(ctx) // the minions here have it
	return nil
}

// identify gives a job its id, and charges it to its account. An id that the caller has chosen is
// kept if it belongs to no other job. Call leave when the job is in the job cache.
func (l *Launcher) identify(ctx context.Context, j *Job) (leave func(), err error) {
	asked, nocache := j.Load.Str("jid"), j.Load.Map("kwargs").Bool("nocache")
	if asked != "" && !jobs.Valid(asked) {
		return nil, refuse("%.40q is no job id: leave it out and the master makes one", asked)
	}

	if j.account != "" {
		j.Load.Set(jobs.AccountField, j.account)
	}

	leave, again := func() {}, false
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

	j.JID = asked // Stage declares it
	if asked == "" || nocache {
		if j.JID, err = l.cfg.Jobs.Prep(ctx, asked, nocache); err != nil {
			leave()
			l.cfg.Problems.Report(control.JobCacheFault, err)
			return nil, fmt.Errorf("start a job: %w", err)
		}
	}

	if j.only && asked != "" {
		l.mayReturn(ctx, asked, "") // a job of that id may already be open to all minions
	}

	return leave, nil
}

// chargeJob charges a job to the quota of its account. again: its files are there already.
func (l *Launcher) chargeJob(j *Job, again bool) error {
	bytes := jobCost(j.Load)
	if again {
		bytes -= jobFiles
	}
	err := l.quota.chargeOrRefuse(j.account, bytes, l.cfg.Now())
	if err != nil {
		l.refused.overQuota.Add(1)
		l.cfg.Quiet.Warn("job refused: its caller has used up his part of the job cache", "account", j.account)
	}
	return err
}

// Publication returns the load for minions, with Salt's order of fields (salt/master.py _prep_pub).
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
