package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/room"
	"saltern/supervisor/internal/sharedfolder"
)

// Place says where the packages are.
type Place struct {
	Shared string // folder of the list and the wheels on the shared storage
	Node   string // the same folder as this node reads it: on a volume, in this node's copy
	Layers string // folder of this node's layers
	// Pythons lists the Pythons to try, in the order in which the master tries them.
	Pythons []string
	// As is the account that reads untrusted files. It may be nil: the account of this process.
	As *syscall.Credential
}

// Item describes a package for people and machines.
type Item struct {
	Package
	Here bool `json:"here"` // whether the layer in use on this node has the package
}

// List returns the packages of the cluster, sorted by name.
func (p Place) List() ([]Item, error) {
	packages, sum, err := readList(p.Shared)
	if err != nil {
		return nil, err
	}
	_, mine, err := readList(p.Node)
	here := err == nil && mine == sum && strings.HasSuffix(p.inService(), "-"+sum)
	items := make([]Item, 0, len(packages))
	for _, k := range packages {
		items = append(items, Item{k, here})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// Remove removes packages, together with packages that only they need. It returns all removed
// packages.
func (p Place) Remove(ctx context.Context, names []string) ([]Package, error) {
	unlock, err := p.lockFolder(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()

	before, _, err := readList(p.Shared)
	if err != nil {
		return nil, err
	}

	after := slices.Clone(before)
	for _, name := range names {
		name = Canonical(name)
		n := len(after)
		after = slices.DeleteFunc(after, func(k Package) bool { return k.Name == name })
		if len(after) == n {
			return nil, fmt.Errorf("no package is called %.60q; see: applianced python list", name)
		}
	}

	after, err = p.needed(ctx, after)
	if err != nil {
		return nil, err
	}

	if err := p.writeList(after, nil); err != nil {
		return nil, err
	}

	return slices.DeleteFunc(before, func(k Package) bool { return slices.Contains(after, k) }), nil
}

// needed returns the list without packages that were not added by name and that no other package
// needs. If a needed package is missing in the list, it returns an error.
func (p Place) needed(ctx context.Context, packages []Package) ([]Package, error) {
	for {
		wheels, err := openWheels(p.Shared, packages)
		if err != nil {
			return nil, err
		}

		needs := map[string]bool{}
		for _, w := range wheels {
			for _, r := range w.requires {
				needs[Canonical(requirementName(r))] = true
			}
		}

		kept := slices.DeleteFunc(slices.Clone(packages), func(k Package) bool { return !k.Asked && !needs[k.Name] })
		if len(kept) < len(packages) {
			closeAll(wheels)
			packages = kept
			continue
		}
		defer closeAll(wheels)

		if len(wheels) == 0 {
			return packages, nil
		}

		f, err := p.askPython(ctx, wheels)
		if errors.Is(err, ErrNoSalt) {
			// The check needs Salt's library. Without Salt the removal is allowed, because it may
			// repair Salt.
			return packages, nil
		}

		if err == nil && len(f.Lacks) > 0 {
			err = fmt.Errorf("%s; remove both at once", f.Lacks[0])
		}

		return packages, err
	}
}

// requirementName returns the name at the beginning of a requirement (PEP 508).
func requirementName(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if end < 0 {
		end = len(text)
	}
	return text[:end]
}

// lockFolder creates the folder if necessary, and locks it against changes by others on this node
// and on other nodes.
func (p Place) lockFolder(ctx context.Context) (unlock func(), err error) {
	if err := os.Mkdir(p.Shared, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the folder of packages: %w", err)
	}
	return sharedfolder.Lock(ctx, p.Shared, "the packages", time.Minute)
}

// writeList writes the new wheels first, then the list. Then it removes the wheels that the list
// does not name. So a reader of the old or the new list finds all its wheels.
func (p Place) writeList(packages []Package, fresh []*wheel) error {
	if err := checkList(packages); err != nil {
		return err
	}

	text, err := packList(packages)
	if err != nil {
		return err
	}

	root, err := os.OpenRoot(p.Shared)
	if err != nil {
		return fmt.Errorf("write the packages: %w", err)
	}
	defer root.Close()

	if err := root.Mkdir(wheelsDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the packages: %w", err)
	}

	if err := roomFor(p.Shared, fresh); err != nil {
		return fmt.Errorf("write the packages: %w", err)
	}

	for _, w := range fresh {
		if _, err := w.f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("write the packages: %w", err)
		}
		if err := writeContent(root, filepath.Join(wheelsDir, w.File), w.f); err != nil {
			return fmt.Errorf("write the packages: %w", err)
		}
	}

	if err := writeContent(root, listName, strings.NewReader(string(text))); err != nil {
		return fmt.Errorf("write the packages: %w", err)
	}

	entries, err := fs.ReadDir(root.FS(), wheelsDir)
	for _, e := range entries {
		if !slices.ContainsFunc(packages, func(k Package) bool { return k.File == e.Name() }) {
			err = errors.Join(err, root.RemoveAll(filepath.Join(wheelsDir, e.Name())))
		}
	}

	if err != nil {
		return fmt.Errorf("remove wheels that are not needed: %w", err)
	}

	return nil
}

// roomFor returns an error if the disk of a folder has too little free space for the wheels.
func roomFor(dir string, wheels []*wheel) error {
	size := int64(0)
	for _, w := range wheels {
		fi, err := w.f.Stat()
		if err != nil {
			return err
		}
		size += fi.Size()
	}
	return room.Check(dir, size, int64(len(wheels)), room.Usual())
}

func writeContent(root *os.Root, name string, content io.Reader) error {
	return sharedfolder.Write(root, name, io.LimitReader(content, maxWheel),
		func(f *os.File) error { return f.Chmod(0o644) })
}

func readText(root *os.Root, name string, maxBytes int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes))
}
