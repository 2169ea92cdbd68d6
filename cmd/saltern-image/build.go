package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"saltern/image/box"
	"saltern/image/bundle"
	"saltern/image/disk"
	"saltern/image/ova"
	"saltern/image/profile"
	"saltern/image/sbom"
	"saltern/image/tree"
	"saltern/image/vhd"
	"saltern/internal/release"
)

// formats are the image formats, each with its kernel flavour.
var formats = map[string]string{"raw": "cloud", "qcow2": "cloud", "vhd": "cloud", "box": "cloud", "upgrade": "cloud",
	"ova": "generic", "box-virtualbox": "generic", "upgrade-ova": "generic"}

// unsigned is the warning about an image that trusts no key.
const unsigned = "no key (--sign, make image SIGN=): this image will accept no upgrade until a key is put " +
	"into /etc/saltern/upgrade-keys"

type build struct {
	common
	out     string
	formats []string
	level   int
	size    int
	option  string
	sign    string
	next    int // days within which the next version will be released; 0: no promise
}

func buildCommand() *cobra.Command {
	var b build
	cmd := &cobra.Command{
		Use: "build", Short: "Make disk images", Args: cobra.NoArgs,
		Long: `build makes, in the folder --out:

  saltern-cloud.raw       disk for EC2 (saltern-image ami) and whoever wants one
  saltern-cloud.qcow2     the same for QEMU, libvirt, OpenStack, Proxmox
  saltern-cloud.vhd       the same for Azure and Hyper-V, of fixed size
  saltern-libvirt.box     the same for Vagrant with libvirt
  saltern.ova             for VMware and VirtualBox, with the generic kernel
  saltern-virtualbox.box  the same for Vagrant with VirtualBox
  saltern-cloud.upgrade   new version for machines of the first two (--sign)
  saltern-generic.upgrade the same for those of the OVA
  *.spdx.json             what is inside

It runs as root, and mounts nothing outside of mount namespaces of its own.`,
	}

	b.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.out, "out", "dist", "folder of the results")
	f.StringSliceVar(&b.formats, "format", []string{"qcow2", "ova"},
		strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	f.IntVar(&b.level, "level", 9, "compression of the root file system, zstd 1 to 22")
	f.IntVar(&b.size, "size", 8, "size of the disk in GiB; the image takes only what is in it")
	f.StringVar(&b.option, "kernel-option", "", "more options for the kernel")
	f.StringVar(&b.sign, "sign", "",
		"private key (ed25519, PEM) that signs upgrades; its public half is trusted by the image")
	f.IntVar(&b.next, "next", 0,
		"promise that the next upgrade is there within so many days: nodes tell when it is not (0: no promise)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return b.buildImages(cmd) }

	return cmd
}

func (b *build) buildImages(cmd *cobra.Command) error {
	ctx := cmd.Context()
	for _, f := range b.formats {
		if formats[f] == "" {
			return fmt.Errorf("build: format %q: there are %s", f,
				strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
		}
		if strings.HasPrefix(f, "upgrade") && b.sign == "" {
			return errors.New("build: an upgrade needs --sign KEY (saltern-image keygen makes one)")
		}
	}

	o, cleanUp, err := b.options(cmd)
	defer cleanUp()
	if err != nil {
		return err
	}

	if b.sign != "" {
		if o.Keys, err = trusted(b.sign); err != nil {
			return err
		}
	}

	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return fmt.Errorf("build: %w", err)
	}

	began := time.Now()
	if o, err = b.withTime(cmd, o); err != nil {
		return err
	}

	if _, err := tree.Build(ctx, o); err != nil {
		return err
	}

	made, err := b.flavours(ctx, o)
	if err != nil {
		return err
	}

	for _, path := range made {
		fi, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("build: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%6.1f MB  %s\n", float64(fi.Size())/1e6, path)
	}

	fmt.Fprintf(cmd.OutOrStdout(), "%d s\n", int(time.Since(began).Seconds()))
	fmt.Fprintf(cmd.OutOrStdout(), "version %s of %s: upgrades compare that time\n", o.Version,
		o.Epoch.Format(time.RFC3339))
	if b.sign == "" {
		fmt.Fprintln(cmd.OutOrStdout(), unsigned)
	}

	return nil
}

// flavours builds the wanted formats of both kernel flavours in parallel, and returns the paths of
// the files. Compression takes most of the time and uses all processors. Steps that use one
// processor, such as unpacking a kernel, run while the other flavour compresses.
func (b *build) flavours(ctx context.Context, o tree.Options) ([]string, error) {
	names := []string{"cloud", "generic"}
	made := make([][]string, len(names))
	g, ctx := errgroup.WithContext(ctx)
	for i, name := range names {
		var want []string
		for _, f := range b.formats {
			if formats[f] == name {
				want = append(want, f)
			}
		}

		if len(want) == 0 {
			continue
		}

		g.Go(func() (err error) {
			made[i], err = b.flavour(ctx, o, name, want)
			return err
		})
	}

	err := g.Wait()
	return slices.Concat(made...), err
}

// manifest returns the description of an upgrade.
func (b *build) manifest(o tree.Options, flavour string) bundle.Manifest {
	m := bundle.Manifest{Version: o.Version, Flavour: flavour, Created: o.Epoch}
	if b.next > 0 {
		m.Next = o.Epoch.AddDate(0, 0, b.next)
	}
	return m
}

// flavour builds the wanted formats of one kernel flavour, and returns the paths of the files.
func (b *build) flavour(ctx context.Context, o tree.Options, name string, want []string) ([]string, error) {
	all, err := profile.Flavours()
	if err != nil {
		return nil, err
	}

	dir, err := tree.WithKernel(ctx, o, all[name])
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	list, err := sbom.Scan(dir, tree.Programs())
	if err != nil {
		return nil, err
	}

	doc, err := sbom.Document("saltern-"+name, o.Version, "", o.Epoch, list)
	if err != nil {
		return nil, err
	}

	made := []string{filepath.Join(b.out, "saltern-"+name+".spdx.json")}
	if err := os.WriteFile(made[0], doc, 0o644); err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}

	kernel, initrd, err := tree.Kernel(dir)
	if err != nil {
		return nil, err
	}

	root := filepath.Join(o.Work, name+".squashfs")
	raw := filepath.Join(o.Work, name+".raw")
	if slices.Contains(want, "raw") {
		raw = filepath.Join(b.out, "saltern-cloud.raw")
		made = append(made, raw)
	}

	began := time.Now()
	step := func(name string) {
		o.Log.Info(filepath.Base(dir), "step", name, "seconds", int(time.Since(began).Seconds()))
		began = time.Now()
	}

	if err := disk.Squashfs(ctx, dir, root, b.level, o.Epoch); err != nil {
		return nil, err
	}

	step("squashfs")
	err = disk.Build(ctx, disk.Options{
		Out:          raw,
		Root:         root,
		Kernel:       kernel,
		Initrd:       initrd,
		Size:         int64(b.size) << 30,
		KernelOption: b.option,
		Version:      o.Version,
		Epoch:        o.Epoch,
	})
	if err != nil {
		return nil, err
	}

	step("disk")
	for _, f := range want {
		if f == "raw" {
			continue
		}

		out, err := b.format(ctx, o, f, raw, b.manifest(o, name), []string{kernel, initrd, root})
		if err != nil {
			return nil, err
		}

		made = append(made, out)
		step(f)
	}

	return made, nil
}

