package master

import (
	"log/slog"

	"saltern/internal/audit"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/health"
	"saltern/master/history"
	"saltern/master/internal/auth"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/keyadmin"
	"saltern/master/internal/launch"
	"saltern/master/internal/local"
	"saltern/master/internal/minion"
	"saltern/master/internal/peers"
	"saltern/master/internal/pillar"
	"saltern/master/internal/presence"
	"saltern/master/internal/pyhost"
	"saltern/master/internal/reactor"
	"saltern/master/internal/repos"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Parts holds the services of a master. Tests of a complete master (package mastertest) use them to
// check the effect of a request; the program itself does not use Parts.
type Parts struct {
	Options   *conf.Master
	Log       *slog.Logger
	Audit     *audit.Log
	Bus       *event.Bus
	Cache     *cache.Store
	Callers   local.Callers
	Cluster   *peers.Membership
	Files     *fileserver.Server
	History   *history.Store // nil: none is kept
	Jobs      jobs.Cache
	Keys      *keys.Store
	Ring      *keyadmin.Ring
	Launch    *launch.Launcher
	Targets   *launch.Targets
	Minions   *minion.Service
	Pillars   *pillar.Service
	Presence  *presence.View
	Problems  *health.Problems
	Reporter  *health.Reporter
	Publisher *zmtp.Pub
	Python    *pyhost.Host
	Reactions *reactor.Rules
	Reactor   *reactor.Engine
	Repos     *repos.Service
	Router    *zmtp.Router
	Runs      *runner.Runs
	Secrets   *auth.Secrets

	// Fire puts an event on the bus. If that fails, it logs the error.
	Fire func(tag string, data *value.Map)
}

// Parts returns the services of m.
func (m *Master) Parts() Parts {
	return Parts{
		Options:   m.cfg,
		Log:       m.log,
		Audit:     m.audit,
		Bus:       m.bus,
		Cache:     m.cache,
		Callers:   m.callers,
		Cluster:   m.cluster,
		Files:     m.files,
		History:   m.history,
		Jobs:      m.jobs,
		Keys:      m.keys,
		Ring:      m.ring,
		Launch:    m.launch,
		Targets:   m.targets,
		Minions:   m.minions,
		Pillars:   m.pillars,
		Presence:  m.presence,
		Problems:  m.problems,
		Reporter:  m.reporter,
		Publisher: m.pub,
		Python:    m.python,
		Reactions: m.reactions,
		Reactor:   m.reactor,
		Repos:     m.repos,
		Router:    m.router,
		Runs:      m.runs,
		Secrets:   m.secrets,
		Fire:      m.fire,
	}
}
