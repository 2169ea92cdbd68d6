package setup

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Roles of a machine that joins.
const (
	RoleData    = "data"    // keeps a copy, if one is needed, and serves minions
	RoleArbiter = "arbiter" // keeps names only and serves nobody: it decides between two copies
)

// arbiter reports whether the machine is to be the cluster's arbiter.
func (a *Answers) arbiter() bool { return a.Storage.Role == RoleArbiter }

// role checks what a machine is to be that joins, and what does not go together
// with an arbiter.
func (c *checker) role() {
	a := &c.a
	const field = "storage.role"
	switch r := a.Storage.Role; {
	case r == "":
		return
	case r != RoleData && r != RoleArbiter:
		c.bad(field, "%.20q is not known: %s or %s", r, RoleData, RoleArbiter)
		return
	case a.Mode == Form && r == RoleArbiter:
		c.bad(field,
			"the first node of a cluster cannot be its arbiter: it keeps the data. Form the cluster on another machine, and let this one join")
	case a.Storage.Kind != "" && a.Storage.Kind != settings.VolumeStorage:
		c.bad(field,
			"is for a cluster with a shared volume; with storage.kind %s there are no copies to decide between: leave it out",
			a.Storage.Kind)
	}

	if !a.arbiter() {
		return
	}

	if slices.ContainsFunc(a.Front,
		func(s string) bool { ip, err := netip.ParseAddr(s); return err == nil && !ip.IsUnspecified() }) {
		c.bad("front", "an arbiter serves no minions: leave it out")
	}

	if a.API {
		c.bad("api", "an arbiter has no master to ask: leave it out")
	}

	if a.Virtual != "" {
		c.bad("virtual_address", "an arbiter serves no minions and never has it: leave it out")
	}
}

// arbiterFault is why a machine cannot be the arbiter of a cluster that keeps its
// files so; nil: it can, or shall not.
func arbiterFault(a Answers, of nodeapi.Storage) error {
	switch {
	case !a.arbiter():
	case of.Kind != settings.VolumeStorage:
		return hint(errors.New("this cluster has no shared volume, so that there are no copies for an arbiter to decide between"),
			"join as a node that serves minions: leave storage.role (--arbiter) out")
	case !of.Arbiters:
		return hint(errors.New("the cluster runs a version that knows no arbiter, and would send minions to this machine"),
			"upgrade all nodes of the cluster first")
	}
	return nil
}

// arbiterRoom looks whether the names of all files of a volume have room where an
// arbiter keeps them.
func (p *Preflight) arbiterRoom(a Answers, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "room for the names of the volume's files", Result: Pass}
	if a.DataDisk != "" {
		c.Detail = "on " + a.DataDisk
		for _, d := range p.Facts.Disks {
			switch {
			case d.Path != a.DataDisk:
			case d.Size < leastDisk:
				c.Result, c.Detail, c.Hint = Fail, a.DataDisk+" has "+status.Size(d.Size), "give it at least 1 GiB"
			case d.Size < goodArbiter:
				c.Result, c.Detail, c.Hint = Warn, a.DataDisk+" has "+
					status.Size(d.Size), "1 GiB or more is better: an arbiter keeps the name of each file of the volume, up to 4 KiB each"
			}
		}

		return c
	}

	dir := existing(s.Storage.Bricks)
	d, err := probe.StatDisk(dir)
	if err != nil {
		c.Result, c.Detail, c.Hint = Fail, err.Error(), "check that the file system is mounted"
		return c
	}

	c.Detail = fmt.Sprintf("%s free in %s", status.Size(d.Free), dir)
	switch {
	case d.Free < leastDisk:
		c.Result = Fail
		c.Hint = "make room: an arbiter keeps no data, but the name of each file, up to 4 KiB each"
	case d.Free < goodArbiter:
		c.Result = Warn
		c.Hint = "1 GiB or more is better: an arbiter keeps the name of each file of the volume, up to 4 KiB each"
	}

	return c
}
