package conf

import (
	"log/slog"
	"os"

	"saltern/master/internal/acl"
	"saltern/master/internal/ldap"
	"saltern/master/target"
)

// reactorFile adds a note if the file of the reactor's rules cannot be read yet.
func (a *assembly) reactorFile(m *Master) {
	if m.Reactor.File == "" || a.loader.Tool {
		return
	}
	if _, err := os.ReadFile(m.Reactor.File); err != nil {
		a.remark(slog.LevelWarn, "reactor", "no event reacts before the file can be read: %v", err)
	}
}

// expressions adds faults for permissions that contain expressions that cannot be parsed, since
// such a permission would match nothing.
func (a *assembly) expressions(m *Master) {
	if a.loader.Tool {
		return // a command line tool grants no permissions, so it needs no check
	}

	f := acl.Faults{Target: func(t string) error {
		if ldap.IsTarget(t) {
			return nil // targets of this form are checked in salt/auth/ldap.py process_acl
		}
		_, err := target.Compile(t, "compound", target.Env{Nodegroups: m.Nodegroups})
		if name, missing := target.MissingGroup(err); missing {
			a.remark(slog.LevelWarn, "nodegroups",
				"a permission names the group %s, which is not in this option: it permits nothing until a saved target has that name", name)
			return nil
		}
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
		a.addFault(x.Option, x)
	}
}
