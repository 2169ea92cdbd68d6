// Package tree builds the appliance's root directory from Debian packages (by mmdebstrap), a
// kernel, the profile's files, our programs, and the Python library of the renderers. It removes
// the files that must differ between two machines.
//
// It needs root, mmdebstrap, and for Python a python3 of the tree's release.
package tree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/image/profile"
	"saltern/supervisor/layout"
)

// Options configures the build of a tree.
type Options struct {
	// Work is a folder for intermediate results. The caller may remove it afterwards.
	Work string
	// Cache is a folder that keeps packages between builds, or "".
	Cache string
	// Mirror and Security are Debian's archives.
	Mirror, Security string
	// Programs is the folder with applianced, salt-master, salt-api and salt.
	Programs string
	// Version is written into os-release.
	Version string
	// Epoch is the time of everything in the tree.
	Epoch time.Time
	// Keys are public keys (PEM) that may sign new versions, by file name.
	Keys map[string][]byte
	// Python adds Salt's library.
	Python bool
	// NoKernels omits the kernels' packages. [WithKernel] cannot be used after such a build.
	NoKernels bool
	Log       *slog.Logger
}

// Archives of Debian.
const (
	DebianMirror   = "http://deb.debian.org/debian"
	DebianSecurity = "http://deb.debian.org/debian-security"
)

// programs are installed in /usr/bin; links are further names of the last program.
var (
	programs = []string{"applianced", "salt-master", "salt-api", "salt"}
	links    = []string{"salt-key", "salt-run", "salt-cp"}
)

type builder struct {
	Options
	dir       string
	container bool // whether the tree is for a container image
}

type step struct {
	name string
	do   func(context.Context) error
}

// Build builds the tree without a kernel in Work/tree and returns the tree's path. A container
// needs no kernel. Build first removes an older tree.
func Build(ctx context.Context, o Options) (string, error) {
	b, err := newBuilder(o, "tree")
	if err != nil {
		return "", err
	}
	return b.dir, b.runSteps(ctx, []step{
		{"packages", b.packages}, {"files", b.overlay}, {"programs", b.programs}, {"python", b.python},
		{"identity", b.identity}, {"units", b.enableUnits}, {"clean", b.removeLeftovers},
	})
}

// Container builds the layer below our programs in the container image with Python, in
// Work/container, and returns its path. It first removes an older layer.
func Container(ctx context.Context, o Options) (string, error) {
	o.Python, o.NoKernels = true, true
	b, err := newBuilder(o, "container")
	if err != nil {
		return "", err
	}
	b.container = true
	return b.dir, b.runSteps(ctx, []step{{"packages", b.packages}, {"python", b.python}, {"clean", b.removeLeftovers}})
}

// WithKernel copies the tree of Build and adds a kernel. It returns the path of the copy,
// Work/tree-FLAVOUR.
func WithKernel(ctx context.Context, o Options, f profile.Flavour) (string, error) {
	b, err := newBuilder(o, "tree-"+f.Name)
	if err != nil {
		return "", err
	}

	return b.dir, b.runSteps(ctx, []step{
		{"copy", func(ctx context.Context) error {
			if err := os.RemoveAll(b.dir); err != nil {
				return err
			}
			return b.runCommand(ctx, "cp", "-a", filepath.Join(b.Work, "tree"), b.dir)
		}},
		{"kernel", func(ctx context.Context) error { return b.kernel(ctx, f) }},
		{"initrd", b.initrd}, {"clean", b.removeLeftovers},
	})
}

func newBuilder(o Options, name string) (*builder, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if os.Geteuid() != 0 {
		return nil, errors.New("tree: only root can make it (owners and device nodes of packages)")
	}
	work, err := filepath.Abs(o.Work)
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	o.Work = work
	return &builder{Options: o, dir: filepath.Join(work, name)}, nil
}

func (b *builder) runSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("tree: %s: %w", s.name, err)
		}
		b.Log.Info(filepath.Base(b.dir), "step", s.name, "seconds", int(time.Since(began).Seconds()))
	}
	return nil
}

// runCommand runs a program with the build's environment. When the program fails, the error
// contains its output.
func (b *builder) runCommand(ctx context.Context, name string, args ...string) error {
	_, err := b.output(ctx, name, args...)
	return err
}

