package master

import (
	"context"
	"crypto/rand"
	"fmt"
	"sort"

	"saltern/master/cache"
	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/keys/admin"
	"saltern/master/msgpack"
	"saltern/master/pillar"
	"saltern/master/request"
)

// minionMethods are the commands of signed-in minions (salt/master.py
// AESFuncs). Every one works on the proven id of the caller alone.
func (m *Master) minionMethods() request.Table {
	empty := msgpack.NewMap()
	t := request.Table{
		"_pillar":             {Requires: []string{"grains"}, Missing: false, Do: m.onPillar},
		"_master_opts":        {Do: m.onMasterOpts},
		"_master_tops":        {Do: m.onMasterTops},
		"_mine":               {Requires: []string{"data"}, Missing: empty, Once: true, Do: m.onMine},
		"_mine_get":           {Requires: []string{"tgt", "fun"}, Missing: empty, Do: m.metered(empty, m.onMineGet)},
		"_mine_delete":        {Requires: []string{"fun"}, Missing: empty, Once: true, Do: m.onMineDelete},
		"_mine_flush":         {Once: true, Do: m.onMineFlush},
		"_minion_event":       {Once: true, Do: m.onMinionEvent},
		"_return":             {Once: true, Do: m.onReturn},
		"_syndic_return":      {Once: true, Do: m.onSyndicReturn},
		"_register_resources": {Once: true, Do: m.onResources},
		"minion_pub":          {Requires: peerFields, Missing: empty, Once: true, Do: m.metered(empty, m.onMinionPub)},
		"minion_publish":      {Requires: peerFields, Missing: empty, Once: true, Do: m.metered(empty, m.onMinionPublish)},
		"pub_ret":             {Requires: []string{"jid"}, Missing: empty, Do: m.onPubRet},
		"minion_runner":       {Requires: []string{"fun", "arg"}, Missing: empty, Once: true, Do: m.metered(empty, m.onMinionRunner)},
		"revoke_auth":         {Once: true, Do: m.onRevoke},
		"_file_recv":          {Once: true, Do: m.onFile("_file_recv")},
	}
	for _, cmd := range []string{"_serve_file", "_file_find", "_file_hash", "_file_hash_and_stat", "_file_list",
		"_file_list_emptydirs", "_dir_list", "_symlink_list", "_file_envs"} {
		t[cmd] = request.Method{Do: m.onFile(cmd)}
	}
	return t
}

func (m *Master) onFile(cmd string) request.Func {
	if cmd == "_serve_file" {
		return func(ctx context.Context, c *request.Call) (any, error) { return m.files.Serve(ctx, c.Load) }
	}
	return func(ctx context.Context, c *request.Call) (any, error) { return m.files.Call(ctx, cmd, c.ID, c.Load) }
}

// onPillar compiles the caller's own pillar and keeps its grains. A failure
// travels inside the pillar (_errors), as minions expect.
func (m *Master) onPillar(ctx context.Context, c *request.Call) (any, error) {
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
	data, err := m.minionPillar(ctx, pillar.Request{
		ID: c.ID, Grains: grains, Saltenv: saltenv, Pillarenv: env("pillarenv"),
		Override: c.Load.Map("pillar_override"), Extra: c.Load.Map("extra_minion_data"), Ext: get(c.Load, "ext"),
	}, c.Load.Bool("clean_cache"))
	if err != nil {
		m.pillarFailed(c.ID, err.Error(), 1)
		return nil, fmt.Errorf("compiling the pillar: %w", err)
	}
	m.notePillar(c.ID, data)
	if m.cfg.MinionDataCache {
		if _, err := m.cache.Set(cache.Grains, c.ID, grains); err != nil {
			m.problems.set("minion cache", err)
			m.log.Error("grains cannot be kept", "minion", c.ID, "error", err)
		} else {
			m.problems.clear("minion cache")
		}
		if m.cfg.MinionDataCacheEvents {
			m.fire("minion/refresh/"+c.ID, msgpack.NewMap("Minion data cache refresh", c.ID))
		}
	}
	return m.privately(c, data)
}

