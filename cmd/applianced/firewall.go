package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/pause"
	"saltern/supervisor/firewall"
	"saltern/supervisor/guards"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// firewallTakes bounds the time to change the sets of addresses. ownRulesTake bounds the time to
// apply the administrator's own rules, which may wait for a name server.
const (
	firewallTakes = 30 * time.Second
	ownRulesTake  = firewall.OwnRulesTake
)

func firewallCommand(f *flags) *cobra.Command {
	var dry bool
	var own, report, note string
	cmd := &cobra.Command{
		Use:     "firewall",
		Short:   "Let the cluster's nodes through the system's firewall",
		Args:    cobra.NoArgs,
		Example: "  applianced firewall --dry-run",
		Long: `firewall puts the addresses of the cluster's nodes into the sets "peers" and
"peers6" of the table "inet saltern" of nftables, and takes all others out, and the port
of Salt's API, while this node serves it, into the set "api". The appliance runs it when
the table of nodes or that port changes, and every minute. It changes no rule of the
system's.

On the image it also fills the chain "own" of that table with the files that nft accepts
of the directory that --own names, and writes down what is wrong: applianced status
shows it.`,
	}

	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what nft would be told")
	cmd.Flags().StringVar(&own, "own", "", "`directory` with rules of the administrator's own; needs --report")
	cmd.Flags().StringVar(&report, "report", "", "`directory` for what is found")
	cmd.Flags().StringVar(&note, "note-rules", "", "only write into this `directory` what the rules are now")
	_ = cmd.Flags().MarkHidden("note-rules")
	cmd.MarkFlagsRequiredTogether("own", "report")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "report", "note-rules")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := context.WithTimeout(cmd.Context(), firewallTakes+ownRulesTake)
		defer stop()
		if note != "" {
			return guards.NoteRules(ctx, note)
		}

		dir := dataDir(f)
		if !dry {
			if err := nodes.Seen(dir); err != nil {
				_ = pause.For(ctx, 10*time.Second) // wait, because systemd restarts this process as soon as it exits
				return err
			}
		}

		peers, err := peersOf(dir)
		if err != nil {
			return err
		}

		port := firewall.ReadPort(dir)

		switch {
		case dry:
			_, err := cmd.OutOrStdout().Write([]byte(firewall.Script(peers) + firewall.PortScript(port)))
			return err
		case report != "":
			return guards.Firewall{Dir: report, Own: own, Peers: peers, Port: port}.Keep(ctx)
		}

		if err := firewall.Apply(ctx, peers); err != nil {
			return err
		}

		return firewall.Open(ctx, port)
	}

	return cmd
}

// dataDir returns the node's data directory, or the default before the node is set up.
func dataDir(f *flags) string {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return settings.Default(hostname()).DataDir
	}
	return s.DataDir
}

// peersOf returns the addresses of peers in the table of nodes in a data directory. Before the
// set-up there is no table and no peer.
func peersOf(dir string) ([]netip.Addr, error) {
	k, err := nodes.OpenKeeper(dir, "")
	if err != nil {
		return nil, err
	}
	return firewall.Peers(k.Table())
}

// guardsCommand returns the verb that examines the machine's protections besides the firewall. A
// systemd timer starts this verb.
func guardsCommand() *cobra.Command {
	var report string
	cmd := &cobra.Command{
		Use:    "guards",
		Short:  "Look at what guards the machine (not for people)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := guards.Machine().Look(cmd.Context())
			return guards.Write(report, guards.SystemFile, guards.Report{Findings: found})
		},
	}
	cmd.Flags().StringVar(&report, "report", guards.Dir, "`directory` for what is found")
	return cmd
}
