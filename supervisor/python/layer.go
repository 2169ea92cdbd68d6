package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/room"
)

// Current is the name of the link to the layer in use, in the folder of layers.
const Current = "current"

const (
	building = ".new-" // begins the names of layers that are not complete
	// layersKept is how many replaced layers are kept besides the one in use, for running Pythons
	// that have not loaded all parts of a package yet.
	layersKept = 2
	// layerKept is how long replaced layers are kept. It is longer than any runner may run.
	layerKept = 25 * time.Hour
)

// ErrIncomplete means that a wheel of the list is missing or incomplete. If the folder is a copy of
// the volume, the wheel may arrive within a moment.
var ErrIncomplete = errors.New("a wheel is not there")

// ListFile returns the path of the list of packages in a folder.
func ListFile(dir string) string { return filepath.Join(dir, listName) }

// readList reads the list of a folder. If there is no list, there are no packages. sum is the hash
// of the list's text.
func readList(dir string) (packages []Package, sum string, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the list of packages: %w", err)
	}
	defer root.Close()

	text, err := readText(root, listName, maxList+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}

	if err == nil {
		packages, err = parseList(text)
	}

	if err != nil {
		return nil, "", fmt.Errorf("read the list of packages, %s: %w", filepath.Join(dir, listName), err)
	}

	h := sha256.Sum256(text)
	return packages, hex.EncodeToString(h[:6]), nil
}

// openWheels opens the wheels of the list. The caller closes them.
func openWheels(dir string, packages []Package) (wheels []*wheel, err error) {
	if len(packages) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			closeAll(wheels)
			wheels = nil
		}
	}()

	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	defer root.Close()

	for _, p := range packages {
		w, err := openWheel(root, filepath.Join(wheelsDir, p.File))
		if err != nil {
			return wheels, fmt.Errorf("%w: %w", ErrIncomplete, err)
		}

		wheels = append(wheels, w)
		if w.SHA256 != p.SHA256 || w.Name != p.Name {
			return wheels, fmt.Errorf("%w: %s is not the file whose hash is in the list", ErrIncomplete, p.File)
		}
	}

	return wheels, nil
}

func closeAll(wheels []*wheel) {
	for _, w := range wheels {
		w.close()
	}
}

// unpackLayer unpacks wheels into a new folder.
func unpackLayer(dir string, wheels []*wheel) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	watch, err := room.Guard(dir, room.Usual())
	if err != nil {
		return err
	}

	left := &budget{bytes: maxUnpacked, files: maxFiles, watch: watch}
	for _, w := range wheels {
		if err := w.unpack(root, left); err != nil {
			return err
		}
	}

	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
}

// Renew builds the layer for the present packages and switches to it, unless that layer is already
// in use. After an error the earlier layer stays in use, unless it was built for another Python.
// Only one process of a node may call Renew at a time.
func (p Place) Renew(ctx context.Context) error {
	packages, sum, err := readList(p.Node)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		p.retire()
		if err := os.Remove(filepath.Join(p.Layers, Current)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put no packages in service: %w", err)
		}
		return p.removeUnused("")
	}

	f, err := p.askPython(ctx, nil)
	if err != nil {
		return err
	}

	id := f.fullTag() + "-" + sum
	if p.inService() == id {
		return p.removeUnused(id)
	}

	if err := p.buildLayer(ctx, id, packages); err != nil {
		if now := p.inService(); now != "" && !strings.HasPrefix(now, f.abiTag()+"-") {
			err = errors.Join(err, os.Remove(filepath.Join(p.Layers, Current)))
		}
		return err
	}

	return p.removeUnused(id)
}

func (p Place) buildLayer(ctx context.Context, id string, packages []Package) error {
	wheels, err := openWheels(p.Node, packages)
	if err != nil {
		return err
	}
	defer closeAll(wheels)

	f, err := p.askPython(ctx, wheels)
	if err != nil {
		return err
	}

	if err := f.checkWheels(wheels); err != nil {
		return err
	}

	if err := os.MkdirAll(p.Layers, 0o755); err != nil {
		return fmt.Errorf("make the layer: %w", err)
	}

	final := filepath.Join(p.Layers, id)
	if _, err := os.Lstat(final); err != nil {
		tmp := filepath.Join(p.Layers, building+id)
		err := os.RemoveAll(tmp)
		if err == nil {
			err = unpackLayer(tmp, wheels)
		}
		if err == nil {
			err = syncTree(tmp)
		}
		if err == nil {
			err = os.Rename(tmp, final)
		}

		if err != nil {
			return errors.Join(fmt.Errorf("make the layer: %w", err), os.RemoveAll(tmp))
		}
	}

	return p.switchLayer(id)
}

// syncTree writes a folder to the disk, before the folder gets its name.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// switchLayer puts the layer with this id into use. The earlier layer is kept for layerKept after
// the switch.
func (p Place) switchLayer(id string) error {
	p.retire()
	tmp := filepath.Join(p.Layers, building+Current)
	err := os.RemoveAll(tmp)
	if err == nil {
		err = os.Symlink(id, tmp)
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(p.Layers, Current))
	}
	if err != nil {
		return fmt.Errorf("put the packages in service: %w", err)
	}
	return nil
}

// retire records the time at which the layer in use is replaced. The layer is kept for layerKept
// from then on.
func (p Place) retire() {
	if now := p.inService(); now != "" {
		at := time.Now()
		_ = os.Chtimes(filepath.Join(p.Layers, now), at, at)
	}
}

// inService returns the name of the layer in use, or "" if there is none.
func (p Place) inService() string {
	id, err := os.Readlink(filepath.Join(p.Layers, Current))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(p.Layers, id)); err != nil {
		return ""
	}
	return id
}

// removeUnused removes incomplete layers, and layers that have been kept long enough. id is the
// layer in use.
func (p Place) removeUnused(id string) error {
	entries, err := os.ReadDir(p.Layers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	type layer struct {
		name string
		at   time.Time
	}

	var old []layer
	var faults error
	for _, e := range entries {
		fi, ierr := e.Info()
		switch name := e.Name(); {
		case name == id || name == Current || ierr != nil:
		case strings.HasPrefix(name, building):
			faults = errors.Join(faults, os.RemoveAll(filepath.Join(p.Layers, name)))
		default:
			old = append(old, layer{name, fi.ModTime()})
		}
	}

	slices.SortFunc(old, func(a, b layer) int { return b.at.Compare(a.at) })
	for i, l := range old {
		if i >= layersKept || time.Since(l.at) > layerKept {
			faults = errors.Join(faults, os.RemoveAll(filepath.Join(p.Layers, l.name)))
		}
	}

	if err = errors.Join(err, faults); err != nil {
		return fmt.Errorf("remove old layers: %w", err)
	}

	return nil
}
