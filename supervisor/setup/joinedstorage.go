package setup

import (
	"cmp"
	"context"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
)

// checkJoinedStorage reports where the cluster keeps its files, and checks that the answers agree
// with it. A node that joins uses the cluster's storage as it is.
func (p *Preflight) checkJoinedStorage(ctx context.Context, a Answers, s *settings.Settings, storage nodeapi.Storage) []Check {
	c := Check{Name: "cluster", What: "storage of the cluster", Result: Pass}
	if err := arbiterFault(a, storage); err != nil {
		c.fail(err.Error(), hintsOf(err)[0])
		return []Check{c}
	}

	switch storage.Kind {
	case settings.VolumeStorage:
		c.Detail = "copies on disks of its nodes; that of this node goes to " + cmp.Or(a.DataDisk, s.Storage.Bricks)
		if a.Storage.Kind == settings.DirectoryStorage {
			c.Result = Warn
			c.Hint = "the directory " + a.Storage.Path +
				" is not used; choose a disk under Storage if this machine has one for the copy"
		}

		if s.Arbiter {
			c.Detail = "copies on disks of its nodes; this one keeps the names of the files only, in " +
				cmp.Or(a.DataDisk, s.Storage.Bricks)
		}

		switch {
		case !p.Facts.Volume:
			return []Check{c, {
				Name:   "disk",
				What:   "glusterd on this machine",
				Result: Fail,
				Detail: "is not installed, and the cluster keeps its files on a shared volume",
				Hint:   "install it: apt-get install glusterfs-server",
			}}
		case s.Arbiter && a.DataDisk == "":
			return []Check{c, p.checkBricks(a, s), p.checkArbiterRoom(a, s)}
		case s.Arbiter:
			return []Check{c, p.checkArbiterRoom(a, s)}
		case a.DataDisk == "":
			return []Check{c, p.checkBricks(a, s)}
		}
	case settings.DirectoryStorage:
		path := cmp.Or(a.Storage.Path, storage.Path)
		c.Detail = "the directory " + path + ", which all nodes share"
		if a.DataDisk != "" {
			c.Result = Warn
			c.Hint = a.DataDisk + " would be formatted and not used: choose the system disk under Storage"
		}

		if a.Storage.Kind != settings.DirectoryStorage { // the kind directory has a check of its own
			there := *s
			there.Storage.Kind, there.Storage.Path = storage.Kind, path
			d := p.checkDirectory(ctx, &there)
			d.passing = true // a person may mount the storage later
			return []Check{c, d}
		}
	case settings.LocalStorage:
		c.Result, c.Detail = Fail, "its first node keeps everything in a local directory"
		c.Hint = "move the cluster to a shared volume or directory first: applianced storage --help"
	}

	return []Check{c}
}
