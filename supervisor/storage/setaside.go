package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"saltern/internal/durable"
	"saltern/internal/pause"
)

const (
	// asideMark separates the name of a copy that was set aside from the time when that happened.
	asideMark = ".before-"
	asideTime = "20060102T150405"
	// maxAside is the maximum number of set-aside copies that are kept. A further copy replaces the
	// oldest.
	maxAside = 2
)

// Copies returns the directories under bricks that hold a copy of the volume, even if the table of
// nodes does not name them. glusterd may serve them, because it serves every brick in its own
// configuration.
func Copies(bricks, volume string) []string {
	dirs, _ := filepath.Glob(filepath.Join(bricks, volume+"-*"))
	return slices.DeleteFunc(dirs, func(dir string) bool {
		return isAside(dir) || !exists(filepath.Join(dir, ".glusterfs"))
	})
}

// KeptCopies returns the copies that were set aside and not deleted yet, the oldest first.
func KeptCopies(bricks, volume string) []string {
	dirs, _ := filepath.Glob(filepath.Join(bricks, volume+"-*"+asideMark+"*"))
	slices.SortFunc(dirs, func(a, b string) int {
		return slices.Compare([]byte(timeOfAside(a)), []byte(timeOfAside(b)))
	})
	return dirs
}

func isAside(dir string) bool { return timeOfAside(dir) != "" }

// timeOfAside returns when a copy was set aside, in the format asideTime, or "".
func timeOfAside(dir string) string {
	name := filepath.Base(dir)
	at := len(name) - len(asideTime)
	if at < len(asideMark) || name[at-len(asideMark):at] != asideMark {
		return ""
	}
	return name[at:]
}

// Serves reports whether a process of this machine serves a copy under bricks.
func Serves(bricks, volume string) bool {
	return slices.ContainsFunc(Copies(bricks, volume), func(dir string) bool { return len(servingProcesses(dir)) > 0 })
}

// servingProcesses returns the processes that serve a brick, without those that heal it.
func servingProcesses(brick string) (pids []int) {
	for _, pid := range brickProcesses(brick) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "glusterfsd\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SetAside renames every copy of this node, so that GlusterFS no longer serves or heals from it.
// Before that it stops glusterd and the processes that serve the copies. During the call
// Config.MayServe must keep glusterd from starting. SetAside may be repeated.
func (m *Manager) SetAside(ctx context.Context, now time.Time) error {
	copies := Copies(m.cfg.Bricks, m.cfg.Volume)
	if len(copies) == 0 {
		return nil
	}

	if err := m.daemon.stop(ctx); err != nil {
		return fmt.Errorf("set the copy of this node aside: %w", err)
	}

	for _, dir := range copies {
		if err := endBrickProcesses(ctx, dir); err != nil {
			return fmt.Errorf("set %s aside: %w", dir, err)
		}
	}

	m.removeOldest(len(copies))
	for _, dir := range copies {
		err := os.Rename(dir, dir+asideMark+now.UTC().Format(asideTime))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s aside: %w", dir, err)
		}
	}

	return durable.SyncDir(m.cfg.Bricks)
}

// removeOldest removes the oldest copies that were set aside, so that at most maxAside remain after
// newCopies more were set aside.
func (m *Manager) removeOldest(newCopies int) {
	kept := KeptCopies(m.cfg.Bricks, m.cfg.Volume)
	for _, dir := range kept[:min(len(kept), max(0, len(kept)+newCopies-maxAside))] {
		m.cfg.Log.Warn("an older copy that was set aside is removed", "path", dir)
		if err := os.RemoveAll(dir); err != nil {
			m.cfg.Log.Warn("it cannot be removed", "path", dir, "error", err)
		}
	}
}

// endBrickProcesses ends the processes that serve a brick or heal from it.
func endBrickProcesses(ctx context.Context, brick string) error {
	if len(servingProcesses(brick)) == 0 {
		return nil // healing needs the serving processes
	}

	for range 100 {
		pids := brickProcesses(brick)
		if len(pids) == 0 {
			return nil
		}

		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
		}

		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}

	return errors.New("a process of GlusterFS does not end")
}
