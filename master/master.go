package master

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/health"
	"saltern/master/history"
	"saltern/master/internal/auth"
	"saltern/master/internal/background"
	"saltern/master/internal/batch"
	"saltern/master/internal/diff"
	"saltern/master/internal/engine"
	"saltern/master/internal/explain"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/fleet"
	"saltern/master/internal/keyadmin"
	"saltern/master/internal/launch"
	"saltern/master/internal/local"
	"saltern/master/internal/merge"
	"saltern/master/internal/mine"
	"saltern/master/internal/minion"
	"saltern/master/internal/newest"
	"saltern/master/internal/notify"
	"saltern/master/internal/peers"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/postgres"
	"saltern/master/internal/presence"
	"saltern/master/internal/publish"
	"saltern/master/internal/pyhost"
	"saltern/master/internal/ratelog"
	"saltern/master/internal/reactor"
	"saltern/master/internal/repos"
	"saltern/master/internal/request"
	"saltern/master/internal/resources"
	"saltern/master/internal/returner"
	"saltern/master/internal/saved"
	"saltern/master/internal/schedule"
	"saltern/master/internal/syndics"
	"saltern/master/internal/unanswered"
	"saltern/master/internal/wheel"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/master/zmtp"

	"saltern/master/conf"
)

// Master is one running Salt master. New creates a Master and Run runs it.
type Master struct {
	cfg *conf.Master
	log *slog.Logger
	// quiet is the log for lines that unauthenticated senders can cause, or that minions can cause
	// at no cost. It limits the rate of each kind of line.
	quiet *slog.Logger
	now   func() time.Time

	identity  auth.Identity
	secrets   *auth.Secrets
	signin    *auth.Service
	keys      *keys.Store
	ring      *keyadmin.Ring
	callers   local.Callers
	bus       *event.Bus
	sockets   *event.Server
	control   *control.Server
	jobs      jobs.Cache
	localJobs *jobs.Local // below jobs
	closeJobs func(context.Context) error
	history   *history.Store  // nil: no history is kept
	recorder  *fleet.Recorder // writes history; nil like it
	// postgresJournal and postgres may be nil: the option saltern_postgres is empty.
	postgresJournal *postgres.Journal
	postgres        *postgres.Sink
	// postgresEvents may be nil: saltern_postgres does not ask for events.
	postgresEvents *postgres.Events
	// postgresLookups may be nil: saltern_postgres does not ask for look-ups.
	postgresLookups *postgres.Lookups
	// postgresUnable is why the option saltern_postgres is not obeyed, or nil.
	postgresUnable error

	jids        *jobs.IDs
	cache       *cache.Store
	mine        *mine.Service
	resources   *resources.Registry
	newest      *newest.Service
	files       *fileserver.Server
	repos       *repos.Service
	compiler    *pillar.Compiler
	pillars     *pillar.Service
	renderers   *renderer.Pool
	gpg         *gpg.Decrypter    // nil: Python decrypts the secrets of pillars
	extPillar   *extpillar.Runner // nil: Python runs all of ext_pillar but git
	python      *pyhost.Host      // runs runner and wheel functions
	presence    *presence.View
	runs        *runner.Runs
	wheel       *wheel.Service
	reactions   *reactor.Rules
	reactor     *reactor.Engine
	schedule    *schedule.Schedule
	savedStore  *saved.Store
	saved       *saved.Service
	batches     *batch.Manager
	engines     *engine.Service
	eventReturn *returner.Events // nil while the option event_return is empty
	// jobReturners may be nil: no returner stores jobs.
	jobReturners *returner.Jobs
	batchEvents  *event.Subscription
	// notify may be nil: the option saltern_notify is empty. notices passes it the runs that the
	// history takes, including those before notify is open.
	notify  *notify.Service
	notices *notify.Inlet
	// merge may be nil: the option saltern_merge_reports is empty.
	merge *merge.Service

	cluster   *peers.Membership
	pauses    *peers.Pauses  // nil on a master without a cluster
	batchAsks *peers.Batches // likewise
	// stopOrders is nil on a master without a cluster.
	stopOrders *peers.StopOrders
	router     *zmtp.Router
	pub        *zmtp.Pub
	publisher  *publish.Publisher
	// missedPort resends the jobs that minions have missed. The cluster gets this pointer before
	// openPublish sets the fields of the resendPort.
	missedPort *resendPort
	requests   *request.Server
	nonces     *request.Nonces
	sources    *zmtp.Sources

	background *background.Pool
	audit      *audit.Log
	problems   *health.Problems
	signs      health.Signs
	conditions *health.Conditions
	writes     *health.Writes
	reporter   *health.Reporter
	started    time.Time
	targets    *launch.Targets
	diff       *diff.Service
	launch     *launch.Launcher
	minions    *minion.Service
	unanswered *unanswered.Tracker
	syndics    *syndics.Registry // nil: no lower masters
	signIns    *explain.SignIns
	explain    *explain.Service

	// fleet and revisions are nil on a master that keeps no history.
	fleet     *fleet.Fleet
	revisions *fleet.Revisions
}

