package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"saltern/pause"
	"saltern/supervisor/firewall"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

func firewallCommand(f *flags) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "firewall", Short: "Let the cluster's nodes through the system's firewall", Args: cobra.NoArgs,
		Example: "  applianced firewall --dry-run",
		Long: `firewall puts the addresses of the cluster's nodes into the sets "peers" and
"peers6" of the table "inet saltern" of nftables, and takes all others out, and the port
of Salt's API, while this node serves it, into the set "api". The appliance runs it when
the table of nodes or that port changes. It changes no rule.`,
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what nft would be told")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings.Load(f.config, hostname())
		if err != nil {
			d := settings.Default(hostname())
			s = &d
		}
		ctx, stop := context.WithTimeout(cmd.Context(), 30*time.Second)
		defer stop()
		if !dry {
			if err := nodes.Seen(s.DataDir); err != nil {
				_ = pause.For(ctx, 10*time.Second) // systemd starts this again at once
				return err
			}
		}
		k, err := nodes.OpenKeeper(s.DataDir, "")
		if err != nil {
			return err
		}
		peers, err := firewall.Peers(k.Table())
		if err != nil {
			return err
		}
		if dry {
			_, err = cmd.OutOrStdout().Write([]byte(firewall.Script(peers) + firewall.PortScript(firewall.ReadPort(s.DataDir))))
			return err
		}
		if err := firewall.Apply(ctx, peers); err != nil {
			return err
		}
		return firewall.Open(ctx, firewall.ReadPort(s.DataDir))
	}
	return cmd
}
