package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/durable"
	"saltern/internal/room"
	"saltern/supervisor/backup"
	"saltern/supervisor/layout"
	"saltern/supervisor/secrets"
	"saltern/supervisor/settings"
)

const stagePrefix = ".import-"

// Lock excludes other imports and restores, on this node and on all others, until unlock is called.
// It removes the files that a killed import has left on the storage and on this node's disk.
func Lock(s *settings.Settings) (unlock func(), err error) {
	if err := storageThere(s); err != nil {
		return nil, err
	}
	unlock, err = backup.LockStorage(s, "import")
	if err != nil {
		return nil, err
	}
	backup.RemoveStages(s.StorageDir(), stagePrefix)
	backup.RemoveStages(treeParent(s), stagePrefix)
	return unlock, nil
}

// treeParent returns the folder in which to unpack archives: on the node's own disk, so that a
// large archive cannot fill the disk of other nodes.
func treeParent(s *settings.Settings) string {
	if s.Storage.Kind == settings.LocalStorage {
		return s.StorageDir()
	}
	return s.DataDir
}

// TreeDir creates a folder for unpacking an archive, which only the account of this process can
// change, and returns its path. Hold the lock during the call, and remove the folder afterwards.
func TreeDir(s *settings.Settings) (string, error) {
	return makeStage(treeParent(s), "tree")
}

// Stage creates a folder in the storage directory, which only the account of this process can
// change, and returns its path. Hold the lock during the call, and remove the folder afterwards.
func Stage(s *settings.Settings, name string) (string, error) {
	return makeStage(s.StorageDir(), name)
}

func makeStage(parent, name string) (string, error) {
	dir := filepath.Join(parent, stagePrefix+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	return dir, nil
}

// Apply first stages all files, then moves them into place. stamp is part of the name of the folder
// that keeps the replaced files. kept is that folder, or "" if nothing was replaced. After an error
// some files may be in place: repeating the import completes it.
func (p *Plan) Apply(ctx context.Context, stamp string) (kept string, err error) {
	s := p.request.Settings
	if p.Refused() {
		return "", errors.New("import: it is refused")
	}

	before := filepath.Join(s.StorageDir(), ".before-import-"+stamp)
	if len(p.items) > 0 {
		if err := p.putItems(ctx, stamp, before); err != nil {
			return keptIn(before), err
		}
	}

	if p.keyring != "" {
		p.adoptKeyring(ctx)
	}

	return keptIn(before), nil
}

func keptIn(dir string) string {
	if _, err := os.Lstat(dir); err != nil {
		return ""
	}
	return dir
}

func (p *Plan) putItems(ctx context.Context, stamp, before string) error {
	s := p.request.Settings
	if err := room.Check(s.StorageDir(), p.bytes, int64(len(p.items)), room.Usual()); err != nil {
		return fmt.Errorf("import: %w; nothing was changed", err)
	}

	stage, err := Stage(s, stamp)
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)

	master, err := layout.FindAccount(s.Users.Master)
	if err != nil {
		return err
	}

	for _, it := range p.items {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("import: %w; nothing was changed", err)
		}
		if err := p.stageItem(stage, it, master); err != nil {
			return fmt.Errorf("import: %w; nothing was changed", err)
		}
	}

	if err := p.keepKey(before); err != nil {
		return fmt.Errorf("import: keep the cluster's key: %w; nothing was changed", err)
	}

	if err := backup.Place(ctx, s, stage, before); err != nil {
		return fmt.Errorf("import: %w; a part is in place: run the same command again, it finishes; what was "+
			"there before is in %s",
			err, before)
	}

	return nil
}

// keepKey copies the cluster's present key, which the nodes will replace, to the folder backupDir.
func (p *Plan) keepKey(backupDir string) error {
	if !p.request.Beside || !p.Rekeyed {
		return nil
	}

	to := filepath.Join(backupDir, "pki")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}

	for _, name := range []string{"cluster.pub", "cluster.pem"} {
		text, err := durable.Read(filepath.Join(p.request.Settings.SharedPKIDir(), name), maxPrivate)
		if err == nil {
			err = durable.Replace(filepath.Join(to, name), text, 0o400)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

func (p *Plan) stageItem(stage string, it *item, master layout.Account) error {
	to := filepath.Join(stage, filepath.FromSlash(it.to))
	dirs := fs.FileMode(0o755)
	if strings.HasPrefix(it.to, "pki/") {
		dirs = 0o700
	}

	if err := os.MkdirAll(filepath.Dir(to), dirs); err != nil {
		return err
	}

	in, err := p.content(it)
	if err != nil {
		return err
	}
	defer in.Close()

	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	n, err := io.Copy(out, io.LimitReader(in, it.size+1))
	if err == nil && n != it.size {
		err = fmt.Errorf("%s has changed while it was read", it.from)
	}

	if err == nil && it.group && master.Credential != nil {
		err = out.Chown(os.Geteuid(), master.GID)
	}

	if err == nil {
		err = out.Chmod(it.mode)
	}

	return errors.Join(err, out.Close())
}

// adoptKeyring imports the keys of gpg. If that fails, it only adds a note, because all other files
// are in place already.
func (p *Plan) adoptKeyring(ctx context.Context) {
	s, c := p.request.Settings, p.countOf(GPG)
	at, _, err := p.tree.resolve(p.keyring)
	var master layout.Account
	if err == nil {
		master, err = layout.FindAccount(s.Users.Master)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.SharedGPGDir()), 0o755)
	}
	if err == nil {
		place := secrets.Place{
			Shared: s.SharedGPGDir(),
			Node:   s.GPGDir(),
			Run:    s.RuntimeDir,
			UID:    master.UID,
			GID:    master.GID,
		}

		_, err = place.Adopt(ctx, filepath.Join(p.tree.root.Name(), at))
	}

	if err != nil {
		c.Left, c.New = c.New, 0
		p.addNotes(Note{File: p.keyring, Text: fmt.Sprintf("the keys of gpg are not imported: %v", err)})
	}
}
