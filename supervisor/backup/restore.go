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

// Target describes where a backup is restored to.
type Target struct {
	Settings *settings.Settings
	// Force restores over accepted minions.
	Force bool
	// Stamp names the directory for the replaced files. It must be new.
	Stamp  string
	Limits Limits
	// Trust lists the trusted keys, in addition to this node's own.
	Trust Trust
}

// errNotFresh means that the node has accepted minions already.
var errNotFresh = errors.New("this node has accepted minions already")

// Config is the appliance.yaml inside a backup. It may be nil: there is none.
type Config []byte

// Restore reads a whole archive into a directory beside the node's trees and,
// when it was whole, puts file by file into place. What was there before is
// kept in <storage>/.before-restore-<stamp>. The node's own appliance.yaml is
// left alone; the archive's is given back.
//
// salt-master must be restarted afterwards. An error before the first file was
// put into place leaves everything as it was; a later one (a full disk) names
// the file, and the restore can be repeated with Force.
func Restore(ctx context.Context, r io.Reader, t Target, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	if err := checkName(t.Stamp); err != nil || strings.Contains(t.Stamp, "/") {
		return sum, nil, fmt.Errorf("restore: the stamp %q is not a file name", t.Stamp)
	}

	if !t.Force {
		if e, err := os.ReadDir(filepath.Join(t.Settings.SharedPKIDir(), "minions")); err == nil && len(e) > 0 {
			return sum, nil, fmt.Errorf("restore: %w (%d)", errNotFresh, len(e))
		}
	}

	storage := t.Settings.StorageDir()
	if err := os.MkdirAll(storage, 0o755); err != nil {
		return sum, nil, fmt.Errorf("restore: %w", err)
	}

	stage := filepath.Join(storage, ".restore-"+t.Stamp)
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
	if sum.Manifest.Shared != t.Settings.Peering.Enabled {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", kindFault(sum.Manifest.Shared))
	}

	p := &placer{from: stage, before: filepath.Join(storage, ".before-restore-"+t.Stamp)}
	if err := p.placeAll(ctx, t.Settings, sum.Manifest.Jobs); err != nil {
		return sum, x.config, fmt.Errorf("restore: %w; what was there before is in %s", err, p.before)
	}

	if err := syncFS(storage); err != nil {
		return sum, x.config, fmt.Errorf("restore: %w", err)
	}

	return sum, x.config, nil
}

// syncFS writes everything to the disk that dir lies on: one by one would take
// minutes for many files.
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

// kindFault returns the fault that minions would not recognise the key of the master.
func kindFault(shared bool) error {
	if shared {
		return errors.New("the backup is of a node of a cluster, this node is alone: set it up with mode form first")
	}
	return errors.New("the backup is of a node that was alone, this one is of a cluster: " +
		"restore onto a node without a cluster")
}

// Inspect reads a whole archive and restores nothing: it proves that the key
// fits and that the archive is whole.
func Inspect(ctx context.Context, r io.Reader, l Limits, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	x := &extractor{ctx: ctx, sum: &sum, limits: l.filled(), seen: map[string]bool{}}
	if err := x.stageArchive(r, "", identities); err != nil {
		return sum, nil, fmt.Errorf("backup: %w", err)
	}
	return sum, x.config, nil
}