// Limits that this package sets.
const (
	cacheMemory = 64 << 20 // bytes of minion data in memory
	// maxRequests bounds the requests that are handled at once. Parked requests, which wait for a
	// renderer, a runner or the returns of other minions, do not count, so that they cannot delay
	// returns.
	maxRequests = 2048
	// maxStrangers bounds the requests of unauthenticated senders that are handled at once. Most of
	// these are sign-ins.
	maxStrangers = 256
	maxRunners   = 32 // most runners that run at once
)

// New opens keys, secrets, caches and sockets, and last the port for requests. If a step fails, New
// closes what it has opened and returns an error that says what the administrator must fix. In a
// cluster it waits until this master has joined or ctx ends.
func New(ctx context.Context, cfg *conf.Master, log *slog.Logger) (*Master, error) {
	return NewWithClock(ctx, cfg, log, time.Now)
}

// NewWithClock works like New, but uses the clock now instead of time.Now for limits and for
// reports about minions.
func NewWithClock(ctx context.Context, cfg *conf.Master, log *slog.Logger, now func() time.Time) (*Master, error) {
	m := &Master{
		cfg:        cfg,
		log:        log,
		quiet:      slog.New(ratelog.New(log.Handler(), time.Now)),
		now:        now,
		started:    time.Now(),
		jids:       jobs.NewIDs(time.Now),
		background: background.New(maxRunners),
		problems:   health.NewProblems(log, time.Now),
		conditions: health.NewConditions(cfg.Conditions, log),
		signs:      health.Signs{Dir: cfg.CacheDir, Now: time.Now},
		sources:    zmtp.NewSources(time.Now),
		audit:      audit.Open(cfg.Audit("salt-master", log)),
		missedPort: &resendPort{},
		notices:    &notify.Inlet{},
	}

	// Each step may use what earlier steps have opened; the comment of a step says what it uses.
	for _, open := range []func(context.Context) error{
		m.openDirs,
		m.openCluster,  // opens the identity, the folder of keys and the shared job cache
		m.openSecrets,  // uses the identity, and the keys of the cluster
		m.openPublish,  // uses the secrets, and in a cluster the hooks of the cluster
		m.openKeys,     // uses the folder of keys, the subscriptions on the publish port and the secrets
		m.openCallers,  // uses nothing that earlier steps have opened
		m.openStores,   // uses the cluster, for the job cache and the repositories
		m.openBus,      // uses nothing that earlier steps have opened; earlier steps fire no events
		m.openServices, // uses all of the above
		m.openDoors,    // uses all of the above; after this step requests arrive
	} {
		if err := open(ctx); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}

	return m, nil
}

func (m *Master) openServices(ctx context.Context) error {
	m.ring = &keyadmin.Ring{
		Store:    m.keys,
		Dir:      m.cluster.KeyDir(),
		HashType: m.cfg.HashType,
		Fire:     func(tag string, data *value.Map) error { return m.bus.Fire(tag, data) },
		Rotate: func() error {
			if !m.cfg.RotateAESKey {
				return nil
			}
			return auth.RequestRotation(m.cfg.CacheDir, m.cfg.ID)
		},
		Forget: m.cache.Forget,
	}

	m.openSavedStore(ctx)
	m.openLaunch()
	m.openPillar()
	m.openRunners()
	m.openReactor()
	m.openSchedule()
	m.openSaved()
	m.openReturners()
	m.openPostgresEvents()
	m.openNotify()
	m.openMerge()
	m.unanswered = unanswered.New(m.bus, m.presence, m.syndics, m.now)
	m.minions = m.openMinions()
	table := m.minions.Methods()
	maps.Copy(table, m.openLocal().Methods())
	version := int64(m.cfg.MinimumAuthVersion)
	if version < 3 {
		m.log.Warn("minimum_auth_version is below 3: minions may sign in by an old protocol (CVE-2025-62349)",
			"minimum_auth_version", version)
	}

	m.nonces = request.OpenNonces(filepath.Join(m.cfg.CacheDir, "nonces.journal"),
		request.NonceWindow(m.cfg.RequestServerTTL), time.Now, m.log)
	m.signIns = explain.NewSignIns(presence.Noting{Auth: m.signin, View: m.presence}, m.keys, m.now)
	m.requests = request.New(request.Config{
		Nonces:  m.nonces,
		Cluster: m.cluster,
		Auth: newest.Noting{
			Auth:    m.signIns,
			Service: m.newest,
			Known:   func(id string) bool { _, ok := m.keys.Lookup(id); return ok },
		},
		Saw:         m.presence.Heard,
		SignInAgain: m.cluster.Started.AsksToken,
		Methods:     table,
		MinVersion:  version,
		TTL:         m.cfg.RequestServerTTL,
		Timeout:     2 * time.Minute,
		Known:       func(c request.Credentials) bool { return m.callers.Auth.Knows(c.Key, c.Token, c.Source) },
		Now:         time.Now,
		Log:         m.quiet,
	})

	m.openExplain()
	m.reporter = &health.Reporter{
		Options:        m.cfg,
		Files:          m.newest.Stats,
		Fleet:          m.fleet,
		History:        m.history,
		Jobs:           m.localJobs,
		Unanswered:     m.unanswered,
		Notify:         m.notify,
		Keys:           m.keys,
		Requests:       m.requests,
		Pillars:        m.pillars,
		Presence:       m.presence,
		Launch:         m.launch,
		Minions:        m.minions,
		Resources:      m.resources,
		Reactor:        m.reactor,
		Schedule:       m.schedule,
		Auth:           m.callers.Auth,
		Bus:            m.bus,
		Python:         m.python,
		Engines:        m.engines,
		EventReturn:    m.eventReturn,
		JobReturns:     m.jobReturners,
		Postgres:       m.postgres,
		PostgresEvents: m.postgresEvents,
		PostgresUnable: m.postgresUnable,
		Cluster:        m.cluster.Pool,
		Problems:       m.problems,
		Audit:          m.audit,
		Signs:          m.signs,
		Started:        m.started,
	}

	m.keys.OnChange(m.onKeyChange)
	return nil
}