// privately wraps a pillar for the caller alone: signed, under a key of its
// own (salt/channel/server.py _encrypt_private).
func (m *Master) privately(c *request.Call, data *msgpack.Map) (any, error) {
	key, err := crypt.NewKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	enc, sig := c.EncAlgo, c.SigAlgo
	if enc == "" {
		enc = "OAEP-SHA1"
	}
	if sig == "" {
		sig = "PKCS1v15-SHA1"
	}
	wrapped, err := m.signin.EncryptTo(c.ID, enc, []byte(key.String()))
	if err != nil {
		return nil, fmt.Errorf("wrapping the key of a pillar: %w", err)
	}
	inner, err := msgpack.Marshal(msgpack.NewMap("key", wrapped, "pillar", data, "nonce", c.Nonce), msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("packing a pillar: %w", err)
	}
	signature, err := m.signin.SignBlob(sig, inner)
	if err != nil {
		return nil, fmt.Errorf("signing a pillar: %w", err)
	}
	signed, err := msgpack.Marshal(msgpack.NewMap("data", inner, "sig", signature), msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("packing a pillar: %w", err)
	}
	return request.Plain{Payload: msgpack.NewMap("key", wrapped, "pillar", key.Seal(signed, ""))}, nil
}

func (m *Master) onMasterOpts(ctx context.Context, c *request.Call) (any, error) {
	envs, err := m.files.Call(ctx, "_file_envs", c.ID, c.Load)
	if err != nil {
		return nil, err
	}
	roots := msgpack.NewMap()
	if l, ok := envs.([]any); ok {
		for _, e := range l {
			roots.Set(e, []any{})
		}
	} else if l, ok := envs.([]string); ok {
		for _, e := range l {
			roots.Set(e, []any{})
		}
	}
	raw := m.cfg.Raw
	out := msgpack.NewMap("file_roots", roots)
	names := []string{"top_file_merging_strategy", "env_order", "default_top"}
	if !truthy(get(c.Load, "env_only")) {
		names = append(names, "renderer", "failhard", "state_top", "state_top_saltenv", "nodegroups", "state_auto_order", "state_events",
			"state_aggregate", "jinja_env", "jinja_sls_env", "jinja_lstrip_blocks", "jinja_trim_blocks")
	}
	for _, n := range names {
		out.Set(n, get(raw, n))
	}
	return out, nil
}

func truthy(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case int64:
		return v != 0
	case string:
		return v != ""
	}
	return v != nil
}

func (m *Master) onMasterTops(ctx context.Context, c *request.Call) (any, error) {
	if m.cfg.MasterTops.Len() == 0 {
		return msgpack.NewMap(), nil
	}
	opts := msgpack.NewMap()
	if o := c.Load.Map("opts"); o != nil {
		opts = o.Clone()
	}
	opts.Set("id", c.ID)
	if g := opts.Map("grains"); g != nil {
		g.Set("id", c.ID)
	}
	return m.pillars.Tops(ctx, opts)
}

