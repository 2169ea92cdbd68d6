package observe

import (
	"errors"

	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// storageOf returns the part of the status about the storage.
func storageOf(kind, path string, v *storage.State) status.Storage {
	out := status.Storage{Kind: kind, Path: path}
	if v == nil {
		return out
	}
	out.Total, out.Free = v.Space.Total, v.Space.Free
	if out.Total > 0 {
		out.FreePercent = 100 * float64(out.Free) / float64(out.Total)
	}
	if v.Space.Inodes > 0 {
		out.InodesFree = 100 * float64(v.Space.InodesFree) / float64(v.Space.Inodes)
	}
	return out
}

// arbiterFault returns why an arbiter does not do its part for the shared volume, or nil if it
// does.
func arbiterFault(v *storage.State) error {
	switch {
	case v == nil:
		return errors.New("the shared volume is not looked at")
	case !v.Ready:
		return errors.New("it waits for " + v.Waiting)
	}
	return nil
}

// storageWord returns the state of the shared volume on this node in one word.
func storageWord(v *storage.State) string {
	switch {
	case v == nil:
		return "ok"
	case v.Mount.State == "hung":
		return "hangs"
	case !v.Ready:
		return "waiting"
	case v.Heal.Known && v.Heal.Pending > 0:
		return "healing"
	}
	return "ok"
}
