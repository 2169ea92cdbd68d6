package tree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"saltern/image/profile"
)

// sources returns Debian's archives as lines of sources.list.
func (b *builder) sources() []string {
	return []string{
		fmt.Sprintf("deb %s %s main", b.Mirror, profile.Suite),
		fmt.Sprintf("deb %s %s-updates main", b.Mirror, profile.Suite),
		fmt.Sprintf("deb %s %s-security main", b.Security, profile.Suite),
	}
}

// unsafeIO is the dpkg option that skips syncing to the disk while the tree is built.
const unsafeIO = "force-unsafe-io"

// leftOut holds dpkg options that omit documents which nobody reads on an appliance. Licenses stay.
var leftOut = []string{"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*",
	"path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/lintian/*"}

// findStore returns the folder of the packages in the cache. The folder's name is the hash of its
// recipe. A build without kernels uses a folder with kernels if there is one.
func (b *builder) findStore() (dir string, list []string, flavours map[string]profile.Flavour, err error) {
	if b.container {
		list, err = profile.ContainerPackages()
		return b.storeOf(list, nil), list, nil, err
	}

	if list, err = profile.Packages(); err != nil {
		return "", nil, nil, err
	}

	if flavours, err = profile.Flavours(); err != nil {
		return "", nil, nil, err
	}

	dir = b.storeOf(list, flavours)
	if b.NoKernels {
		if _, err := os.Stat(filepath.Join(dir, "base.tar")); err != nil {
			flavours = nil
			dir = b.storeOf(list, nil)
		}
	}

	return dir, list, flavours, nil
}

func (b *builder) storeOf(list []string, flavours map[string]profile.Flavour) string {
	var kernels []string
	for _, f := range flavours {
		kernels = append(kernels, f.Name+"="+f.Package+" "+strings.Join(f.More, " "))
	}
	sort.Strings(kernels)
	recipe := strings.Join([]string{strings.Join(list, ","), strings.Join(b.sources(), "\n"),
		strings.Join(leftOut, "\n"), strings.Join(kernels, ","),
		fmt.Sprint(packagesEpoch)}, "\n\n")
	sum := sha256.Sum256([]byte(recipe))
	base := b.Cache
	base = cmp.Or(base, b.Work)
	return filepath.Join(base, "packages-"+hex.EncodeToString(sum[:8]))
}

// packagesEpoch is the time of all files in the packages' tar file, in seconds since 1970. The time
// is fixed, so that one cache serves all builds; each tree later gets the time of its build.
const packagesEpoch = 1750000000

// newestFile is the name of the file beside the packages' tar file that says when the newest package
// was built, in seconds since 1970.
const newestFile = "newest"

// Packages fetches the packages, unless the cache has them, and returns the time at which the
// newest of them was built. If that was not recorded, the time is zero.
func Packages(ctx context.Context, o Options) (time.Time, error) {
	b, err := newBuilder(o, "tree")
	if err != nil {
		return time.Time{}, err
	}
	dir, err := b.fetchPackages(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("tree: packages: %w", err)
	}
	return newestPackage(dir)
}

// newestPackage returns the latest of the time that debstrap has recorded and the times of the
// kernels' packages.
func newestPackage(dir string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(dir, newestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("age of the packages: %w", err)
	}

	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("age of the packages in %s: %w", dir, err)
	}

	newest := time.Unix(seconds, 0).UTC()
	debs, err := filepath.Glob(filepath.Join(dir, "kernel-*", "*.deb"))
	if err != nil {
		return time.Time{}, fmt.Errorf("age of the packages: %w", err)
	}

	for _, deb := range debs {
		at, err := debTime(deb)
		if err != nil {
			return time.Time{}, err
		}
		if at.After(newest) {
			newest = at
		}
	}

	return newest, nil
}

// debTime returns when a package was built: the time of the first member of its archive (deb(5),
// and the common format of ar).
func debTime(path string) (time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("age of a package: %w", err)
	}
	defer f.Close()

	const magic, member = "!<arch>\n", "debian-binary   "
	head := make([]byte, len(magic)+len(member)+12)
	if _, err := io.ReadFull(f, head); err != nil || !strings.HasPrefix(string(head), magic+member) {
		return time.Time{}, errors.Join(fmt.Errorf("%s is no package of Debian's", path), err)
	}

	seconds, err := strconv.ParseInt(strings.TrimSpace(string(head[len(magic)+len(member):])), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("age of %s: %w", path, err)
	}

	return time.Unix(seconds, 0).UTC(), nil
}

// noteNewest returns a hook for mmdebstrap that writes into file when the newest package was built.
// That is the latest time of an installed file, because dpkg-deb clamps the times of files to the
// time of their package. The hook ignores files that are newer than stamp, because scripts of
// packages have changed these files.
func noteNewest(stamp, file string) string {
	return `--customize-hook=sed "s|^|$1|" "$1"/var/lib/dpkg/info/*.list | grep /usr/ | xargs -d "\n" stat -c "%F:%Y" 2>/dev/null | ` +
		`awk -F: -v before=$(stat -c %Y '` + stamp + `') '$1 ~ /^regular/ && $2 < before && $2 > n { n = $2 } END { print n + 0 }' >'` + file + `'`
}

