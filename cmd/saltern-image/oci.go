package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"saltern/image/container"
	"saltern/image/oci"
	"saltern/image/tree"
	"saltern/internal/release"
)

func ociCommand() *cobra.Command {
	var o container.Options
	var c common
	var out, archive string
	var python bool
	cmd := &cobra.Command{
		Use:   "oci",
		Short: "Make the container image",
		Args:  cobra.NoArgs,
		Long: `oci makes the container image with the master, its tools and salt-api for several
kinds of machines, as an OCI image layout in the folder --out, which must be empty
or not there. It runs as any user.

With --python the image has Debian's Python, Salt's library, git and gpg below that,
for the kind of machine on which it is made, and is called saltern:VERSION-python. That
needs root, mmdebstrap and Debian 12.`,
		Example: `  saltern-image oci --programs bin/packages --arch amd64,arm64 --out dist/oci
  saltern-image oci --programs bin/packages --python --out dist/oci-python
  skopeo copy --all oci:dist/oci:saltern:1.2.3 docker://registry.example.net/saltern:1.2.3`,
	}

	f := cmd.Flags()
	f.BoolVar(&python, "python", false, "the image with Python")
	f.StringVar(&c.o.Cache, "cache", "",
		"with --python: folder that keeps packages between builds; remove it for newer packages")
	f.StringVar(&o.Programs, "programs", "bin/packages", "folder with a folder of programs for each kind of machine")
	f.StringSliceVar(&o.Arch, "arch", []string{"amd64", "arm64"}, "kinds of machines")
	f.StringVar(&o.Certificates, "certificates", "/usr/share/ca-certificates/mozilla",
		"folder with the certificates of public authorities, *.crt")
	f.StringVar(&o.Version, "version", release.Version(),
		"version of the image, which is called saltern:VERSION in the layout")
	f.StringVar(&out, "out", "dist/oci", "folder of the layout")
	f.StringVar(&archive, "archive", "", "also write the layout as one file (oci-archive)")
	c.at.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Created, _, err = c.at.buildTime(time.Time{}); err != nil {
			return err
		}

		if python {
			if !cmd.Flags().Changed("arch") {
				o.Arch = []string{runtime.GOARCH}
			}

			if !slices.Equal(o.Arch, []string{runtime.GOARCH}) {
				return fmt.Errorf("oci: the image with Python is made for %s here: leave --arch out", runtime.GOARCH)
			}

			c.o.Mirror, c.o.Security = tree.DebianMirror, tree.DebianSecurity
			options, cleanUp, err := c.options(cmd)
			defer cleanUp()

			if err != nil {
				return err
			}

			options.Epoch = o.Created
			if o.Below, err = tree.Container(cmd.Context(), options); err != nil {
				return err
			}
		}

		img, err := container.Image(o)
		if err != nil {
			return err
		}

		if err := oci.Write(out, img); err != nil {
			return err
		}

		if archive != "" {
			if err := oci.Archive(archive, out, o.Created); err != nil {
				return err
			}
		}

		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: image %s for %v\n", out, img.Ref, o.Arch)
		return err
	}

	return cmd
}