func (m *Master) onMine(_ context.Context, c *request.Call) (any, error) {
	data := c.Load.Map("data")
	if data == nil {
		return false, nil
	}
	if m.cfg.MinionDataCache || m.cfg.EnforceMineCache {
		if err := m.cache.Update(cache.Mine, c.ID, data, c.Load.Bool("clear")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (m *Master) onMineDelete(_ context.Context, c *request.Call) (any, error) {
	if m.cfg.MinionDataCache || m.cfg.EnforceMineCache {
		if _, ok := m.cache.Get(cache.Mine, c.ID); !ok {
			return false, nil
		}
		if err := m.cache.Remove(cache.Mine, c.ID, c.Load.Str("fun")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (m *Master) onMineFlush(_ context.Context, c *request.Call) (any, error) {
	if err := m.cache.Flush(cache.Mine, c.ID); err != nil {
		return nil, err
	}
	return true, nil
}

// onMinionEvent puts a minion's events on the bus, as far as the allow-list
// goes (salt/daemons/masterapi.py _minion_event).
func (m *Master) onMinionEvent(_ context.Context, c *request.Call) (any, error) {
	load := c.Load
	if list, ok := get(load, "events").([]any); ok {
		pretag := load.Str("pretag")
		for _, e := range list {
			ev, ok := e.(*msgpack.Map)
			if !ok {
				continue
			}
			var data any = ev
			if d, ok := ev.Get("data"); ok {
				data = d
			}
			if pretag != "" {
				m.fireFor(c.ID, pretag+"/"+ev.Str("tag"), data)
			}
			m.fireFor(c.ID, ev.Str("tag"), data)
		}
		return nil, nil
	}
	if _, ok := load.Get("data"); !ok || load.Str("tag") == "" {
		return nil, nil
	}
	if load.Str("tag") == "_salt_error" {
		m.quiet.Error("minion reports an error", "minion", c.ID, "message", load.Map("data").Str("message"))
	}
	m.fireFor(c.ID, load.Str("tag"), load)
	return nil, nil
}

// fireFor fires an event in the name of a minion, if it may.
func (m *Master) fireFor(id, tag string, data any) {
	if !m.events.allowed(id, tag) {
		m.count.filtered.Add(1)
		m.quiet.Warn(fmt.Sprintf("Filtering blacklisted event tag %.100q", tag), "minion", id)
		return
	}
	m.fireOf(id, tag, ownData(id, data))
}

// onResources keeps which resources a minion manages; 3008 minions send it
// after each connect, also when there are none.
func (m *Master) onResources(_ context.Context, c *request.Call) (any, error) {
	m.fire("resource/refresh/"+c.ID, msgpack.NewMap("Resource cache refresh", c.ID))
	return true, nil
}

// onRevoke deletes the caller's own key.
func (m *Master) onRevoke(_ context.Context, c *request.Call) (any, error) {
	if !m.cfg.AllowMinionKeyRevoke {
		m.quiet.Warn("minion asked to revoke its key, but allow_minion_key_revoke is off", "minion", c.ID)
		return c.Load, nil
	}
	sel := admin.Selection{Dict: msgpack.NewMap(keys.Accepted.Dir(), []any{c.ID})}
	if _, err := m.ring.Delete(sel, c.Load.Bool("preserve_minion_cache")); err != nil {
		return nil, err
	}
	return true, nil
}

// onSyndicReturn takes the returns that a lower master collected. Without
// order_masters there are no lower masters: then it would only be a way for a
// minion to speak for others.
func (m *Master) onSyndicReturn(ctx context.Context, c *request.Call) (any, error) {
	if !m.cfg.OrderMasters {
		m.quiet.Warn("returns of a syndic are refused: order_masters is off", "minion", c.ID)
		return nil, nil
	}
	loads := c.Load.List("load")
	if loads == nil {
		return nil, nil
	}
	for _, l := range loads {
		load, ok := l.(*msgpack.Map)
		if !ok || load.Map("return") == nil {
			continue
		}
		ids := make([]string, 0, load.Map("return").Len())
		ids = append(ids, load.Map("return").Keys()...)
		sort.Strings(ids)
		if err := m.syndicReturn(ctx, c, load, ids); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (m *Master) syndicReturn(ctx context.Context, c *request.Call, load *msgpack.Map, ids []string) error {
	for _, id := range ids {
		if keys.ValidID(id) != nil {
			continue
		}
		if e, known := m.keys.Lookup(id); known && e.State == keys.Accepted {
			m.quiet.Warn("syndic returns for a minion of this master; refused", "minion", id, "syndic", c.ID)
			continue
		}
		ret := msgpack.NewMap("jid", load.Str("jid"), "id", id, "fun", get(load, "fun"), "fun_args", get(load, "arg"))
		v := get(load.Map("return"), id)
		if d, ok := v.(*msgpack.Map); ok {
			for k, v := range d.All() {
				ret.Set(k, v)
			}
		} else {
			ret.Set("return", v)
		}
		ret.Set("id", id)
		if _, err := m.onReturn(ctx, &request.Call{ID: id, Load: ret, From: c.From}); err != nil {
			return err
		}
	}
	return nil
}
