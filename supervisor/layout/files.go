package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"saltern/supervisor/settings"
)

// FilesLink is a link in a node's runtime directory that leads to states and pillars, wherever the
// node's storage is. Files is the link's path on the image. There /srv/salt and /srv/pillar lead to
// Files, because administrators look for states and pillars in /srv.
const (
	FilesLink = "srv"
	Files     = "/run/saltern/" + FilesLink
)

// LinkFiles creates the link of a node with these settings, or changes it.
func LinkFiles(s *settings.Settings) error {
	link := filepath.Join(s.RuntimeDir, FilesLink)
	target := filepath.Join(s.StorageDir(), "srv")
	if now, err := os.Readlink(link); err == nil && now == target {
		return nil
	}

	fresh := link + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link to the files: %w", err)
	}

	err := os.Symlink(target, fresh)
	if err == nil {
		err = os.Rename(fresh, link)
	}

	if err != nil {
		return fmt.Errorf("link to the files: %w", err)
	}

	return nil
}
