package main

import (
	"crypto/ed25519"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"saltern/image/bundle"
	"saltern/image/sbom"
	"saltern/internal/release/notes"
	"saltern/internal/release/sums"
)

// programs lists the names of a release's programs. Each architecture has a folder with all of
// them.
var programs = []string{"applianced", "salt-master", "salt-api", "salt"}

type finish struct {
	notes.Release
	epoch    int64
	programs string
	arch     []string
	from     sbom.Sources
	sign     string
}

func finishCommand() *cobra.Command {
	var r finish
	cmd := &cobra.Command{
		Use: "finish FOLDER", Short: "Write notes, list of contents, licenses and digests into a folder of " +
			"files", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return r.finishRelease(args[0]) },
	}

	f := cmd.Flags()
	f.StringVar(&r.Version, "version", "", "version of the release")
	f.StringVar(&r.Commit, "commit", "", "what git calls the source")
	f.Int64Var(&r.epoch, "epoch", 0, "time of the release, in seconds since 1970")
	f.StringVar(&r.programs, "programs", "bin/packages", "folder with a folder of programs for each kind of machine")
	f.StringSliceVar(&r.arch, "arch", []string{"amd64", "arm64"}, "kinds of machines")
	f.StringVar(&r.from.Modules, "modules", "", "go env GOMODCACHE")
	f.StringVar(&r.from.Go, "goroot", "", "go env GOROOT")
	f.StringVar(&r.sign, "sign", "", "private key (ed25519, PEM) that signs the digests")
	f.BoolVar(&r.Trial, "trial", false, "no release")

	return cmd
}

func (r *finish) finishRelease(dir string) error {
	r.Time = time.Unix(r.epoch, 0)
	var key ed25519.PrivateKey
	if r.sign != "" {
		text, err := os.ReadFile(r.sign)
		if err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		if key, err = bundle.PrivateKey(text); err != nil {
			return fmt.Errorf("%s: %w", r.sign, err)
		}
	}

	paths, err := r.builtPrograms()
	if err != nil {
		return err
	}

	list, err := sbom.Programs(paths)
	if err != nil {
		return err
	}

	list, licenses, err := sbom.Licenses(list, r.from)
	if err != nil {
		return err
	}

	doc, err := sbom.Document("saltern", r.Version, "Apache-2.0", r.Time, list)
	if err != nil {
		return err
	}

	for path, read := range map[*string]string{
		&r.Changelog:     "CHANGELOG.md",
		&r.Compatibility: "docs/compatibility.md",
	} {
		text, err := os.ReadFile(read)
		if err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		*path = string(text)
	}

	text, err := r.Text()
	if err != nil {
		return err
	}

	write := func(name string, b []byte) error { return os.WriteFile(filepath.Join(dir, name), b, 0o644) }
	err = errors.Join(write("RELEASE-NOTES.md", text), write("LICENSES.txt", licenses),
		write("saltern-"+r.Version+".spdx.json", doc))
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}

	return sums.Write(dir, key)
}

// builtPrograms returns the paths of all programs, and records the version of Go that built the
// programs. If different versions built them, it returns an error.
func (r *finish) builtPrograms() (paths []string, err error) {
	for _, arch := range r.arch {
		for _, p := range programs {
			path := filepath.Join(r.programs, arch, p)
			info, err := buildinfo.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("finish: %w; make packages-parts ARCH=%s builds the programs", err, arch)
			}
			if r.Go != "" && r.Go != info.GoVersion {
				return nil, fmt.Errorf("finish: %s is built with %s, others with %s; make clean, then try again",
					path, info.GoVersion, r.Go)
			}

			r.Go = info.GoVersion
			paths = append(paths, path)
		}
	}

	if len(paths) == 0 {
		return nil, errors.New("finish: no kind of machine is named")
	}

	return paths, nil
}
