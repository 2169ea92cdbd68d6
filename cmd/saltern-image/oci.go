package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"saltern/image/container"
	"saltern/image/oci"
	"saltern/release"
)

func ociCommand() *cobra.Command {
	var o container.Options
	var at epoch
	var out, archive string
	cmd := &cobra.Command{
		Use: "oci", Short: "Make the container image", Args: cobra.NoArgs,
		Long: `oci makes the container image with the master, its tools and salt-api for several
kinds of machines, as an OCI image layout in the folder --out, which must be empty
or not there. It runs as any user.`,
		Example: `  saltern-image oci --programs bin/packages --arch amd64,arm64 --out dist/oci
  skopeo copy --all oci:dist/oci:saltern:1.2.3 docker://registry.example.net/saltern:1.2.3`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Programs, "programs", "bin/packages", "folder with a folder of programs for each kind of machine")
	f.StringSliceVar(&o.Arch, "arch", []string{"amd64", "arm64"}, "kinds of machines")
	f.StringVar(&o.Certificates, "certificates", "/usr/share/ca-certificates/mozilla", "folder with the certificates of public authorities, *.crt")
	f.StringVar(&o.Version, "version", release.Version(), "version of the image, which is called saltern:VERSION in the layout")
	f.StringVar(&out, "out", "dist/oci", "folder of the layout")
	f.StringVar(&archive, "archive", "", "also write the layout as one file (oci-archive)")
	at.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Created = at.time()
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
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: image %s for %v\n", out, o.Version, o.Arch)
		return err
	}
	return cmd
}
