// Package minion answers what signed-in minions ask of their master. Each method
// works on the proven id of the caller alone, and what it may cost is bounded.
package minion

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"sync/atomic"
	"time"

	"saltern/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/launch"
	"saltern/master/internal/mine"
	"saltern/master/internal/pillar"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/keys/admin"
	"saltern/master/runner"
	"saltern/master/value"
)

// Config of a Service.
type Config struct {
	Options  *conf.Master
	Keys     *keys.Store
	Ring     *admin.Ring
	SignIn   *auth.Service // wraps pillars
	Bus      *event.Bus
	Jobs     jobs.Cache
	Cache    *cache.Store
	Mine     *mine.Service
	Files    *fileserver.Server
	Pillars  *pillar.Service
	Compiler *pillar.Compiler // for master_tops
	Targets  *launch.Targets
	Launch   *launch.Launcher
	Runs     *runner.Runs
	// Wait takes a place among the requests that wait for the work of others;
	// leave gives it back.
	Wait func() (leave func(), ok bool)
	// Fire puts an event of the master on the bus.
	Fire func(tag string, data *value.Map)
	// Problem reports a lasting fault; nil ends it.
	Problem func(what control.Fault, err error)
	Now     func() time.Time
	// Quiet is for lines that minions can cause at no cost.
	Log, Quiet *slog.Logger
}

// Service answers minions. It is safe for concurrent use.
type Service struct {
	cfg       Config
	events    EventFilter
	allowance *allowance
	turns     turns
	quota     *quota

	returns, overdrawn, trimmed, filtered atomic.Uint64
}

// New makes a Service.
func New(cfg Config) *Service {
	return &Service{
		cfg: cfg, events: EventFilter{Prefixes: cfg.Options.EventPrefixes}, allowance: newAllowance(),
		quota: newQuota(cfg.Options.JobCacheQuota, cfg.Options.KeepJobs),
	}
}

// Stats are counters since the start.
type Stats struct {
	Returns   uint64 // taken
	Overdrawn uint64 // requests refused: their minion asks for too much work
	Trimmed   uint64 // returns kept without their value
	Filtered  uint64 // events refused for their tag
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{s.returns.Load(), s.overdrawn.Load(), s.trimmed.Load(), s.filtered.Load()}
}

// Forget drops what is known of a minion whose key is gone.
func (s *Service) Forget(id string) { s.quota.forget(id) }

// Methods are the commands of signed-in minions (salt/master.py AESFuncs).
func (s *Service) Methods() request.Table {
	empty := value.NewMap()
	t := request.Table{
		"_pillar":             {Requires: []string{"grains"}, Missing: false, Do: s.onPillar},
		"_master_opts":        {Do: s.onMasterOpts},
		"_master_tops":        {Do: s.onMasterTops},
		"_mine":               {Requires: []string{"data"}, Missing: empty, Once: true, Do: s.onMine},
		"_mine_get":           {Requires: []string{"tgt", "fun"}, Missing: empty, Do: s.metered(empty, s.onMineGet)},
		"_mine_delete":        {Requires: []string{"fun"}, Missing: empty, Once: true, Do: s.onMineDelete},
		"_mine_flush":         {Once: true, Do: s.onMineFlush},
		"_minion_event":       {Once: true, Do: s.onMinionEvent},
		"_return":             {Once: true, Do: s.onReturn},
		"_syndic_return":      {Once: true, Do: s.onSyndicReturn},
		"_register_resources": {Once: true, Do: s.onResources},
		"minion_pub":          {Requires: peerFields, Missing: empty, Once: true, Do: s.metered(empty, s.onMinionPub)},
		"minion_publish":      {Requires: peerFields, Missing: empty, Once: true, Do: s.metered(empty, s.onMinionPublish)},
		"pub_ret":             {Requires: []string{"jid"}, Missing: empty, Do: s.onPubRet},
		"minion_runner":       {Requires: []string{"fun", "arg"}, Missing: empty, Once: true, Do: s.metered(empty, s.onMinionRunner)},
		"revoke_auth":         {Once: true, Do: s.onRevoke},
		"_file_recv":          {Once: true, Do: s.onFile("_file_recv")},
	}
	for _, cmd := range []string{"_serve_file", "_file_find", "_file_hash", "_file_hash_and_stat", "_file_list",
		"_file_list_emptydirs", "_dir_list", "_symlink_list", "_file_envs"} {
		t[cmd] = request.Method{Do: s.onFile(cmd)}
	}
	return t
}

