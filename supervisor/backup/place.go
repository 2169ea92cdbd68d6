package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/control"
	"saltern/internal/versioned"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// placer moves staged files to their places. Only this account can change the folders of staged
// files and of replaced files. In the destination folders the master's account may create links,
// see [folder].
type placer struct {
	from   string
	before string
	// stamp is part of the names of restored files of the history.
	stamp string
}

// Place moves the files staged below stage to the paths where the node keeps them, with the right
// owners. The staged files are named as in an archive ("pki/minions/web1", "srv/salt/top.sls").
// Place moves the files that the staged files replace into the folder replaced. stage and replaced
// must be folders in the storage directory that only this account can change. After an error some
// files may be in place; the same files can be staged and placed again.
func Place(ctx context.Context, s *settings.Settings, stage, replaced string) error {
	if err := syncFS(stage); err != nil {
		return err
	}
	p := &placer{from: stage, before: replaced}
	if err := p.placeAll(ctx, s, treesOf(s, false)); err != nil {
		return err
	}
	return syncFS(s.StorageDir())
}

func (p *placer) placeAll(ctx context.Context, s *settings.Settings, trees []tree) error {
	master, err := layout.FindAccount(s.Users.Master)
	if err != nil {
		return err
	}

	lb, err := layout.FindAccount(s.Users.LB)
	if err != nil {
		return err
	}

	if err := layout.Make(s, master, lb); err != nil {
		return err
	}

	for _, t := range trees {
		owner := layout.Account{}
		if t.master {
			owner = master
		}
		if err := p.placeTree(ctx, t, owner); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}

	return nil
}

// openTop opens the folder of a tree. It creates missing folders on the path.
func (t tree) openTop(owner layout.Account) (folder, error) {
	f, err := beneath(t.base, ".")
	if err != nil {
		return f, err
	}

	names := strings.Split(t.rel, "/")
	for i, name := range names {
		mode := fs.FileMode(0o755)
		uid := -1
		gid := -1
		if owner.Credential != nil && i == len(names)-1 {
			mode = 0o700
			uid = owner.UID
			gid = owner.GID
		}

		err := f.makeDir(name, mode, uid, gid)
		next := folder{}
		if err == nil {
			next, err = f.openChild(name)
		}

		f.Close()
		if err != nil {
			return folder{}, err
		}

		f = next
	}

	return f, nil
}

func (p *placer) placeTree(ctx context.Context, t tree, owner layout.Account) error {
	from := filepath.Join(p.from, filepath.FromSlash(t.name))
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	top, err := t.openTop(owner)
	if err != nil {
		return err
	}
	defer top.Close()

	if t.name == historyTree { // each restore has names of its own there
		if err := top.removeRestoring(); err != nil {
			return err
		}
	}
	return p.folder(ctx, t, top, "", owner)
}