// format writes one format of a raw disk, or an upgrade made from parts, and returns its path.
func (b *build) format(
	ctx context.Context,
	o tree.Options,
	format, raw string,
	m bundle.Manifest,
	parts []string,
) (out string, err error) {
	between := filepath.Join(o.Work, m.Flavour+"."+format)
	switch format {
	case "qcow2":
		out = filepath.Join(b.out, "saltern-cloud.qcow2")
		err = convertToQCOW2(ctx, raw, out)
	case "vhd":
		out = filepath.Join(b.out, "saltern-cloud.vhd")
		err = vhd.Build(out, raw, "saltern "+o.Version, o.Epoch)
	case "box":
		out = filepath.Join(b.out, "saltern-libvirt.box")
		if err = convertToQCOW2(ctx, raw, between); err == nil {
			err = box.Libvirt(out, between, b.size, o.Epoch)
		}
	case "ova":
		out = filepath.Join(b.out, "saltern.ova")
		err = ova.Build(ctx, archive(out, raw, o))
	case "box-virtualbox":
		out = filepath.Join(b.out, "saltern-virtualbox.box")
		if err = ova.Build(ctx, archive(between, raw, o)); err == nil {
			err = box.VirtualBox(out, between, o.Epoch)
		}
	default:
		out = filepath.Join(b.out, "saltern-"+m.Flavour+".upgrade")
		err = b.upgrade(out, m, parts)
	}

	return out, err
}

