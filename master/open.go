package master

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/internal/acl"
	"saltern/master/internal/batch"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/launch"
	"saltern/master/internal/local"
	"saltern/master/internal/mine"
	"saltern/master/internal/minion"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/reactor"
	"saltern/master/internal/resources"
	"saltern/master/internal/wheel"
	"saltern/master/pattern"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

// openLaunch creates the launcher of jobs.
func (m *Master) openLaunch() {
	c := m.cfg
	for _, name := range c.UserFields {
		if !slices.Contains(launch.PermittableFields(), name) {
			m.log.Warn("saltern_user_publish_fields names a field that cannot be permitted; it counts for nothing",
				"field", name, "known", launch.PermittableFields())
		}
	}

	m.resources = resources.New(resources.Config{
		Cache:      m.cache,
		Accepted:   m.keys.Accepted,
		KeepGrains: c.MinionDataCache,
		Now:        m.now,
		Log:        m.quiet,
	})
	m.targets = &launch.Targets{
		Accepted:   m.keys.Accepted,
		Nodegroups: c.Nodegroups,
		Saved:      m.savedStore,
		Cache:      m.cache,
		Resources:  m.resources,
	}
	m.launch = launch.New(launch.Config{
		Targets:       m.targets,
		Jobs:          m.jobs,
		Bus:           m.bus,
		Fire:          m.fire,
		Problems:      m.problems,
		Publish:       m.publish,
		Peers:         m.cluster,
		Running:       func(jid string) bool { return m.runs.At(jid) },
		Limits:        launch.Limits{Fields: c.UserFields, Returners: c.UserReturners, ExtJobCache: c.ExtJobCache},
		Quota:         c.UserJobQuota,
		Keep:          c.KeepJobs,
		QuotaFile:     filepath.Join(c.CacheDir, "user-quotas.json"),
		Now:           m.now,
		User:          c.User,
		MasterID:      c.MasterID,
		OrderMasters:  c.OrderMasters,
		SyndicWait:    c.SyndicWait,
		Syndics:       m.syndics,
		Timeout:       c.Timeout,
		GatherTimeout: c.GatherJobTimeout,
		Started:       m.started,
		Log:           m.log,
		Quiet:         m.quiet,
	})

	m.mine = &mine.Service{
		Data:       func(id string) (*value.Map, bool) { return m.cache.Get(cache.Mine, id) },
		Resolve:    m.targets.Among,
		ACL:        c.MineGet,
		Restricted: c.MineGet != nil,
		Match:      pattern.Match,
	}

	var orders batch.Orders
	if !m.cluster.Alone() {
		m.stopOrders = m.cluster.NewStopOrders(m.bus, m.fire)
		orders = m.stopOrders
	}
	m.batches = batch.NewManager(batch.Config{
		Dir:       c.CacheDir,
		HashType:  c.HashType,
		ID:        c.ID,
		Jobs:      m.jobs,
		Publisher: m.launch,
		Orders:    orders,
		UserKey:   userKey(c),
		Adopted:   local.BatchRecord(m.audit),
		Fire:      m.fire,
		Now:       m.now,
		Log:       m.log,
	})

	m.batchEvents = m.bus.Subscribe("batches", 10000, m.batches.Wants)
}

// openWheel creates the service of wheel functions.
func (m *Master) openWheel() {
	c := m.cfg
	configDir := filepath.Dir(c.Path)
	if c.Door != "" {
		configDir = "" // the supervisor writes the configuration
	}

	shared := func(roots map[string][]string) wheel.Roots {
		return fileserver.NewShared(fileserver.Tree{Roots: roots}, m.newest.Source, m.newest.Renew)
	}
	m.wheel = &wheel.Service{
		Env: &wheel.Env{
			Keys:           m.ring,
			FileRoots:      shared(c.FileRoots),
			PillarRoots:    shared(c.PillarRoots),
			Newest:         m.newestForRunners,
			Connected:      m.presence.IDs,
			ConfigDir:      configDir,
			DefaultInclude: c.DefaultInclude,
			Values:         func() *value.Map { return conf.WithoutSecrets(c.Raw) },
			KeySize:        c.KeySize,
			Machines:       machines(c),
			Tokens:         m.callers.Tokens,
			PublicKey: func() (string, string) {
				return strings.TrimSuffix(c.ID, "_master") +
					".pub", m.identity.Public
			},
		},
		Python: pyrunner.New(pyrunner.Config{
			Host:       m.python,
			ConfigFile: c.Path,
			Layer:      c.PythonLayer,
			Wheel:      true,
			Log:        m.log,
		}),
		Runs: m.runs,
		Wait: m.background.Wait,
	}
}

