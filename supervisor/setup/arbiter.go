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

// Values of Storage.Role, the role of a machine that joins.
const (
	RoleData    = "data"    // keeps a copy of the volume, if one is needed, and serves minions
	RoleArbiter = "arbiter" // keeps only the names of files and serves no minions: it decides between two copies
)

// arbiter reports whether the machine should become the cluster's arbiter.
func (a *Answers) arbiter() bool { return a.Storage.Role == RoleArbiter }

// checkRole checks the role in the answers. For an arbiter it checks that the other answers are
// valid for an arbiter.
func (c *checker) checkRole() {
	a := &c.a
	const field = "storage.role"
	switch r := a.Storage.Role; {
	case r == "":
		return
	case r != RoleData && r != RoleArbiter:
		c.addFault(field, "%.20q is not known: %s or %s", r, RoleData, RoleArbiter)
		return
	case a.Mode == Form && r == RoleArbiter:
		c.addFault(field, "the first node of a cluster cannot be its arbiter: it keeps the data. "+
			"Form the cluster on another machine, and let this one join")
	case a.Storage.Kind != "" && a.Storage.Kind != settings.VolumeStorage:
		c.addFault(field,
			"is for a cluster with a shared volume; with storage.kind %s there are no copies to decide between: "+
				"leave it out",
			a.Storage.Kind)
	}

	if !a.arbiter() {
		return
	}

	ownFront := slices.ContainsFunc(a.Front, func(s string) bool {
		ip, err := netip.ParseAddr(s)
		return err == nil && !ip.IsUnspecified()
	})
	if ownFront {
		c.addFault("front", "an arbiter serves no minions: leave it out")
	}

	if a.API {
		c.addFault("api", "an arbiter has no master to ask: leave it out")
	}

	if a.Virtual != "" {
		c.addFault("virtual_address", "an arbiter serves no minions and never has it: leave it out")
	}
}

// arbiterFault returns why the machine cannot be the arbiter of a cluster with this storage. It
// returns nil if the machine can, or if the answers do not request an arbiter.
func arbiterFault(a Answers, storage nodeapi.Storage) error {
	switch {
	case !a.arbiter():
	case storage.Kind != settings.VolumeStorage:
		return withHint(errors.New("this cluster has no shared volume, "+
			"so that there are no copies for an arbiter to decide between"),
			"join as a node that serves minions: leave storage.role (--arbiter) out")
	case !storage.Arbiters:
		return withHint(errors.New("the cluster runs a version that knows no arbiter, "+
			"and would send minions to this machine"),
			"upgrade all nodes of the cluster first")
	}
	return nil
}

const moreRoomHint = "1 GiB or more is better: an arbiter keeps the name of each file of the volume, up to 4 KiB each"

// checkArbiterRoom checks whether an arbiter has room for the names of all files of a volume.
func (p *Preflight) checkArbiterRoom(a Answers, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "room for the names of the volume's files", Result: Pass}
	if a.DataDisk != "" {
		c.Detail = "on " + a.DataDisk
		for _, d := range p.Facts.Disks {
			switch {
			case d.Path != a.DataDisk:
			case d.Size < leastDisk:
				c.fail(a.DataDisk+" has "+status.Size(d.Size), "give it at least 1 GiB")
			case d.Size < goodArbiter:
				c.Result = Warn
				c.Detail = a.DataDisk + " has " + status.Size(d.Size)
				c.Hint = moreRoomHint
			}
		}

		return c
	}

	dir := nearestExisting(s.Storage.Bricks)
	d, err := probe.StatDisk(dir)
	if err != nil {
		c.fail(err.Error(), "check that the file system is mounted")
		return c
	}

	c.Detail = fmt.Sprintf("%s free in %s", status.Size(d.Free), dir)
	switch {
	case d.Free < leastDisk:
		c.Result = Fail
		c.Hint = "make room: an arbiter keeps no data, but the name of each file, up to 4 KiB each"
	case d.Free < goodArbiter:
		c.Result = Warn
		c.Hint = moreRoomHint
	}

	return c
}