func archive(out, raw string, o tree.Options) ova.Options {
	return ova.Options{
		Out:       out,
		Raw:       raw,
		Name:      "saltern",
		Version:   o.Version,
		CPUs:      2,
		MemoryMiB: 2048,
		Epoch:     o.Epoch,
	}
}

// convertToQCOW2 compresses a disk for QEMU 5.1 or later.
func convertToQCOW2(ctx context.Context, raw, out string) error {
	cmd := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-o",
		"compression_type=zstd", raw, out)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu-img: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

func (b *build) upgrade(out string, m bundle.Manifest, files []string) error {
	text, err := os.ReadFile(b.sign)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	key, err := bundle.PrivateKey(text)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return errors.Join(bundle.Create(f, m, files, key), f.Close())
}

// common holds the flags that determine the content of an image.
type common struct {
	o  tree.Options
	at epoch
}

func (c *common) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.o.Programs, "programs", "bin", "folder with applianced, salt-master and salt")
	f.StringVar(&c.o.Work, "work", "", "folder for what lies between (default: a temporary one)")
	f.StringVar(&c.o.Cache, "cache", "", "folder that keeps packages between builds; remove it for newer packages")
	f.StringVar(&c.o.Mirror, "mirror", tree.DebianMirror, "Debian's archive")
	f.StringVar(&c.o.Security, "security-mirror", tree.DebianSecurity, "Debian's archive of security updates")
	f.StringVar(&c.o.Version, "version", release.Version(), "version of the image")
	f.BoolVar(&c.o.Python, "python", true, "with Salt's Python library, for templates in pillars")
	c.at.addFlags(cmd)
}

// epoch determines the time of all files inside an image: the time of the newest program or
// package. So two builds from the same parts give the same bytes.
type epoch struct {
	given  int64 // SOURCE_DATE_EPOCH, in seconds since 1970; 0: not set
	commit int64 // time of the programs' commit, in seconds since 1970
}

func (e *epoch) addFlags(cmd *cobra.Command) {
	given, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		given = 0
	}
	f := cmd.Flags()
	f.Int64Var(&e.given, "epoch", given,
		"time of everything inside, in seconds since 1970 (default: SOURCE_DATE_EPOCH, else that of the "+
			"commit or of the newest package)")
	f.Int64Var(&e.commit, "commit-time", 0, "time of the commit that the programs are made from, in seconds since 1970")
}

// buildTime returns the time of everything inside an image, and a text that names its origin. newest
// is the time of the newest package, or zero if there is none or it is unknown.
func (e *epoch) buildTime(newest time.Time) (at time.Time, from string, err error) {
	commit := time.Unix(e.commit, 0).UTC()
	switch {
	case e.given != 0:
		return time.Unix(e.given, 0).UTC(), "as given", nil
	case e.commit == 0 && newest.IsZero():
		return time.Time{}, "", errors.New("how new this is cannot be told: say the time of the commit " +
			"(--commit-time), or a time (--epoch, SOURCE_DATE_EPOCH)")
	case e.commit == 0 || newest.After(commit):
		return newest, "of the newest package", nil
	}
	return commit, "of the commit", nil
}

// options returns the options with all flags filled in, and a function that removes the temporary
// folder.
func (c *common) options(cmd *cobra.Command) (tree.Options, func(), error) {
	o := c.o
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	cleanUp := func() {}
	if o.Work == "" {
		dir, err := os.MkdirTemp("/var/tmp", "saltern-image-")
		if err != nil {
			return o, cleanUp, fmt.Errorf("work folder: %w", err)
		}
		o.Work, cleanUp = dir, func() { _ = os.RemoveAll(dir) }
	}

	for _, p := range []*string{&o.Work, &o.Cache} {
		if *p == "" {
			continue
		}

		abs, err := filepath.Abs(*p)
		if err != nil {
			return o, cleanUp, fmt.Errorf("work folder: %w", err)
		}

		*p = abs
	}

	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return o, cleanUp, fmt.Errorf("work folder: %w", err)
	}

	return o, cleanUp, nil
}

// withTime returns the options with the time of everything inside the image, and prints it.
func (c *common) withTime(cmd *cobra.Command, o tree.Options) (tree.Options, error) {
	newest, err := tree.Packages(cmd.Context(), o)
	if err != nil {
		return o, err
	}
	at, from, err := c.at.buildTime(newest)
	o.Epoch = at
	if err == nil {
		o.Log.Info("time of everything inside", "time", at.Format(time.RFC3339), "from", from)
	}
	return o, err
}
