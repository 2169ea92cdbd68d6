package backupplan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/status"
)

const (
	maxCatalogue = 1 << 20
	suffix       = ".age"
)

// catalogue lists the backups of this cluster in a directory or bucket. It is stored as a file
// there, because several nodes may write backups to the same place.
type catalogue struct {
	Format int     `json:"format"` // version of the format: 1
	Files  []entry `json:"files"`
}

// entry is a backup in the catalogue. Pending means that nobody knows whether the backup's file was
// published.
type entry struct {
	status.BackupFile
	Pending bool `json:"pending,omitempty"`
}

// folder is a place for backups, with the names that this cluster's backups have there.
type folder struct {
	place
	prefix string // prefix of all file names: the cluster's name and a part of the hash of its key
}

// newFolder returns the folder of a cluster. signer is the hash of the key that signs the cluster's
// backups. File names contain a part of the hash, because clusters of the same name may share a
// directory or bucket.
func newFolder(in place, cluster, signer string) folder {
	return folder{in, fmt.Sprintf("saltern-%s-%.8s", cluster, signer)}
}

func (f folder) cataloguePath() string { return f.prefix + ".json" }

// partial returns the beginning of the names of files that a node has not finished.
func (f folder) partial(node string) string { return "." + f.prefix + "-" + node + ".part-" }

// isBackup reports whether a name belongs to a backup of this cluster.
func (f folder) isBackup(name string) bool {
	return filepath.Base(name) == name && strings.HasPrefix(name, f.prefix+"-") && strings.HasSuffix(name, suffix)
}

// freeName returns an unused name for a backup.
func (f folder) freeName(ctx context.Context, at time.Time) (string, error) {
	stem := f.prefix + "-" + at.UTC().Format("20060102T150405Z")
	for i := 1; i < 100; i++ { // the clock may have been set back, and the name may be in use
		name := stem + suffix
		if i > 1 {
			name = fmt.Sprintf("%s-%d%s", stem, i, suffix)
		}
		if taken, err := f.hasFile(ctx, name); err != nil {
			return "", err
		} else if !taken {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: too many backups of the same second", f.pathOf(stem))
}

// catalogue reads the list. fresh reports whether there is no list yet. An empty file counts as a
// list, because an administrator creates an empty file to confirm a new directory or bucket.
func (f folder) catalogue(ctx context.Context) (c catalogue, fresh bool, err error) {
	if err := f.checkPresent(ctx); err != nil {
		return c, false, err
	}

	b, err := f.readFile(ctx, f.cataloguePath(), maxCatalogue)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, false, fmt.Errorf("read the list of backups: %w", err)
	}

	if fresh = errors.Is(err, fs.ErrNotExist); fresh || len(b) == 0 {
		return catalogue{Format: 1}, fresh, nil
	}

	if err := json.Unmarshal(b, &c); err != nil || c.Format != 1 {
		return c, false, fmt.Errorf("%s is not a list of backups: "+
			"move it away, and the backups that it is about stay for good",
			f.pathOf(f.cataloguePath()))
	}

	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool { return !f.isBackup(e.Name) })
	return c, false, nil
}

func (f folder) writeCatalogue(ctx context.Context, c catalogue) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err == nil {
		err = f.replace(ctx, f.cataloguePath(), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the list of backups: %w", err)
	}
	return nil
}

// isMissing reports whether it is certain that a file does not exist.
func (f folder) isMissing(ctx context.Context, name string) bool {
	there, err := f.hasFile(ctx, name)
	return err == nil && !there
}

// settle looks for the pending files, whose publishing was interrupted, and removes missing files
// from the catalogue.
func (f folder) settle(ctx context.Context, c *catalogue) {
	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool { return f.isMissing(ctx, e.Name) })
	for i := range c.Files {
		c.Files[i].Pending = false
	}
}

// removeOldest removes the oldest backups, by their order in the catalogue, until only keep remain.
// It returns how many it removed. A backup that cannot be removed stays in the catalogue.
func (f folder) removeOldest(ctx context.Context, c *catalogue, keep int) (gone int, err error) {
	over := len(c.Files) - keep
	c.Files = slices.DeleteFunc(c.Files, func(e entry) bool {
		if over <= 0 {
			return false
		}

		over--
		if rerr := f.remove(ctx, e.Name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = fmt.Errorf("remove an old backup: %w", rerr)
			return false
		}

		gone++
		return true
	})

	return gone, err
}

// listFiles returns the backups as the status shows them, with a mark on missing files.
func (f folder) listFiles(ctx context.Context, c catalogue) []status.BackupFile {
	out := []status.BackupFile{}
	for _, e := range c.Files {
		if e.Missing = f.isMissing(ctx, e.Name); !e.Pending || !e.Missing {
			out = append(out, e.BackupFile)
		}
	}
	return out
}