func (s *Service) onFile(cmd string) request.Func {
	if cmd == "_serve_file" {
		return func(ctx context.Context, c *request.Call) (any, error) { return s.cfg.Files.Serve(ctx, c.Load) }
	}
	return func(ctx context.Context, c *request.Call) (any, error) {
		return s.cfg.Files.Call(ctx, cmd, c.ID, c.Load)
	}
}

// onPillar compiles the caller's own pillar and keeps its grains. A failure
// travels inside the pillar (_errors), as minions expect.
func (s *Service) onPillar(ctx context.Context, c *request.Call) (any, error) {
	grains := c.Load.Map("grains")
	if grains == nil {
		return false, nil
	}
	grains.Set("id", c.ID)
	env := func(k string) string { return c.Load.Str(k) }
	saltenv := env("saltenv")
	if saltenv == "" {
		saltenv = env("env")
	}
	data, err := s.cfg.Pillars.Serve(ctx, pillar.Request{
		ID: c.ID, Grains: grains, Saltenv: saltenv, Pillarenv: env("pillarenv"),
		Override: c.Load.Map("pillar_override"), Extra: c.Load.Map("extra_minion_data"), Ext: c.Load.Value("ext"),
	}, c.Load.Bool("clean_cache"))
	if err != nil {
		return nil, err
	}
	if s.cfg.Options.MinionDataCache {
		_, err := s.cfg.Cache.Set(cache.Grains, c.ID, grains)
		s.cfg.Problem(control.MinionCacheFault, err)
		if err != nil {
			s.cfg.Log.Error("grains cannot be kept", "minion", c.ID, "error", err)
		}
		if s.cfg.Options.MinionDataCacheEvents {
			s.cfg.Fire("minion/refresh/"+c.ID, value.NewMap("Minion data cache refresh", c.ID))
		}
	}
	private, err := s.cfg.SignIn.Private(c.ID, auth.Algorithms{Encryption: c.EncAlgo, Signing: c.SigAlgo}, c.Nonce, data)
	if err != nil {
		return nil, err
	}
	return request.Plain{Payload: private}, nil
}

func (s *Service) onMasterOpts(ctx context.Context, c *request.Call) (any, error) {
	envs, err := s.cfg.Files.Call(ctx, "_file_envs", c.ID, c.Load)
	if err != nil {
		return nil, err
	}
	roots := value.NewMap()
	if l, ok := envs.([]any); ok {
		for _, e := range l {
			roots.Set(e, []any{})
		}
	} else if l, ok := envs.([]string); ok {
		for _, e := range l {
			roots.Set(e, []any{})
		}
	}
	raw := s.cfg.Options.Raw
	out := value.NewMap("file_roots", roots)
	names := []string{"top_file_merging_strategy", "env_order", "default_top"}
	if !value.Truth(c.Load.Value("env_only")) {
		names = append(names, "renderer", "failhard", "state_top", "state_top_saltenv", "nodegroups", "state_auto_order", "state_events",
			"state_aggregate", "jinja_env", "jinja_sls_env", "jinja_lstrip_blocks", "jinja_trim_blocks")
	}
	for _, n := range names {
		out.Set(n, raw.Value(n))
	}
	return out, nil
}

func (s *Service) onMasterTops(ctx context.Context, c *request.Call) (any, error) {
	if s.cfg.Options.MasterTops.Len() == 0 {
		return value.NewMap(), nil
	}
	opts := value.NewMap()
	if o := c.Load.Map("opts"); o != nil {
		opts = o.Clone()
	}
	opts.Set("id", c.ID)
	if g := opts.Map("grains"); g != nil {
		g.Set("id", c.ID)
	}
	return s.cfg.Compiler.Tops(ctx, opts)
}

