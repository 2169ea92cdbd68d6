package tree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"saltern/image/profile"
)

// sources are the archives as lines of sources.list.
func (b *builder) sources() []string {
	return []string{
		fmt.Sprintf("deb %s %s main", b.Mirror, profile.Suite),
		fmt.Sprintf("deb %s %s-updates main", b.Mirror, profile.Suite),
		fmt.Sprintf("deb %s %s-security main", b.Security, profile.Suite),
	}
}

// unsafeIO has dpkg not wait for the disk, while the tree is made.
const unsafeIO = "force-unsafe-io"

// leftOut are documents that nobody reads on an appliance; licences stay.
var leftOut = []string{"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/lintian/*"}

// store gives the folder of the packages, which is named by the hash of its
// recipe. Without kernels it is one with them, if there is one already.
func (b *builder) store() (dir string, list []string, flavours map[string]profile.Flavour, err error) {
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
	if dir = b.storeOf(list, flavours); b.NoKernels {
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
	recipe := strings.Join([]string{strings.Join(list, ","), strings.Join(b.sources(), "\n"), strings.Join(leftOut, "\n"), strings.Join(kernels, ","),
		fmt.Sprint(b.Epoch.Unix())}, "\n\n")
	sum := sha256.Sum256([]byte(recipe))
	base := b.Cache
	base = cmp.Or(base, b.Work)
	return filepath.Join(base, "packages-"+hex.EncodeToString(sum[:8]))
}

// packages unpacks the packages into the tree. They come from a tar file that
// is kept in Cache under the hash of its recipe, with the kernels' packages
// beside it; remove the cache for newer ones.
func (b *builder) packages(ctx context.Context) error {
	dir, list, flavours, err := b.store()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "base.tar")); err != nil {
		if err := b.debstrap(ctx, dir, list, flavours); err != nil {
			return err
		}
	}
	b.tellAge(dir)
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return b.run(ctx, "tar", "-xpf", filepath.Join(dir, "base.tar"), "-C", b.dir, "--numeric-owner", "--xattrs", "--xattrs-include=*")
}

// oldPackages is when those kept in the cache lack security updates for sure.
const oldPackages = 7 * 24 * time.Hour

// tellAge says how old the packages are: nothing else would.
func (b *builder) tellAge(dir string) {
	fi, err := os.Stat(filepath.Join(dir, "base.tar"))
	if err != nil {
		return // tar says why
	}
	age := time.Since(fi.ModTime())
	if days := int(age.Hours() / 24); age >= oldPackages {
		b.Log.Warn("the packages are from the cache and old: security updates since then are missing; remove the cache for newer ones", "days", days, "cache", dir)
	} else {
		b.Log.Info("packages fetched from Debian's archives", "days", days, "cache", dir)
	}
}

// debstrap fetches everything into dir, which appears at once or not at all.
func (b *builder) debstrap(ctx context.Context, dir string, list []string, flavours map[string]profile.Flavour) error {
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	variant := "minbase"
	if b.container {
		variant = "essential" // nobody installs anything in a container
	}
	args := []string{"--mode=root", "--variant=" + variant, "--format=tar", "--include=" + strings.Join(list, ","),
		"--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"3\""}
	for _, o := range leftOut {
		args = append(args, "--dpkgopt="+o)
	}
	// Nobody needs half a tree after a power cut.
	args = append(args, "--dpkgopt="+unsafeIO, `--customize-hook=sed -i /`+unsafeIO+`/d "$1"/etc/dpkg/dpkg.cfg.d/*mmdebstrap`)
	for _, f := range flavours {
		debs := filepath.Join(part, "kernel-"+f.Name)
		if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
			return err
		}
		args = append(args, "--customize-hook=APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get -q -y --download-only -o Dir::Cache::archives='"+debs+"' -o APT::Sandbox::User=root install "+f.Package+" "+strings.Join(f.More, " "))
	}
	args = append(args, profile.Suite, filepath.Join(part, "base.tar"))
	if err := b.run(ctx, "mmdebstrap", append(args, b.sources()...)...); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// kernel installs the kernel's packages; the initial RAM disk comes later.
func (b *builder) kernel(ctx context.Context, f profile.Flavour) error {
	dir, _, _, err := b.store()
	if err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "kernel-"+f.Name, "*.deb"))
	if err != nil || len(debs) == 0 {
		return errors.Join(err, fmt.Errorf("no packages of kernel %s in %s", f.Name, dir))
	}
	release, err := os.OpenFile(b.path("usr/lib/os-release"), os.O_APPEND|os.O_WRONLY, 0)
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
	in := b.path("var/cache/apt/kernel")
	for _, d := range debs {
		if err := copyFile(d, filepath.Join(in, filepath.Base(d)), 0o644); err != nil {
			return err
		}
		args = append(args, "/var/cache/apt/kernel/"+filepath.Base(d))
	}
	return b.chroot(ctx, args...)
}

// initrd makes /boot/initrd.img-VERSION with the profile's hooks.
func (b *builder) initrd(ctx context.Context) error {
	modules := newest(b.path("lib/modules/*"))
	if modules == "" {
		return errors.New("no kernel in the tree")
	}
	v := filepath.Base(modules)
	return b.chroot(ctx, "mkinitramfs", "-o", "/boot/initrd.img-"+v, v)
}

// Kernel gives the paths of the kernel and its initial RAM disk in a tree.
func Kernel(dir string) (vmlinuz, initrd string, err error) {
	vmlinuz, initrd = newest(filepath.Join(dir, "boot/vmlinuz-*")), newest(filepath.Join(dir, "boot/initrd.img-*"))
	if vmlinuz == "" || initrd == "" {
		return "", "", fmt.Errorf("%s holds no kernel with an initial RAM disk", dir)
	}
	return vmlinuz, initrd, nil
}