func (m *Master) isAccepted(id string) bool {
	entry, known := m.keys.Lookup(id)
	return known && entry.State == keys.Accepted
}

// onKeyChange removes the data about a minion whose key was removed, so that a later minion with
// the same id gets none of these data.
func (m *Master) onKeyChange(c keys.Change) {
	if c.New != keys.None {
		return
	}
	m.presence.Forget(c.ID)
	m.cluster.Forget(c.ID)
	m.minions.Forget(c.ID)
	m.pillars.ForgetFault(c.ID)
	m.syndics.Forget(c.ID)
	if m.cfg.PreserveMinionCache {
		return
	}
	if err := m.cache.Forget(c.ID); err != nil {
		m.log.Warn("cache of a deleted minion cannot be cleared", "minion", c.ID, "error", err)
	}
}

// fire puts an event on the bus. Until openBus has run, fire does nothing.
func (m *Master) fire(tag string, data *value.Map) {
	if m.bus == nil {
		return
	}
	if err := m.bus.Fire(tag, data); err != nil {
		m.log.Warn("event cannot be fired", "tag", tag, "error", err)
	}
}

// Run serves until ctx ends. If it stops in good order, it returns nil.
func (m *Master) Run(ctx context.Context) error {
	m.log.Info("salt-master is ready", "interface", m.cfg.Interface, "publish_port", m.cfg.PublishPort, "ret_port", m.cfg.RetPort,
		"id", m.cfg.ID, "accepted", m.keys.Count(keys.Accepted))
	m.fire(event.Tag("master", m.cfg.ID, "start"), value.NewMap("data", "salt-master "+m.cfg.ID+" started"))
	err := m.work(ctx)
	return errors.Join(err, m.Close())
}

// Close stops all parts in the order in which requests pass through them: ports first, stores last.
// It may also be called when New has opened only some parts of the master.
func (m *Master) Close() error {
	m.background.End() // so that minions that wait for a runner or a pillar get no answer
	if m.cluster != nil {
		m.cluster.Leave()
	}

	if m.newest != nil {
		m.newest.Close()
	}

	if m.control != nil {
		m.control.Close()
		_ = os.Remove(filepath.Join(m.cfg.SockDir, control.Socket))
	}

	m.callers.Stop()
	if m.router != nil {
		m.router.Close()
	}

	if m.pub != nil {
		m.pub.Close()
	}

	if m.cluster != nil {
		m.cluster.Close()
	}

	m.background.Close()
	m.presence.Record(context.Background())
	m.launch.SaveQuota(context.Background())
	if m.nonces != nil {
		if err := m.nonces.Close(); err != nil {
			m.log.Warn("requests of now may not be known after the restart", "error", err)
		}
		m.nonces = nil
	}

	if m.renderers != nil {
		m.renderers.Close()
	}

	if m.gpg != nil {
		m.gpg.Close()
	}

	if m.extPillar != nil {
		m.extPillar.Close()
	}

	if m.python != nil {
		m.python.Close()
	}

	m.callers.Close()
	m.repos.Close()
	if m.sockets != nil {
		m.sockets.Close()
	}

	if m.bus != nil {
		m.bus.Close()
	}

	m.eventReturn.Close()
	m.postgresEvents.Close()

	var err error
	if m.closeJobs != nil {
		// The last writes of the job cache may take some seconds.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = m.closeJobs(ctx)
		m.closeJobs = nil
	}
	err = errors.Join(err, m.closeHistory(), m.closePostgres())

	m.audit.Close()
	return err
}
