package main

import (
	"context"

	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/target"
	"saltern/master/value"
)

// minionData reads the master's cached data about minions.
type minionData struct{ s *cache.Store }

func (d minionData) Grains(id string) (*value.Map, bool) { return d.s.Get(cache.Grains, id) }
func (d minionData) Pillar(id string) (*value.Map, bool) { return d.s.Get(cache.Pillar, id) }

// cacheMemory bounds the decoded data in memory, in bytes.
const cacheMemory = 64 << 20

// matched returns the accepted minions that a target should match, according to the keys and cached
// data on disk.
func (t *tool) matched(tgt any, typ string) ([]string, error) {
	dir := t.cfg.PKIDir
	if t.cfg.ClusterID != "" && t.cfg.ClusterPKIDir != "" {
		dir = t.cfg.ClusterPKIDir
	}

	store, err := keys.Open(dir, keys.Config{NoNotify: true, Permissive: t.cfg.PermissivePKIAccess, Logger: t.log})
	if err != nil {
		return nil, err
	}

	data, err := cache.Open(t.cfg.CacheDir, cacheMemory, keys.ValidID)
	if err != nil {
		return nil, err
	}

	ids, _, err := target.Resolve(store.Accepted(), tgt, typ, target.Env{
		Delimiter: t.values.Str("delimiter"), Nodegroups: t.cfg.Nodegroups, Source: minionData{data}})
	return ids, err
}

// preview prints the minions that the target should match.
func (s *saltCall) preview(context.Context) error {
	ids, err := s.matched(s.req.Target, s.req.TargetType)
	if err != nil {
		return err
	}
	if err := s.display(value.List(ids), "nested", 0, s.outputOptions()); err != nil {
		return err
	}
	if len(ids) == 0 {
		return s.nothing()
	}
	return nil
}
