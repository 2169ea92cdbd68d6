package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"saltern/supervisor/settings"
)

// Target says where and how a backup is restored.
type Target struct {
	Settings *settings.Settings
	// Force permits a restore onto a node with accepted minions.
	Force bool
	// HistoryOnly restores only the history of runs, also onto a node with accepted minions or a key that is
	// not that of the backup.
	HistoryOnly bool
	// Stamp is part of the name of the directory for the replaced files. No earlier restore may
	// have used the same stamp.
	Stamp  string
	Limits Limits
	// Trust lists the keys that are trusted in addition to this node's own.
	Trust Trust
}

// errNotFresh means that the node has accepted minions already.
var errNotFresh = errors.New("this node has accepted minions already")

// errNoHistory means that a backup was made without the job cache and the history.
var errNoHistory = errors.New("the backup has no history of runs: it was made without --jobs")

// stagePrefix begins the name of the folder into which an archive is unpacked.
const stagePrefix = ".restore-"

// Config is the appliance.yaml inside a backup. It may be nil: the backup has no appliance.yaml.
type Config []byte

// Restore locks the storage against imports and other restores, and reads a whole archive into a
// directory beside the node's trees. If the archive is complete and valid, Restore moves its files
// into place, one by one. It keeps the replaced files in <storage>/.before-restore-<stamp>. It does
// not change the node's appliance.yaml, and returns the archive's appliance.yaml.
//
// salt-master must be restarted afterwards. If Restore fails before the first file is in place,
// nothing has changed. A later error (for example a full disk) names the file, and the restore can
// be repeated with Force.
func Restore(ctx context.Context, r io.Reader, t Target, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	if err := checkName(t.Stamp); err != nil || strings.Contains(t.Stamp, "/") {
		return sum, nil, fmt.Errorf("restore: the stamp %q is not a file name", t.Stamp)
	}

	unlock, err := LockStorage(t.Settings, "restore")
	if err != nil {
		return sum, nil, err
	}
	defer unlock()

	if !t.Force && !t.HistoryOnly {
		if e, err := os.ReadDir(filepath.Join(t.Settings.SharedPKIDir(), "minions")); err == nil && len(e) > 0 {
			return sum, nil, fmt.Errorf("restore: %w (%d)", errNotFresh, len(e))
		}
	}

	storage := t.Settings.StorageDir()
	RemoveStages(storage, stagePrefix)
	stage := filepath.Join(storage, stagePrefix+t.Stamp)
	if err := os.Mkdir(stage, 0o700); err != nil {
		return sum, nil, fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(stage)

	x := &extractor{ctx: ctx, sum: &sum, limits: t.Limits.filled(), seen: map[string]bool{}}
	if err := x.stageArchive(r, stage, identities); err != nil {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", err)
	}

	trust := t.Trust
	if own, err := Signer(t.Settings); err == nil {
		trust.Signers = append(slices.Clone(trust.Signers), own)
	}

	if err := trust.checkSigner(sum.Signer, identities); err != nil {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", err)
	}

	if err := syncFS(stage); err != nil {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", err)
	}
	if t.HistoryOnly && !sum.Manifest.Jobs {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", errNoHistory)
	}
	if sum.Manifest.Shared != t.Settings.Peering.Enabled && !t.HistoryOnly {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", kindFault(sum.Manifest.Shared))
	}

	p := &placer{from: stage, before: filepath.Join(storage, ".before-restore-"+t.Stamp), stamp: t.Stamp}
	trees := treesOf(t.Settings, sum.Manifest.Jobs)
	if t.HistoryOnly {
		trees = slices.DeleteFunc(trees, func(t tree) bool { return t.name != historyTree })
	}
	if err := p.placeAll(ctx, t.Settings, trees); err != nil {
		return sum, x.config, fmt.Errorf("restore: %w; what was there before is in %s", err, p.before)
	}

	if err := syncFS(storage); err != nil {
		return sum, x.config, fmt.Errorf("restore: %w", err)
	}

	return sum, x.config, nil
}

// syncFS writes the whole file system of dir to the disk: syncing many files one by one would take
// minutes.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("write to the disk of %s: %w", dir, err)
	}
	return nil
}

// kindFault returns the error for restoring a cluster's backup on a node without a cluster, or the
// reverse: the minions would not recognise the master's key. shared reports whether the backup is of
// a cluster.
func kindFault(shared bool) error {
	if shared {
		return errors.New("the backup is of a node of a cluster, this node is alone: set it up with mode form first")
	}
	return errors.New("the backup is of a node that was alone, this one is of a cluster: " +
		"restore onto a node without a cluster")
}

// Inspect reads a whole archive without restoring anything. If it succeeds, one of the identities
// opens the archive, and the archive is complete.
func Inspect(ctx context.Context, r io.Reader, l Limits, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	x := &extractor{ctx: ctx, sum: &sum, limits: l.filled(), seen: map[string]bool{}}
	if err := x.stageArchive(r, "", identities); err != nil {
		return sum, nil, fmt.Errorf("backup: %w", err)
	}
	return sum, x.config, nil
}