func (s *Service) onMine(_ context.Context, c *request.Call) (any, error) {
	data := c.Load.Map("data")
	if data == nil {
		return false, nil
	}
	if s.cfg.Options.MinionDataCache || s.cfg.Options.EnforceMineCache {
		if err := s.cfg.Cache.Update(cache.Mine, c.ID, data, c.Load.Bool("clear")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (s *Service) onMineDelete(_ context.Context, c *request.Call) (any, error) {
	if s.cfg.Options.MinionDataCache || s.cfg.Options.EnforceMineCache {
		if _, ok := s.cfg.Cache.Get(cache.Mine, c.ID); !ok {
			return false, nil
		}
		if err := s.cfg.Cache.Remove(cache.Mine, c.ID, c.Load.Str("fun")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (s *Service) onMineFlush(_ context.Context, c *request.Call) (any, error) {
	if err := s.cfg.Cache.Flush(cache.Mine, c.ID); err != nil {
		return nil, err
	}
	return true, nil
}

// onMinionEvent puts a minion's events on the bus, as far as the allow-list
// goes (salt/daemons/masterapi.py _minion_event).
func (s *Service) onMinionEvent(_ context.Context, c *request.Call) (any, error) {
	load := c.Load
	if list, ok := load.Value("events").([]any); ok {
		pretag := load.Str("pretag")
		for _, e := range list {
			ev, ok := e.(*value.Map)
			if !ok {
				continue
			}
			var data any = ev
			if d, ok := ev.Get("data"); ok {
				data = d
			}
			if pretag != "" {
				s.fireFor(c.ID, pretag+"/"+ev.Str("tag"), data)
			}
			s.fireFor(c.ID, ev.Str("tag"), data)
		}
		return nil, nil
	}
	if _, ok := load.Get("data"); !ok || load.Str("tag") == "" {
		return nil, nil
	}
	if load.Str("tag") == "_salt_error" {
		s.cfg.Quiet.Error("minion reports an error", "minion", c.ID, "message", load.Map("data").Str("message"))
	}
	s.fireFor(c.ID, load.Str("tag"), load)
	return nil, nil
}

// fireFor fires an event in the name of a minion, if it may.
func (s *Service) fireFor(id, tag string, data any) {
	if !s.events.Allowed(id, tag) {
		s.filtered.Add(1)
		s.cfg.Quiet.Warn(fmt.Sprintf("Filtering blacklisted event tag %.100q", tag), "minion", id)
		return
	}
	s.fireOf(id, tag, ownData(id, data))
}

// fireOf puts an event on the bus that a minion made.
func (s *Service) fireOf(minion, tag string, data *value.Map) {
	if err := s.cfg.Bus.FireFor(minion, tag, data); err != nil {
		s.cfg.Log.Warn("event of a minion cannot be fired", "minion", minion, "tag", tag, "error", err)
	}
}

// onResources keeps which resources a minion manages; 3008 minions send it
// after each connect, also when there are none.
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
	sel := admin.Selection{Dict: value.NewMap(keys.Accepted.Dir(), []any{c.ID})}
	if _, err := s.cfg.Ring.Delete(sel, c.Load.Bool("preserve_minion_cache")); err != nil {
		return nil, err
	}
	return true, nil
}

// onSyndicReturn takes the returns that a lower master collected. Without
// order_masters there are no lower masters: then it would only be a way for a
// minion to speak for others.
func (s *Service) onSyndicReturn(ctx context.Context, c *request.Call) (any, error) {
	if !s.cfg.Options.OrderMasters {
		s.cfg.Quiet.Warn("returns of a syndic are refused: order_masters is off", "minion", c.ID)
		return nil, nil
	}
	loads := c.Load.List("load")
	if loads == nil {
		return nil, nil
	}
	for _, l := range loads {
		load, ok := l.(*value.Map)
		if !ok || load.Map("return") == nil {
			continue
		}
		ids := make([]string, 0, load.Map("return").Len())
		ids = append(ids, load.Map("return").Keys()...)
		sort.Strings(ids)
		if err := s.syndicReturn(ctx, c, load, ids); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (s *Service) syndicReturn(ctx context.Context, c *request.Call, load *value.Map, ids []string) error {
	for _, id := range ids {
		if keys.ValidID(id) != nil {
			continue
		}
		if e, known := s.cfg.Keys.Lookup(id); known && e.State == keys.Accepted {
			s.cfg.Quiet.Warn("syndic returns for a minion of this master; refused", "minion", id, "syndic", c.ID)
			continue
		}
		ret := value.NewMap("jid", load.Str("jid"), "id", id, "fun", load.Value("fun"), "fun_args", load.Value("arg"))
		v := load.Map("return").Value(id)
		if d, ok := v.(*value.Map); ok {
			for k, v := range d.All() {
				ret.Set(k, v)
			}
		} else {
			ret.Set("return", v)
		}
		ret.Set("id", id)
		if _, err := s.onReturn(ctx, &request.Call{ID: id, Load: ret, From: c.From}); err != nil {
			return err
		}
	}
	return nil
}
