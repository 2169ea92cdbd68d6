package backupplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/durable"
	"saltern/supervisor/status"
)

const (
	maxCatalogue = 1 << 20
	suffix       = ".age"
)

// catalogue says which files of a directory are backups of this cluster. It lies
// beside them, since several nodes may write there.
type catalogue struct {
	Format int     `json:"format"` // 1
	Files  []entry `json:"files"`
}

// entry is a backup. Pending: whether the file was put in place is not known.
type entry struct {
	status.BackupFile
	Pending bool `json:"pending,omitempty"`
}

// folder is a directory for backups, and how those of this cluster are called there.
type folder struct {
	dir    string
	prefix string // of all names; it holds the cluster's name, and of its key
}

// newFolder gives the folder of a cluster, by the hash of the key that signs its
// backups: clusters that are called alike may share a directory.
func newFolder(dir, cluster, signer string) folder {
	return folder{dir, fmt.Sprintf("saltern-%s-%.8s", cluster, signer)}
}

func (f folder) list() string { return filepath.Join(f.dir, f.prefix+".json") }

// partial begins the names of what a node has not finished.
func (f folder) partial(node string) string { return "." + f.prefix + "-" + node + ".part-" }

// ours reports whether a name is that of a backup of this cluster.
func (f folder) ours(name string) bool {
	return filepath.Base(name) == name && strings.HasPrefix(name, f.prefix+"-") && strings.HasSuffix(name, suffix)
}

// free gives a name for a backup that nobody has.
func (f folder) free(at time.Time) (string, error) {
	stem := f.prefix + "-" + at.UTC().Format("20060102T150405Z")
	for i := 1; i < 100; i++ { // the clock may have been here before
		name := stem + suffix
		if i > 1 {
			name = fmt.Sprintf("%s-%d%s", stem, i, suffix)
		}
		if _, err := os.Lstat(filepath.Join(f.dir, name)); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%s: too many backups of the same second", filepath.Join(f.dir, stem))
}

// read gives the catalogue; it is new when there is none. An empty file is one as
// well: with it an administrator says that a new directory is meant.
func (f folder) read() (c catalogue, fresh bool, err error) {
	switch fi, err := os.Stat(f.dir); {
	case errors.Is(err, fs.ErrNotExist):
		return c, false, fmt.Errorf("there is no directory %s: make it, or mount it", f.dir)
	case err != nil:
		return c, false, fmt.Errorf("look for the backups: %w", err)
	case !fi.IsDir():
		return c, false, fmt.Errorf("%s is not a directory", f.dir)
	}
	b, err := durable.Read(f.list(), maxCatalogue)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, false, fmt.Errorf("read the list of backups: %w", err)
	}
	if fresh = errors.Is(err, fs.ErrNotExist); fresh || len(b) == 0 {
		return catalogue{Format: 1}, fresh, nil
	}
	if err := json.Unmarshal(b, &c); err != nil || c.Format != 1 {
		return c, false, fmt.Errorf("%s is not a list of backups: move it away, and the backups that it is about stay for good", f.list())
	}
	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool { return !f.ours(e.Name) })
	return c, false, nil
}

func (f folder) write(c catalogue) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err == nil {
		err = durable.Replace(f.list(), append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the list of backups: %w", err)
	}
	return nil
}

// settle finds out about files that were to be put in place when somebody stopped,
// and forgets those that are gone.
func (f folder) settle(c *catalogue) {
	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool {
		_, err := os.Lstat(filepath.Join(f.dir, e.Name))
		return errors.Is(err, fs.ErrNotExist)
	})
	for i := range c.Files {
		c.Files[i].Pending = false
	}
}

// prune removes the oldest backups, by their order in the catalogue, until keep are
// left. One that cannot be removed stays in it.
func (f folder) prune(c *catalogue, keep int) (gone int, err error) {
	over := len(c.Files) - keep
	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool {
		if over <= 0 {
			return false
		}
		over--
		if rerr := os.Remove(filepath.Join(f.dir, e.Name)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = fmt.Errorf("remove an old backup: %w", rerr)
			return false
		}
		gone++
		return true
	})
	return gone, err
}

// sweep removes what this node has left unfinished; nobody writes to it any more.
func (f folder) sweep(node string) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return // writing will tell
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), f.partial(node)) && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(f.dir, e.Name())) // the next time, else
		}
	}
}

// shown are the backups for people, with a mark at those that are missing.
func (f folder) shown(c catalogue) []status.BackupFile {
	out := []status.BackupFile{}
	for _, e := range c.Files {
		_, err := os.Lstat(filepath.Join(f.dir, e.Name))
		if e.Missing = errors.Is(err, fs.ErrNotExist); !e.Pending || !e.Missing {
			out = append(out, e.BackupFile)
		}
	}
	return out
}