func (b *builder) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.Epoch.Unix()),
		"LC_ALL=C.UTF-8", "TZ=UTC", "DEBIAN_FRONTEND=noninteractive",
		"INITRD=No", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	var out, all bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, &all)
	cmd.Stderr = &all
	if err := cmd.Run(); err != nil {
		text := all.Bytes()
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(text[max(0, len(text)-2000):]))
	}
	return out.Bytes(), nil
}

// chroot runs a program inside the tree, with /proc and /dev in a mount namespace that ends with
// the program.
func (b *builder) chroot(ctx context.Context, args ...string) error {
	script := `mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" && root=$1 && shift && exec chroot "$root" "$@"`
	return b.runCommand(ctx, "unshare",
		append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", b.dir}, args...)...)
}

func (b *builder) pathOf(p string) string { return filepath.Join(b.dir, p) }

func (b *builder) writeFile(p, text string, mode fs.FileMode) error {
	full := b.pathOf(p)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	_ = os.Remove(full) // if name is a link, replace the link instead of following it
	if err := os.WriteFile(full, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(full, mode)
}

// motd is the text that users who log in by SSH see after the output of etc/update-motd.d. Its
// argument is the version.
const motd = `  applianced status    how this node is, and what to do next
  man applianced       the manual; applianced VERB --help; Tab completes
Saltern %s
`

// overlay copies the profile's files to the tree, where they replace files of packages.
func (b *builder) overlay(ctx context.Context) error {
	files, err := profile.Overlay()
	if err != nil {
		return err
	}

	for _, f := range files {
		if err := b.writeFile(f.Path, string(f.Content), f.Mode); err != nil {
			return err
		}
	}

	for name, pem := range b.Keys {
		if err := b.writeFile("usr/lib/saltern/upgrade-keys/"+name, string(pem), 0o644); err != nil {
			return err
		}
	}

	release, err := os.ReadFile(b.pathOf("usr/lib/os-release"))
	if err != nil {
		return err
	}

	text := strings.TrimRight(string(release), "\n") + "\nIMAGE_ID=saltern\nIMAGE_VERSION=" + b.Version +
		"\nIMAGE_CREATED=" + b.Epoch.UTC().Format(time.RFC3339) + "\n"
	return errors.Join(
		b.writeFile("usr/lib/os-release", text, 0o644),
		b.writeFile("etc/hostname", "saltern\n", 0o644),
		b.writeFile("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n", 0o644),
		b.writeFile("etc/issue", "Saltern \\n \\l\n\n", 0o644),
		b.writeFile("etc/motd", fmt.Sprintf(motd, b.Version), 0o644),
		b.writeFile("etc/default/locale", "LANG=C.UTF-8\n", 0o644),
		b.writeFile("etc/fstab", "# The state partition is mounted by the initial RAM disk.\n", 0o644),
		b.chroot(ctx, "systemd-sysusers"),
	)
}

// programs installs our programs.
func (b *builder) programs(ctx context.Context) error {
	for _, p := range programs {
		if err := copyFile(filepath.Join(b.Programs, p), b.pathOf("usr/bin/"+p), 0o755); err != nil {
			return fmt.Errorf("%w (make build makes it)", err)
		}
	}

	// The load balancer is the supervisor's program under another name, so that it gets its own
	// AppArmor profile.
	_ = os.Remove(b.pathOf("usr/bin/saltern-lb"))
	if err := os.Link(b.pathOf("usr/bin/applianced"), b.pathOf("usr/bin/saltern-lb")); err != nil {
		return err
	}

	for _, l := range links {
		_ = os.Remove(b.pathOf("usr/bin/" + l))
		if err := os.Symlink("salt", b.pathOf("usr/bin/"+l)); err != nil {
			return err
		}
	}

	// GlusterFS looks for its certificates in a folder of the read-only system.
	for _, f := range []string{"glusterfs.pem", "glusterfs.key", "glusterfs.ca"} {
		if err := os.Symlink("/etc/ssl/"+f, b.pathOf("usr/lib/ssl/"+f)); err != nil {
			return err
		}
	}

	if err := b.chroot(ctx, "sh", "-ec",
		"applianced completion bash >/usr/share/bash-completion/completions/applianced; applianced man --dir "+
			"/usr/share/man/man8"); err != nil {
		return err
	}

	// Salt's tools look in /etc/salt for the configuration, which the node generates elsewhere.
	return os.Symlink("/var/lib/saltern/etc/salt", b.pathOf("etc/salt"))
}

// masked lists units that must never start, because other units do their work, or because the work
// must not be done.
var masked = []string{"systemd-networkd-wait-online.service", "systemd-firstboot.service", "apt-daily.timer",
	"apt-daily-upgrade.timer",
	"dpkg-db-backup.timer", "glustereventsd.service", "vgauth.service", "debug-shell.service", "ctrl-alt-del.target"}

// enableUnits enables exactly the units of the preset, no matter which ones the packages have
// enabled.
func (b *builder) enableUnits(ctx context.Context) error {
	etc := b.pathOf("etc/systemd/system")
	remove := func(patterns ...string) error {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(etc, pattern))
			if err != nil {
				return err
			}

			for _, f := range found {
				if err := os.RemoveAll(f); err != nil {
					return err
				}
			}
		}

		return nil
	}

	if err := remove("*.wants", "*.requires"); err != nil {
		return err
	}

	if err := b.chroot(ctx, "systemctl", "preset-all"); err != nil {
		return err
	}

	for _, u := range masked {
		if err := errors.Join(remove("*/"+u), makeLink("/dev/null", filepath.Join(etc, u))); err != nil {
			return err
		}
	}

	return b.chroot(ctx, "systemctl", "set-default", "multi-user.target")
}

