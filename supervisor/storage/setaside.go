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
	// asideMark is between the name of a copy that was set aside and the time of that.
	asideMark = ".before-"
	asideTime = "20060102T150405"
	// maxAside is how many copies stay that were set aside; an older one is removed for
	// the next.
	maxAside = 2
)

// Copies are the directories under bricks with something of a volume in them, also those
// that no table of nodes names: glusterd serves whatever its own files name.
func Copies(bricks, volume string) []string {
	dirs, _ := filepath.Glob(filepath.Join(bricks, volume+"-*"))
	return slices.DeleteFunc(dirs, func(dir string) bool {
		return isAside(dir) || !exists(filepath.Join(dir, ".glusterfs"))
	})
}

// KeptCopies are those that were set aside and not deleted yet, the oldest first.
func KeptCopies(bricks, volume string) []string {
	dirs, _ := filepath.Glob(filepath.Join(bricks, volume+"-*"+asideMark+"*"))
	slices.SortFunc(dirs, func(a, b string) int {
		return slices.Compare([]byte(timeOfAside(a)), []byte(timeOfAside(b)))
	})
	return dirs
}

func isAside(dir string) bool { return timeOfAside(dir) != "" }

// timeOfAside returns when a copy was set aside; "": it was not.
func timeOfAside(dir string) string {
	name := filepath.Base(dir)
	at := len(name) - len(asideTime)
	if at < len(asideMark) || name[at-len(asideMark):at] != asideMark {
		return ""
	}
	return name[at:]
}

// Serves reports whether a copy under bricks is being served by this machine.
func Serves(bricks, volume string) bool {
	return slices.ContainsFunc(Copies(bricks, volume), func(dir string) bool { return len(bricksServed(dir)) > 0 })
}

// bricksServed are the processes that serve a brick; those that heal are not among them.
func bricksServed(brick string) (pids []int) {
	for _, pid := range servants(brick) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "glusterfsd\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SetAside renames every copy of this node, so that nothing serves them or heals from
// them any more. It ends glusterd before, and whatever serves the copies. It may be
// repeated. A gate must keep glusterd from starting meanwhile (Config.MayServe).
func (m *Manager) SetAside(ctx context.Context, now time.Time) error {
	copies := Copies(m.cfg.Bricks, m.cfg.Volume)
	if len(copies) == 0 {
		return nil
	}

	if err := m.daemon.stop(ctx); err != nil {
		return fmt.Errorf("set the copy of this node aside: %w", err)
	}

	for _, dir := range copies {
		if err := endServants(ctx, dir); err != nil {
			return fmt.Errorf("set %s aside: %w", dir, err)
		}
	}

	m.dropKept(len(copies))
	for _, dir := range copies {
		if err := os.Rename(dir, dir+asideMark+
			now.UTC().Format(asideTime)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s aside: %w", dir, err)
		}
	}

	return durable.SyncDir(m.cfg.Bricks)
}

// dropKept removes the oldest copies that were set aside, so that there is room for more.
func (m *Manager) dropKept(more int) {
	kept := KeptCopies(m.cfg.Bricks, m.cfg.Volume)
	for _, dir := range kept[:min(len(kept), max(0, len(kept)+more-maxAside))] {
		m.cfg.Log.Warn("an older copy that was set aside is removed", "path", dir)
		if err := os.RemoveAll(dir); err != nil {
			m.cfg.Log.Warn("it cannot be removed", "path", dir, "error", err)
		}
	}
}

// endServants ends the processes that serve a brick or heal from it.
func endServants(ctx context.Context, brick string) error {
	if len(bricksServed(brick)) == 0 {
		return nil // who heals does so by the processes that serve
	}

	for range 100 {
		pids := servants(brick)
		if len(pids) == 0 {
			return nil
		}

		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}

		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}

	return errors.New("a process of GlusterFS does not end")
}
