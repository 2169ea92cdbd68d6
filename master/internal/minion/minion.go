// Package minion answers the requests of signed-in minions. Each method uses only the authenticated
// id of the caller, and the cost of each method is bounded.
package minion

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/keyadmin"
	"saltern/master/internal/launch"
	"saltern/master/internal/mine"
	"saltern/master/internal/newest"
	"saltern/master/internal/notify"
	"saltern/master/internal/pillar"
	"saltern/master/internal/queue"
	"saltern/master/internal/request"
	"saltern/master/internal/resources"
	"saltern/master/internal/syndics"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of a Service.
type Config struct {
	Options *conf.Master
	Keys    *keys.Store
	Ring    *keyadmin.Ring
	// Syndics notes the minions that return for others. It may be nil: without order_masters nobody does.
	Syndics *syndics.Registry
	SignIn  *auth.Service // encrypts pillars for the minion
	Bus     *event.Bus
	Jobs    jobs.Cache
	Cache   *cache.Store
	Mine    *mine.Service
	// Resources holds the resources that minions register.
	Resources *resources.Registry
	Files     *fileserver.Server
	Newest    *newest.Service
	Pillars   *pillar.Service
	Compiler  *pillar.Compiler // compiles the answers to master_tops
	Targets   *launch.Targets
	Launch    *launch.Launcher
	Runs      *runner.Runs
	// Revisions tells which files minions were served. It may be nil: runs of states cannot be compared.
	Revisions Revisions
	// Ending ends when the master stops. It cancels the runners that minions have called. It may be
	// nil: they run to their end.
	Ending context.Context
	// Notify records failed runs for notifications. It may be nil: nothing is recorded.
	Notify *notify.Service
	// Fire fires an event of the master on the bus.
	Fire func(tag string, data *value.Map)
	// Problem reports a persistent fault. If err is nil, the fault has ended.
	Problem func(fault control.Fault, err error)
	Now     func() time.Time
	// Audit records the keys that minions revoke. It may be nil: nothing is recorded.
	Audit *audit.Log
	// Log is the logger. Quiet is the logger for lines that minions can provoke at no cost.
	Log, Quiet *slog.Logger
}

// Service answers the requests of minions. It is safe for concurrent use.
type Service struct {
	cfg       Config
	events    EventFilter
	allowance *allowance
	turns     turns
	runners   *queue.Queue[any] // queue of requests that call a runner
	waiters   *queue.Queue[any] // queue of requests that wait for the returns of a job
	quota     *quota

	returns, overdrawn, trimmed, filtered atomic.Uint64
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{
		cfg:       cfg,
		events:    EventFilter{Prefixes: cfg.Options.EventPrefixes, Syndics: cfg.Options.OrderMasters},
		allowance: newAllowance(),
		runners:   newQueue(max(minRunners, runnersPerCPU*runtime.NumCPU())),
		waiters:   newQueue(maxWaiters),
		quota:     newQuota(cfg.Options.JobCacheQuota, cfg.Options.KeepJobs),
	}
}

// Stats are counters since the start.
type Stats struct {
	Returns   uint64 // returns that were stored
	Overdrawn uint64 // requests refused because the minion exceeds its allowance
	Trimmed   uint64 // returns that were stored without their value
	Filtered  uint64 // events refused because of their tag
	Runners   queue.Stats
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{s.returns.Load(), s.overdrawn.Load(), s.trimmed.Load(), s.filtered.Load(), s.runners.Stats()}
}

// Forget drops the data about a minion whose key was removed.
func (s *Service) Forget(id string) { s.quota.forget(id) }

// Methods returns the commands of signed-in minions and their handlers (salt/master.py AESFuncs).
func (s *Service) Methods() request.Table {
	empty := value.NewMap()
	t := request.Table{
		"_pillar":             {Requires: []string{"grains"}, Missing: false, Do: s.withNewestFiles(s.onPillar)},
		"_master_opts":        {Do: s.onMasterOpts},
		"_master_tops":        {Do: s.withNewestFiles(s.onMasterTops)},
		"_mine":               {Requires: []string{"data"}, Missing: empty, Once: true, Do: s.onMine},
		"_mine_get":           {Requires: []string{"tgt", "fun"}, Missing: empty, Do: s.metered(s.onMineGet)},
		"_mine_delete":        {Requires: []string{"fun"}, Missing: empty, Once: true, Do: s.onMineDelete},
		"_mine_flush":         {Once: true, Do: s.onMineFlush},
		"_minion_event":       {Once: true, Do: s.onMinionEvent},
		"_return":             {Once: true, Do: s.onReturn},
		"_syndic_return":      {Once: true, Do: s.onSyndicReturn},
		"_register_resources": {Requires: []string{"resources"}, Missing: empty, Once: true, Do: s.onResources},
		"minion_pub":          {Requires: peerFields, Missing: empty, Once: true, Do: s.metered(s.onMinionPub)},
		"minion_publish":      {Requires: peerFields, Missing: empty, Once: true, Do: s.metered(s.onMinionPublish)},
		"pub_ret":             {Requires: []string{"jid"}, Missing: empty, Do: s.onPubRet},
		"minion_runner": {
			Requires: []string{"fun", "arg"},
			Missing:  empty,
			Once:     true,
			Do:       s.metered(s.onMinionRunner),
		},
		"revoke_auth": {Once: true, Do: s.onRevoke},
		"_file_recv":  {Once: true, Do: s.onFile("_file_recv")},
	}

	for _, cmd := range []string{"_serve_file", "_file_find", "_file_hash", "_file_hash_and_stat", "_file_list",
		"_file_list_emptydirs", "_dir_list", "_symlink_list", "_file_envs"} {
		t[cmd] = request.Method{Do: s.withNewestFiles(s.onFile(cmd))}
	}

	return t
}

// onResources registers the resources of a minion (salt/master.py _register_resources). Minions of
// 3008 report after each connect, even if they have no resources.
func (s *Service) onResources(_ context.Context, c *request.Call) (any, error) {
	if err := s.cfg.Resources.Register(c.ID, c.Load.Map("resources"), c.Load.Map("resource_grains")); err != nil {
		s.cfg.Quiet.Error("resources of a minion cannot be registered", "minion", c.ID, "error", err)
		return false, nil
	}

	if !s.cfg.Options.MinionDataCache || !s.cfg.Options.MinionDataCacheEvents {
		return true, nil
	}
	s.cfg.Fire("resource/refresh/"+c.ID, value.NewMap("Resource cache refresh", c.ID))
	return true, nil
}

// onRevoke deletes the caller's own key.
func (s *Service) onRevoke(_ context.Context, c *request.Call) (any, error) {
	if !s.cfg.Options.AllowMinionKeyRevoke {
		s.cfg.Quiet.Warn("minion asked to revoke its key, but allow_minion_key_revoke is off", "minion", c.ID)
		return c.Load, nil
	}

	sel := keyadmin.Selection{Dict: value.NewMap(keys.Accepted.Dir(), []any{c.ID})}
	_, err := s.cfg.Ring.Delete(sel, c.Load.Bool("preserve_minion_cache"))
	r := audit.Record{
		Actor:    audit.Actor{User: c.ID, Proof: audit.Minion, From: c.From.Addr().Unmap().String()},
		Action:   "key.revoke",
		Object:   c.ID,
		Stranger: true,
	}

	s.cfg.Audit.Note(r.Ended(err))
	if err != nil {
		return nil, err
	}

	return true, nil
}
