package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"saltern/image/profile"
	"saltern/image/tree"
)

// common are the flags that say what goes in.
type common struct {
	o      tree.Options
	kernel string
	epoch  int64
}

func (c *common) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.o.Programs, "programs", "bin", "folder with applianced, salt-master and salt")
	f.StringVar(&c.o.Work, "work", "", "folder for what lies between (default: a temporary one)")
	f.StringVar(&c.o.Cache, "cache", "", "folder that keeps packages between builds; remove it for newer packages")
	f.StringVar(&c.o.Mirror, "mirror", tree.DebianMirror, "Debian's archive")
	f.StringVar(&c.o.Security, "security-mirror", tree.DebianSecurity, "Debian's archive of security updates")
	f.StringVar(&c.o.Version, "version", "0.0.0", "version of the image")
	f.BoolVar(&c.o.Python, "python", true, "with Salt's Python library, for templates in pillars")
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		epoch = 1750000000
	}
	f.Int64Var(&c.epoch, "epoch", epoch, "time of everything inside, in seconds since 1970 (default: SOURCE_DATE_EPOCH)")
}

// options completes the flags; the function removes a temporary folder.
func (c *common) options(cmd *cobra.Command) (tree.Options, func(), error) {
	o := c.o
	o.Epoch = time.Unix(c.epoch, 0).UTC()
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	done := func() {}
	if o.Work == "" {
		dir, err := os.MkdirTemp("/var/tmp", "saltern-image-")
		if err != nil {
			return o, done, err
		}
		o.Work, done = dir, func() { _ = os.RemoveAll(dir) }
	}
	for _, p := range []*string{&o.Work, &o.Cache} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return o, done, err
		}
		*p = abs
	}
	return o, done, os.MkdirAll(o.Work, 0o755)
}

func flavour(name string) (*profile.Flavour, error) {
	if name == "none" {
		return nil, nil
	}
	all, err := profile.Flavours()
	if err != nil {
		return nil, err
	}
	f, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("kernel %q: there are cloud and generic, and none", name)
	}
	return &f, nil
}

func treeCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{
		Use: "tree", Short: "Make the root directory only, for containers and tests", Args: cobra.NoArgs,
		Long: "tree makes WORK/tree, which systemd-nspawn boots, and prints its path.",
	}
	c.add(cmd)
	cmd.Flags().StringVar(&c.kernel, "kernel", "none", "cloud, generic or none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.o.Work == "" {
			return fmt.Errorf("tree: say where: --work FOLDER")
		}
		o, done, err := c.options(cmd)
		defer done()
		if err != nil {
			return err
		}
		if o.Kernel, err = flavour(c.kernel); err != nil {
			return err
		}
		dir, err := tree.Build(cmd.Context(), o)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), dir)
		}
		return err
	}
	return cmd
}

func buildCommand() *cobra.Command { return &cobra.Command{Use: "build"} }
