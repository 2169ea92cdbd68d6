package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"saltern/glusterctl/cert"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

func storageTLSCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "tls [on]",
		Short: "Say whether the volume's connections use TLS, and what turning it on takes",
		Long: `Whether the connections of the shared volume use TLS is decided when the
cluster is formed (storage.tls). tls says whether it is on and until when this
node's certificate is good; tls on explains what turning it on later takes. It
changes nothing.

Exit codes: 0 TLS is on, 1 cannot tell, 2 it is off.`,
		Example:   "  applianced storage tls\n  applianced storage tls on",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"on"},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := settings.Load(f.config, hostname())
			if err != nil {
				return err
			}
			if !s.OnVolume() {
				return fmt.Errorf("storage.kind in %s is %s: there is no volume", f.config, s.Storage.Kind)
			}

			k, err := nodes.OpenKeeper(s.DataDir, "")
			if err != nil {
				return err
			}

			t := k.Table()
			return tellTLS(cmd.OutOrStdout(), s, &t, len(args) == 1)
		},
	}
}

// tellTLS prints whether storage TLS is on, or is being turned on.
func tellTLS(out io.Writer, s *settings.Settings, t *nodes.Table, on bool) error {
	if t.Version == 0 {
		return fmt.Errorf("this node has no table of nodes in %s: it belongs to no cluster yet; next: applianced setup",
			s.DataDir)
	}
	if !t.StorageTLS {
		fmt.Fprintln(out, "TLS is off: the firewall and the list of the nodes' addresses protect the volume.")
		if on {
			fmt.Fprint(out, turningOn)
		}
		return exitError(exitUndone)
	}

	end, err := storage.CertificateEnds()
	if err != nil {
		return fmt.Errorf("TLS is on, and this node's certificate in %s cannot be read: %w; next: applianced restart",
			cert.Dir, err)
	}

	fmt.Fprintf(out, "TLS is on. This node's certificate is good until %s; its authority is in %s.\n",
		end.UTC().Format(time.DateOnly), filepath.Join(s.DataDir, "storage", "tls"))
	return nil
}

const turningOn = `
It cannot be turned on while the volume runs: glusterds that use TLS and those
that do not cannot talk to each other, and neither can clients and copies. What is
safe is to form the cluster anew:

  1. applianced backup --output FILE   on one node; keep the file elsewhere
  2. applianced reset                  on every node
  3. storage: {tls: true}              in appliance.yaml of the first node
  4. applianced setup                  the first node forms the cluster
  5. applianced restore FILE           on the first node
  6. applianced setup                  the others join

Minions keep their keys and need nothing.
`
