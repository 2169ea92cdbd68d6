package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/durable"
	"saltern/internal/release"
	"saltern/supervisor/api"
	"saltern/supervisor/settings"
	"saltern/supervisor/support"
)

// bundlesKept is how many support bundles are kept in the data directory.
const bundlesKept = 3

func supportCommand(f *flags) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Write a support bundle, without secrets",
		Long: `support writes one archive with what is needed to find out why a node does what
it does: status, configuration, logs, lists of files and what the system says.

Keys, tokens, states, pillars, jobs and minions' data are never read into it, and
passwords and secrets are taken out of the rest. Names of minions and nodes,
addresses and options stay: look into it before you hand it on.`,
		Example: "  sudo applianced support\n  sudo applianced support --output /tmp/bundle.tar.gz\n  sudo " +
			"applianced support --output - | tar tz",
		Args: cobra.NoArgs,
	}

	cmd.Flags().StringVarP(&out, "output", "o", "",
		"file to write, - for standard output (default: a new file in the data directory)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if out == "-" {
			return support.Write(cmd.Context(), cmd.OutOrStdout(), f.supportSource())
		}

		path, err := f.writeBundle(cmd.Context(), out)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}

		return err
	}

	return cmd
}

// supportSource returns the source of a support bundle about this node. If the configuration is not
// usable, it uses the defaults.
func (f *flags) supportSource() support.Source {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		d := settings.Default(hostname())
		d.Storage.Path = filepath.Join(d.DataDir, "cluster")
		s = &d
	}
	return support.Source{
		Settings:   s,
		ConfigPath: f.config,
		Version:    release.Version(),
		Now:        time.Now(),
		Status:     api.NewClient(f.apiSocket()).Status,
	}
}

// writeBundle writes a bundle to path and returns the file's name. If path is "", it writes to a
// new file in the data directory. Only the account of this process may read the file.
func (f *flags) writeBundle(ctx context.Context, path string) (string, error) {
	src := f.supportSource()
	own := path == ""
	if own {
		dir := filepath.Join(src.Settings.DataDir, "support")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("support bundle: %w", err)
		}
		path = filepath.Join(dir, "support-"+src.Settings.Node+"-"+src.Now.UTC().Format("20060102T150405Z")+".tar.gz")
	}

	if _, err := durable.Rename(path, func(f *os.File) error { return support.Write(ctx, f, src) }); err != nil {
		return "", fmt.Errorf("support bundle: %w", err)
	}

	if own {
		keepNewest(filepath.Join(filepath.Dir(path), "support-*.tar.gz"), bundlesKept)
	}

	return path, nil
}

// keepNewest removes the files that match pattern, except the n with the last names.
func keepNewest(pattern string, n int) {
	names, _ := filepath.Glob(pattern)
	for _, old := range names[:max(0, len(names)-n)] {
		_ = os.Remove(old)
	}
}
