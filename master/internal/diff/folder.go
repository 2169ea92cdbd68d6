package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"saltern/internal/room"
)

// Bounds of a folder that is compared.
const (
	maxFolderFiles = 20000
	maxFolderBytes = 256 << 20
	maxFolderDepth = 40
)

// copyFolder copies the regular files of a folder, so that it stays the same during a comparison. It
// leaves out links: they could lead to any file of this host. It returns the directory of the copy.
func (s *Service) copyFolder(ctx context.Context, folder, to string) (string, error) {
	real, err := filepath.EvalSymlinks(folder)
	if err != nil || !filepath.IsAbs(folder) {
		return "", fmt.Errorf("compare the folder %.200q: it must be the absolute path of a folder on this master", folder)
	}

	source, err := s.openFolder(real)
	if err != nil {
		return "", fmt.Errorf("compare the folder %.200q: %w", folder, err)
	}
	defer source.Close()

	c := &folderCopy{ctx: ctx, left: maxFolderBytes, files: maxFolderFiles}
	if c.watch, err = room.Guard(filepath.Dir(to), room.Usual()); err != nil {
		return "", fmt.Errorf("copy the folder %.200q: %w", folder, err)
	}
	if err := c.copyDir(source, ".", to, 0); err != nil {
		return "", fmt.Errorf("copy the folder %.200q: %w", folder, err)
	}
	return to, nil
}

// openFolder opens a folder by its real path from the one of the Folders that it is below. A link that takes
// its place meanwhile cannot lead elsewhere.
func (s *Service) openFolder(real string) (*os.Root, error) {
	for _, dir := range s.cfg.Folders {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(dir, real)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}

		above, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer above.Close()
		return above.OpenRoot(rel)
	}
	return nil, errors.New("it is not below a folder that saltern_diff_folders names")
}

// folderCopy is one copy.
type folderCopy struct {
	ctx   context.Context
	watch *room.Watch
	left  int64 // bytes that may still be copied
	files int   // files that may still be copied
}

func (c *folderCopy) copyDir(source *os.Root, dir, to string, depth int) error {
	if depth > maxFolderDepth {
		return fmt.Errorf("folders are nested more than %d deep", maxFolderDepth)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}

	opened, err := source.Open(dir)
	if err != nil {
		return err
	}
	defer opened.Close()

	for {
		entries, err := opened.ReadDir(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := c.copyEntry(source, entry, dir, to, depth); err != nil {
				return err
			}
		}
	}
}

func (c *folderCopy) copyEntry(source *os.Root, entry fs.DirEntry, dir, to string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}

	name := filepath.Join(dir, entry.Name())
	target := filepath.Join(to, entry.Name())
	switch {
	case entry.Name() == ".git":
		return nil
	case entry.IsDir():
		return c.copyDir(source, name, target, depth+1)
	case !entry.Type().IsRegular():
		return nil
	}

	c.files--
	if c.files < 0 {
		return fmt.Errorf("it has more than %d files", maxFolderFiles)
	}
	return c.copyFile(source, name, target)
}

func (c *folderCopy) copyFile(source *os.Root, name, target string) error {
	if err := c.watch.File(); err != nil {
		return err
	}
	if info, err := source.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return err // it was replaced by a link or a pipe, which could block
	}
	from, err := source.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer from.Close()

	to, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	copied, err := io.Copy(c.watch.Writer(to), io.LimitReader(from, c.left+1))
	if c.left -= copied; err == nil && c.left < 0 {
		err = fmt.Errorf("it has more than %d MiB", maxFolderBytes>>20)
	}
	return errors.Join(err, to.Close())
}