// folder moves the staged files below rel of a tree into the folder target.
func (p *placer) folder(ctx context.Context, t tree, target folder, rel string, owner layout.Account) error {
	staged := filepath.Join(p.from, filepath.FromSlash(t.name), rel)
	entries, err := os.ReadDir(staged)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		name, below := e.Name(), filepath.Join(rel, e.Name())
		if e.IsDir() {
			err = p.descend(ctx, t, target, below, e, owner)
		} else {
			err = p.placeFile(t, target, below, filepath.Join(staged, name), owner)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (p *placer) descend(
	ctx context.Context,
	t tree,
	to folder,
	rel string,
	e fs.DirEntry,
	owner layout.Account,
) error {
	fi, err := e.Info()
	if err != nil {
		return err
	}

	uid, gid := -1, -1
	if owner.Credential != nil {
		uid, gid = owner.UID, owner.GID
	}

	if err := to.makeDir(e.Name(), fi.Mode().Perm(), uid, gid); err != nil {
		return err
	}

	next, err := to.openChild(e.Name())
	if err != nil {
		return err
	}
	defer next.Close()

	return p.folder(ctx, t, next, rel, owner)
}

// placeFile moves one staged file into place. A file of the history does not replace one of this node: the
// master, which may have it open, merges it at its next start. Neither does a segment of jobs and returns.
func (p *placer) placeFile(t tree, to folder, rel, staged string, owner layout.Account) error {
	if owner.Credential != nil {
		if err := os.Lchown(staged, owner.UID, owner.GID); err != nil {
			return err
		}
	}

	if t.name == "pki" && !strings.Contains(rel, "/") {
		if err := p.setSuccessorsAside(t, to, rel); err != nil {
			return err
		}
	}

	name := filepath.Base(rel)
	switch t.name {
	case historyTree:
		name = control.RestoredHistory + p.stamp + "-" + name
	case journalTree:
		var err error
		if name, err = freeSegment(to, name, staged); err != nil {
			return err
		}
	}
	if err := p.setAside(filepath.Join(t.name, rel), to, name); err != nil {
		return err
	}

	if t.name == "pki" {
		if err := p.otherStates(t, filepath.ToSlash(rel)); err != nil {
			return err
		}
	}

	return to.moveIn(staged, name)
}

// otherStates sets aside keys of the restored minions that are in another state. For example, a
// minion's key is pending if the minion has already connected to the newly set up node. A denied
// key stays where it is.
func (p *placer) otherStates(t tree, rel string) error {
	states := []string{"minions", "minions_pre", "minions_rejected"}
	state, id, ok := strings.Cut(rel, "/")
	if !ok || strings.Contains(id, "/") || !slices.Contains(states, state) {
		return nil
	}

	for _, other := range states {
		if other == state {
			continue
		}

		dir, err := beneath(t.base, t.rel+"/"+other)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}

		err = p.setAside(filepath.Join("pki", other, id), dir, id)
		dir.Close()
		if err != nil {
			return err
		}
	}

	return nil
}

// setSuccessorsAside sets aside the successors that package versioned keeps beside the file at name.
// Otherwise masters would go on from the restored version to the version that it replaces. A backup
// has no successors.
func (p *placer) setSuccessorsAside(t tree, dir folder, name string) error {
	entries, err := dir.entries()
	if err != nil {
		return fmt.Errorf("look for newer versions of %s: %w", name, err)
	}

	for _, entry := range entries {
		if !versioned.IsSuccessor(name, entry.Name()) {
			continue
		}
		err := p.setAside(filepath.Join(t.name, entry.Name()), dir, entry.Name())
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a master has removed it
			return err
		}
	}

	return nil
}

// setAside moves the file at name below p.before.
func (p *placer) setAside(rel string, dir folder, name string) error {
	if _, err := dir.lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	old := filepath.Join(p.before, rel)
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		return err
	}
	return dir.moveOut(name, old)
}

// freeSegment returns the name in dir for a staged segment of jobs and returns: its own, or one with another number
// if a different segment in dir has that number.
func freeSegment(dir folder, name, staged string) (string, error) {
	number := func(name string) (n uint64, ok bool) {
		digits := strings.TrimSuffix(strings.TrimSuffix(name, segmentKept), segmentLog)
		n, err := strconv.ParseUint(digits, 10, 63)
		return n, err == nil && digits != name
	}
	own, ok := number(name)
	// A segment that is being written has its whole size from the start: only a finished one is known by size and
	// mark.
	same := filepath.Ext(name) == segmentKept && isSameSegment(dir, name, staged)
	if !ok || same {
		return name, nil
	}

	entries, err := dir.entries()
	if err != nil {
		return "", fmt.Errorf("look for a free number for %s: %w", name, err)
	}

	taken := false
	var next uint64
	for _, e := range entries {
		if n, ok := number(e.Name()); ok {
			taken = taken || n == own
			next = max(next, n+1)
		}
	}
	if !taken {
		return name, nil
	}
	return fmt.Sprintf("%016d%s", next, filepath.Ext(name)), nil
}

// isSameSegment reports whether dir has a staged segment under its name: a segment begins with a random mark.
func isSameSegment(dir folder, name, staged string) bool {
	const headLength = 24 // it has the mark
	head := func(f *os.File, err error) ([]byte, int64) {
		if err != nil {
			return nil, 0
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return nil, 0
		}
		b, _ := io.ReadAll(io.LimitReader(f, headLength))
		return b, fi.Size()
	}

	there, sizeThere := head(dir.openFile(name))
	here, size := head(os.Open(staged))
	return len(here) > 0 && size == sizeThere && bytes.Equal(here, there)
}