// packages unpacks the packages into the tree, from a tar file in Cache. The name of the tar file's
// folder is the hash of its recipe. To get newer packages, remove the cache.
func (b *builder) packages(ctx context.Context) error {
	dir, err := b.fetchPackages(ctx)
	if err != nil {
		return err
	}
	b.tellAge(dir)
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return b.runCommand(ctx, "tar", "-xpf", filepath.Join(dir, "base.tar"), "-C", b.dir, "--numeric-owner",
		"--xattrs", "--xattrs-include=*")
}

// fetchPackages fetches the packages if the cache lacks them, and returns their folder.
func (b *builder) fetchPackages(ctx context.Context) (string, error) {
	dir, list, flavours, err := b.findStore()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "base.tar")); err == nil {
		return dir, nil
	}
	return dir, b.debstrap(ctx, dir, list, flavours)
}

// tellAge prints the age of the cached packages, which is not visible otherwise.
func (b *builder) tellAge(dir string) {
	fi, err := os.Stat(filepath.Join(dir, "base.tar"))
	if err != nil {
		return // tar will report the error
	}

	age := time.Since(fi.ModTime())
	days := int(age.Hours() / 24)
	// Cached packages of this age probably lack security updates.
	if age >= 7*24*time.Hour {
		b.Log.Warn("the packages are from the cache and old: security updates since then are missing; remove "+
			"the cache for newer ones",
			"days", days, "cache", dir)
	} else {
		b.Log.Info("packages fetched from Debian's archives", "days", days, "cache", dir)
	}
}

// debstrap fetches all packages into dir. dir appears only when it is complete.
func (b *builder) debstrap(ctx context.Context, dir string, list []string, flavours map[string]profile.Flavour) error {
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}

	variant := "minbase"
	if b.container {
		variant = "essential" // a container needs no package manager
	}

	args := []string{"--mode=root", "--variant=" + variant, "--format=tar", "--include=" + strings.Join(list, ","),
		"--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"3\""}
	for _, o := range leftOut {
		args = append(args, "--dpkgopt="+o)
	}

	// A half-written tree is rebuilt after a power cut, so do not sync.
	args = append(args, "--dpkgopt="+unsafeIO,
		`--customize-hook=sed -i /`+unsafeIO+`/d "$1"/etc/dpkg/dpkg.cfg.d/*mmdebstrap`)
	for _, f := range flavours {
		debs := filepath.Join(part, "kernel-"+f.Name)
		if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
			return err
		}
		args = append(args,
			"--customize-hook=APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get -q -y --download-only -o "+
				"Dir::Cache::archives='"+debs+"' -o APT::Sandbox::User=root install "+f.Package+" "+strings.Join(f.More, " "))
	}

	stamp := filepath.Join(part, "stamp")
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		return err
	}

	args = append(args, noteNewest(stamp, filepath.Join(part, newestFile)), profile.Suite,
		filepath.Join(part, "base.tar"))
	command := append([]string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", packagesEpoch), "mmdebstrap"}, args...)
	if err := b.runCommand(ctx, "env", append(command, b.sources()...)...); err != nil {
		return err
	}

	if err := os.RemoveAll(dir); err != nil {
		return err
	}

	return os.Rename(part, dir)
}

// kernel installs the kernel's packages. The initial RAM disk is built later.
func (b *builder) kernel(ctx context.Context, f profile.Flavour) error {
	dir, _, _, err := b.findStore()
	if err != nil {
		return err
	}

	debs, err := filepath.Glob(filepath.Join(dir, "kernel-"+f.Name, "*.deb"))
	if err != nil || len(debs) == 0 {
		return errors.Join(err, fmt.Errorf("no packages of kernel %s in %s", f.Name, dir))
	}

	release, err := os.OpenFile(b.pathOf("usr/lib/os-release"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = release.WriteString("VARIANT_ID=" + f.Name + "\n")
	if err = errors.Join(err, release.Close()); err != nil {
		return err
	}

	sort.Strings(debs)
	args := []string{"dpkg", "--no-triggers", "--path-exclude=/boot/System.map*"}
	for _, e := range f.Exclude {
		args = append(args, "--path-exclude=/lib/modules/*/"+e+"/*")
	}

	args = append(args, "-i")
	in := b.pathOf("var/cache/apt/kernel")
	for _, d := range debs {
		if err := copyFile(d, filepath.Join(in, filepath.Base(d)), 0o644); err != nil {
			return err
		}
		args = append(args, "/var/cache/apt/kernel/"+filepath.Base(d))
	}

	return b.chroot(ctx, args...)
}

// initrd creates /boot/initrd.img-VERSION with the profile's hooks.
func (b *builder) initrd(ctx context.Context) error {
	modules := newest(b.pathOf("lib/modules/*"))
	if modules == "" {
		return errors.New("no kernel in the tree")
	}
	v := filepath.Base(modules)
	return b.chroot(ctx, "mkinitramfs", "-o", "/boot/initrd.img-"+v, v)
}

// Kernel returns the paths of the kernel and its initial RAM disk in a tree.
func Kernel(dir string) (vmlinuz, initrd string, err error) {
	vmlinuz = newest(filepath.Join(dir, "boot/vmlinuz-*"))
	initrd = newest(filepath.Join(dir, "boot/initrd.img-*"))
	if vmlinuz == "" || initrd == "" {
		return "", "", fmt.Errorf("%s holds no kernel with an initial RAM disk", dir)
	}
	return vmlinuz, initrd, nil
}
