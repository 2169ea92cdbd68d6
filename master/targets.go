package master

import (
	"os/user"

	"saltern/master/acl"
	"saltern/master/cache"
	"saltern/master/mine"
	"saltern/master/msgpack"
	"saltern/master/pattern"
	"saltern/master/target"
)

// minionData lets targets look into what minions told about themselves.
type minionData struct{ c *cache.Store }

func (d minionData) Grains(id string) (*msgpack.Map, bool) { return d.c.Get(cache.Grains, id) }
func (d minionData) Pillar(id string) (*msgpack.Map, bool) { return d.c.Get(cache.Pillar, id) }

func (m *Master) targetEnv(delimiter string) target.Env {
	return target.Env{Delimiter: delimiter, Nodegroups: m.cfg.Nodegroups, Source: minionData{m.cache}}
}

// resolve returns the accepted minions that a target selects, and the names
// in a list target that have no accepted key.
func (m *Master) resolve(tgt any, typ, delimiter string) (minions, missing []string, err error) {
	return m.resolveWithin(nil, tgt, typ, delimiter)
}

// resolveWithin is resolve with a bound on the work; nil: that of one target.
func (m *Master) resolveWithin(e *target.Effort, tgt any, typ, delimiter string) (minions, missing []string, err error) {
	env := m.targetEnv(delimiter)
	env.Effort = e
	minions, missing, err = target.Resolve(m.keys.Accepted(), tgt, typ, env)
	if minions == nil {
		minions = []string{}
	}
	if missing == nil {
		missing = []string{}
	}
	return minions, missing, err
}

// compound resolves the targets of permissions.
func (m *Master) compound(expr string) ([]string, error) {
	return m.compoundWithin(nil)(expr)
}

// compoundWithin is compound with a bound on the work. Each target is resolved
// once, for one decision.
func (m *Master) compoundWithin(e *target.Effort) acl.Resolver {
	known := map[string][]string{}
	return func(expr string) ([]string, error) {
		if ids, ok := known[expr]; ok {
			return ids, nil
		}
		ids, _, err := m.resolveWithin(e, expr, "compound", ":")
		if err == nil {
			known[expr] = ids
		}
		return ids, err
	}
}

func (m *Master) newMine() *mine.Service {
	_, restricted := m.cfg.Raw.Get("mine_get")
	return &mine.Service{
		Data: func(id string) (*msgpack.Map, bool) { return m.cache.Get(cache.Mine, id) },
		Resolve: func(e *target.Effort, tgt any, typ string, among ...string) ([]string, error) {
			if among == nil {
				ids, _, err := m.resolveWithin(e, tgt, typ, ":")
				return ids, err
			}
			env := m.targetEnv(":")
			env.Effort = e
			ids, _, err := target.Resolve(among, tgt, typ, env)
			return ids, err
		},
		ACL: m.cfg.MineGet, Restricted: restricted && m.cfg.MineGet != nil, Match: pattern.Match,
	}
}

// currentUser is the name of the user that this process runs as.
func currentUser() string {
	u, err := user.Current()
	if err != nil {
		return "root"
	}
	return u.Username
}
