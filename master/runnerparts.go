package master

import (
	"context"

	"saltern/master/cache"
	"saltern/master/fileserver"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/target"
)

// The types of this file let runners reach the parts of the master.

type cacheBanks struct {
	c           *cache.Store
	clearPillar func(id string)
}

func (b cacheBanks) Get(bank, id string) (*msgpack.Map, bool) { return b.c.Get(cache.Bank(bank), id) }
func (b cacheBanks) Set(bank, id string, m *msgpack.Map) error {
	_, err := b.c.Set(cache.Bank(bank), id, m)
	return err
}
func (b cacheBanks) Flush(bank, id string) error {
	if bank == string(cache.Pillar) {
		b.clearPillar(id)
	}
	return b.c.Flush(cache.Bank(bank), id)
}
func (b cacheBanks) IDs(bank string) ([]string, error) { return b.c.IDs(cache.Bank(bank)) }

type targets struct{ m *Master }

func (t targets) Match(tgt any, typ string) ([]string, error) {
	ids, _, err := t.m.resolve(tgt, typ, ":")
	return ids, err
}

func (t targets) MatchExact(compound string) ([]string, error) {
	ids, _, err := target.Resolve(t.m.keys.Accepted(), compound, "compound_pillar_exact", t.m.targetEnv(":"))
	return ids, err
}

type keyList struct{ m *Master }

func (k keyList) Accepted() []string { return k.m.keys.Accepted() }
func (k keyList) Delete(id string) error {
	return k.m.keys.Delete(id, keys.Accepted)
}

type connectedFrom struct{ m *Master }

func (c connectedFrom) Connected() map[string]string {
	out := map[string]string{}
	for _, id := range c.m.connected() {
		from, _, _ := c.m.presence.Last(id)
		out[id] = from.String()
	}
	return out
}

type fileRunner struct{ s *fileserver.Server }

func (f fileRunner) Call(ctx context.Context, cmd string, load *msgpack.Map) (any, error) {
	return f.s.Call(ctx, cmd, "", load)
}

func (f fileRunner) Backends(names any) []string { return f.s.Backends(names) }

func (f fileRunner) Envs(_ context.Context, backend string) ([]string, error) {
	return f.s.Envs(backend), nil
}

func (f fileRunner) Update(ctx context.Context, backends []string) error {
	_, err := f.s.Update(ctx, boxed(backends))
	return err
}

func (f fileRunner) ClearCache(_ context.Context, backend string) (bool, error) {
	return len(f.s.ClearCache(backend)) > 0, nil
}

func (f fileRunner) ClearLists(_ context.Context, backends, envs []string) (map[string][]string, error) {
	return f.s.ClearFileListCache(envs, boxed(backends)), nil
}

func boxed(l []string) any {
	if l == nil {
		return nil
	}
	out := make([]any, len(l))
	for i, s := range l {
		out[i] = s
	}
	return out
}
