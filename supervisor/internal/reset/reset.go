// Package reset removes what a node has created on its machine, and nothing else: files with names
// that the appliance uses, in its own directories. It refuses to touch directories of the system,
// and mounts that do not belong to the node.
package reset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/mountinfo"
	"saltern/supervisor/firewall"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/python"
	"saltern/supervisor/settings"
)

// Plan lists what a reset removes. Paths are absolute and free of symbolic links, except for the
// last element; the reset does not follow a link there.
type Plan struct {
	// Remove and Bricks are removed with everything in them, Bricks first. Bricks are copies of the
	// shared volume, which may be on a separate disk.
	Remove, Bricks []string
	// Folders are removed if they are empty after the reset.
	Folders []string
	// Keep names paths that the node has used and that the reset keeps, with the reason.
	Keep []string
}

// names lists the appliance's files in its data directory. A file whose name begins with one of
// prefixes is an older version of such a file, or a temporary file.
var (
	names = [...]string{"setup", "pki", "mirror", "node", "cache", "python", "log", "etc", "cluster",
		"cluster.before-volume", "cluster.recovering",
		"storage", "support", "recover.json", "data-disk", nodes.ChangedFile, firewall.PortFile, "appliance.yaml.restored"}
	prefixes = [...]string{python.ScratchPrefix, nodes.File, "." + nodes.File, "." + nodes.ChangedFile,
		"." + firewall.PortFile, ".recover.json", ".data-disk", ".appliance.yaml.restored"}
	// running lists the appliance's files in its runtime directory.
	running = [...]string{"master", "lb", "vip", "conditions.json", "lb.out", "lb.pid", "master.pid",
		layout.FilesLink, "glusterd-allowed"}
)

// system lists directories of the system. None of them, and no directory that contains one, can
// be a data directory.
var system = [...]string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc",
	"/root", "/run", "/sbin", "/srv", "/sys", "/tmp",
	"/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share", "/var/backups", "/var/cache", "/var/lib",
	"/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool", "/var/tmp"}

// New returns the plan to reset a node with these settings. config is the path of the node's
// appliance.yaml. New changes nothing. Its error says what must be done before the reset.
func New(s *settings.Settings, config string) (Plan, error) {
	p := Plan{Remove: existing(config)}
	data, err := realPath("data_dir", s.DataDir)
	if err != nil {
		return Plan{}, err
	}

	run, err := realPath("runtime_dir", s.RuntimeDir)
	if err != nil {
		return Plan{}, err
	}

	bricks, err := realPath("storage.bricks", s.Storage.Bricks)
	if err != nil {
		return Plan{}, err
	}

	path := filepath.Clean(s.Storage.Path)
	if real, err := filepath.EvalSymlinks(path); err == nil && !s.OnVolume() {
		path = real
	}

	shared := s.Storage.Kind == settings.DirectoryStorage
	list, err := listDir(data)
	if err != nil {
		return Plan{}, err
	}

	for _, name := range list {
		full := filepath.Join(data, name)
		if !slices.Contains(names[:], name) &&
			!slices.ContainsFunc(prefixes[:], func(x string) bool { return strings.HasPrefix(name, x) }) || shared && within(path, full) {
			continue
		}
		p.Remove = append(p.Remove, full)
	}

	for _, name := range running {
		p.Remove = append(p.Remove, existing(filepath.Join(run, name))...)
	}

	if list, err = listDir(bricks); err != nil {
		return Plan{}, err
	}

	for _, name := range list {
		if !s.OnVolume() || !isCopy(name, s.Storage.Volume) && name != copyMarks {
			continue
		}
		p.Bricks = append(p.Bricks, filepath.Join(bricks, name))
	}

	p.Folders = []string{bricks, data}
	switch {
	case shared:
		p.Keep = append(p.Keep, path+": the directory that the nodes share")
	case !s.OnVolume() && !slices.ContainsFunc(p.Remove, func(r string) bool { return within(path, r) }) &&
		len(existing(path)) > 0:
		p.Keep = append(p.Keep, path+": keys, states and pillars, in a directory that you chose (storage.path)")
	}

	return p, nil
}

// copyMarks is the file with the marks of the copies, beside them.
const copyMarks = ".marks.json"

// isCopy reports whether a directory is a copy of a volume, in use or set aside.
func isCopy(name, volume string) bool {
	number, ok := strings.CutPrefix(name, volume+"-")
	number, _, _ = strings.Cut(number, ".before-")
	_, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil
}

// Mounted returns an error if something is mounted below a path that would be removed. ownMounts
// lists the exceptions: mounts of the node itself, which the reset unmounts first.
func (p Plan) Mounted(ownMounts ...string) error {
	b, err := os.ReadFile(mountinfo.Self)
	if err != nil {
		return fmt.Errorf("look what is mounted: %w", err)
	}

	for m := range mountinfo.Parse(string(b)) {
		for _, r := range slices.Concat(p.Bricks, p.Remove) {
			if within(m.Point, r) && !slices.Contains(ownMounts, m.Point) {
				return fmt.Errorf("%s is a mount, which this node has not made; "+
					"unmount it, and take it out of /etc/fstab",
					m.Point)
			}
		}
	}

	return nil
}

// Do removes everything in the plan. After it has removed the copies of the volume, it calls
// releaseDisk. Do may be repeated with a new plan.
func (p Plan) Do(ctx context.Context, releaseDisk func(context.Context) error) error {
	if err := p.Mounted(); err != nil {
		return err
	}

	if err := remove(ctx, p.Bricks); err != nil {
		return err
	}

	if err := releaseDisk(ctx); err != nil {
		return err
	}

	if err := remove(ctx, p.Remove); err != nil {
		return err
	}

	for _, d := range p.Folders {
		_ = os.Remove(d) // the folder stays if somebody else uses it
	}

	return nil
}

// remove removes everything in list. It follows no symbolic link, see [os.RemoveAll].
func remove(ctx context.Context, list []string) error {
	for _, path := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

// realPath returns the path of a directory of the node without symbolic links. key is the setting
// that names the directory.
func realPath(key, path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		real, err = filepath.Clean(path), nil
	}

	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}

	for _, s := range system {
		if within(s, real) {
			return "", fmt.Errorf("%s: %s is a directory of the system and not this node's alone; "+
				"remove by hand what the node has made there",
				key, real)
		}
	}

	return real, nil
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func existing(path string) []string {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return []string{path}
}

func listDir(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out, nil
}