// identity removes files that identify a machine, and creates the mount points.
func (b *builder) identity(context.Context) error {
	for _, pattern := range []string{"etc/ssh/ssh_host_*", "var/lib/dbus/machine-id",
		"var/lib/glusterd/glusterd.info", "var/lib/systemd/random-seed",
		"var/lib/systemd/catalog/database", "etc/ssl/private/*"} {
		found, err := filepath.Glob(b.pathOf(pattern))
		if err != nil {
			return err
		}

		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}

	for _, d := range []string{"data", "efi", "srv/cluster", "var/lib/saltern", "var/home", "etc/saltern",
		"etc/ssh/authorized_keys.d"} {
		if err := os.MkdirAll(b.pathOf(d), 0o755); err != nil {
			return err
		}
	}

	if err := os.RemoveAll(b.pathOf("home")); err != nil {
		return err
	}

	return errors.Join(
		b.writeFile("etc/machine-id", "", 0o444),
		os.Symlink("/var/home", b.pathOf("home")),
		os.Symlink(layout.Files+"/salt", b.pathOf("srv/salt")),
		os.Symlink(layout.Files+"/pillar", b.pathOf("srv/pillar")),
		makeLink("/etc/machine-id", b.pathOf("var/lib/dbus/machine-id")),
		makeLink("../run/systemd/resolve/stub-resolv.conf", b.pathOf("etc/resolv.conf")),
		makeLink("../proc/self/mounts", b.pathOf("etc/mtab")),
	)
}

// geoReplication lists files with which glusterd prepares replication to other sites, which no node
// uses. While the first of these files exists, each start of glusterd runs Python two dozen times
// (configure_syncdaemon in GlusterFS's glusterd.c).
var geoReplication = []string{"usr/lib/*/glusterfs/gsyncd", "usr/lib/*/glusterfs/python/syncdaemon"}

// removeLeftovers removes files that the running system never reads, and files whose content
// differs from build to build.
func (b *builder) removeLeftovers(context.Context) error {
	for _, pattern := range append([]string{"var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/man/*",
		"var/cache/debconf/*-old", "var/lib/dpkg/*-old", "var/log/*", "tmp/*", "run/*",
		"var/cache/ldconfig/aux-cache", "etc/*-", "etc/apt/apt.conf.d/*mmdebstrap", "etc/apt/sources.list.d/*", "etc/.pwd.lock",
		"var/tmp/*", "root/.*", "vmlinuz*", "initrd.img*", "boot/System.map*", "usr/share/doc/*/changelog*"}, geoReplication...) {
		found, err := filepath.Glob(b.pathOf(pattern))
		if err != nil {
			return err
		}

		for _, f := range found {
			if base := filepath.Base(f); base == "." || base == ".." {
				continue
			}
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}

	return nil
}

func makeLink(to, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	_ = os.Remove(at)
	return os.Symlink(to, at)
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()

	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}

	_ = os.Remove(to)
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// newest returns the path of the newest file that matches a pattern, or "".
func newest(pattern string) string {
	found, _ := filepath.Glob(pattern)
	slices.Sort(found)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// Programs lists our programs by their path in a tree.
func Programs() (out []string) {
	for _, p := range programs {
		out = append(out, "usr/bin/"+p)
	}
	return out
}