// openLocal creates the service for the tools of this host.
func (m *Master) openLocal() *local.Service {
	c := m.cfg
	return local.New(local.Config{
		Auth:       m.callers.Auth,
		Blacklist:  blacklist(c),
		Saved:      m.saved,
		Batches:    ownBatches{m.batches, m.jids},
		Launch:     m.launch,
		Runs:       m.runs,
		Wheel:      m.wheel,
		Background: m.background,
		ReloadKeys: m.keys.Look,
		Settle:     m.sockets.Settle,
		Fire:       m.fire,
		Trouble:    m.writes.Reason,
		Audit:      m.audit,
		Log:        m.log,
		Quiet:      m.quiet,
	})
}

// blacklist returns the option publisher_acl_blacklist.
func blacklist(c *conf.Master) acl.Blacklist {
	return acl.Blacklist{
		Users:   c.PublisherACLBlacklist.Texts("users"),
		Modules: c.PublisherACLBlacklist.Texts("modules"),
	}
}

// openMinions creates the service for requests of minions.
func (m *Master) openMinions() *minion.Service {
	return minion.New(minion.Config{
		Options: m.cfg,
		Keys:    m.keys,
		Ring:    m.ring,
		Syndics: m.syndics,
		SignIn:  m.signin,
		Bus:     m.bus,
		Jobs:    m.jobs,
		Cache:   m.cache,
		Mine:    m.mine,

		Resources: m.resources,
		Revisions: m.revisionsForMinions(),

		Notify:   m.notify,
		Files:    m.files,
		Newest:   m.newest,
		Pillars:  m.pillars,
		Compiler: m.compiler,
		Targets:  m.targets,
		Launch:   m.launch,
		Runs:     m.runs,
		Ending:   m.background.Ending(),
		Fire:     m.fire,
		Problem:  m.problems.Report,
		Now:      m.now,
		Audit:    m.audit,
		Log:      m.log,
		Quiet:    m.quiet,
	})
}

// openReactor creates the reactor.
func (m *Master) openReactor() {
	c := m.cfg
	m.reactor = reactor.NewEngine(reactor.Config{
		Rules:   m.reactions,
		Depth:   c.ReactorWorkerHWM,
		Threads: c.ReactorThreads,
		ID:      c.ID,
		Bus:     m.bus,
		Fire:    m.fire,
		Launch:  m.launch,
		Wheel:   m.wheel,
		Runs:    m.runs,
		Locate: func(ctx context.Context, url string) (string, bool, error) {
			m.newest.Await(ctx, m.newest.Lately())
			return m.files.Locate(ctx, url)
		},
		Compiler: m.renderers.Reactions(renderer.ReactionsConfig{
			Options: func(ctx context.Context) *value.Map { return m.repos.FileOptions(ctx, "") },
			Renew:   c.ReactorRefresh,
		}),
		Settle:  m.sockets.Settle,
		UserKey: userKey(c),
		Log:     m.log,
	})
}

// userKey returns a function that reads the key of the master's account, which an event must
// contain to change the rules of the reactor or the state of a batch.
func userKey(c *conf.Master) func() (string, error) {
	return func() (string, error) { return local.ReadUserKey(filepath.Join(c.CacheDir, "."+c.User+"_key")) }
}
