package conf

import (
	"saltern/master/acl"
	"saltern/master/target"
)

// expressions refuses options for permissions with expressions that cannot be
// read: they would match nothing.
func (a *assembly) expressions(m *Master) {
	if a.loader.Tool {
		return // tools of this host permit nothing
	}
	f := acl.Faults{Target: func(t string) error {
		_, err := target.Compile(t, "compound", target.Env{Nodegroups: m.Nodegroups})
		return err
	}}
	f.External("external_auth", m.ExternalAuth)
	f.Publisher("publisher_acl", m.PublisherACL)
	f.Names("publisher_acl_blacklist", m.PublisherACLBlacklist.List("users"))
	f.Names("publisher_acl_blacklist", m.PublisherACLBlacklist.List("modules"))
	f.Minions("peer", m.Peer)
	f.Minions("peer_run", m.PeerRun)
	f.Minions("mine_get", m.MineGet)
	for _, x := range f.List {
		a.bad(x.Option, x)
	}
}
