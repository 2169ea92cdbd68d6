// Package minion answers the requests of signed-in minions. Each method uses only the proven id of
// the caller, and its cost is bounded.
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
	"saltern/master/internal/pillar"
	"saltern/master/internal/queue"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of a Service.
type Config struct {
	Options  *conf.Master
	Keys     *keys.Store
	Ring     *keyadmin.Ring
	SignIn   *auth.Service // wraps pillars
	Bus      *event.Bus
	Jobs     jobs.Cache
	Cache    *cache.Store
	Mine     *mine.Service
	Files    *fileserver.Server
	Newest   *newest.Service
	Pillars  *pillar.Service
	Compiler *pillar.Compiler // for master_tops
	Targets  *launch.Targets
	Launch   *launch.Launcher
	Runs     *runner.Runs
	// Ending ends with the master, and with it the runners that minions have called. It may be nil:
	// they run to their end.
	Ending context.Context
	// Fire puts an event of the master on the bus.
	Fire func(tag string, data *value.Map)
	// Problem reports a lasting fault; nil ends it.
	Problem func(what control.Fault, err error)
	Now     func() time.Time
	Audit   *audit.Log // Audit records keys that minions revoke. It may be nil: no record is kept.
	// Quiet takes lines that minions can cause at no cost.
	Log, Quiet *slog.Logger
}

// Service answers minions. It is safe for concurrent use.
type Service struct {
	cfg       Config
	events    EventFilter
	allowance *allowance
	turns     turns
	runners   *queue.Queue[any] // runners queues the minions that call a runner.
	waiters   *queue.Queue[any] // waiters queues the minions that wait for the returns of their job.
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
	Returns   uint64 // taken
	Overdrawn uint64 // requests refused: their minion asks for too much work
	Trimmed   uint64 // returns kept without their value
	Filtered  uint64 // events refused for their tag
	Runners   queue.Stats
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{s.returns.Load(), s.overdrawn.Load(), s.trimmed.Load(), s.filtered.Load(), s.runners.Stats()}
}

// Forget drops a minion whose key is gone.
func (s *Service) Forget(id string) { s.quota.forget(id) }

// Methods are the commands of signed-in minions (salt/master.py AESFuncs).
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
		"_register_resources": {Once: true, Do: s.onResources},
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

// onResources keeps which resources a minion manages. Minions of 3008 send it after each connect,
// also when they have none.
func (s *Service) onResources(_ context.Context, c *request.Call) (any, error) {
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
