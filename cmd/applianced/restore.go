package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"saltern/internal/durable"
	"saltern/supervisor/api"
	"saltern/supervisor/backup"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

func restoreCommand(f *flags) *cobra.Command {
	var identityFile, phraseFile string
	var check, force, history bool
	var trust backup.Trust
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup onto a fresh node",
		Long: `restore puts keys, options, states and pillars of a backup into place and
restarts the master. Set the node up first (applianced setup: form a new cluster
with the old name); further nodes join after the restore. Minions need no change
as long as they reach the node by the address they know.

The archive is read to its end before anything is changed. What a restore
replaces is kept in a directory beside it. A node that has accepted minions is
refused unless --force is given.

With --history only the history of runs is restored: what this node has already
stays, and what it lacks is added. Do so on a node of a cluster that is new, or was
away for long, with a backup --jobs of another node.

A backup for recipients must be signed by this node's own cluster, or by the key
whose fingerprint is given with --trust: "applianced backup" printed it, and it is
the same as in the cluster's join strings. Anybody else could have made it, and
what is in it runs as root on your minions. --unsigned takes one without a
signature, as versions before made them. A passphrase proves enough by itself.`,
		Example: `  applianced restore --check prod.age
  applianced restore prod.age
  applianced restore --identity key.txt prod.age
  applianced restore --history other-node.age`,
		Args: cobra.ExactArgs(1),
	}

	cmd.Flags().StringVarP(&identityFile, "identity", "i", "",
		"file with an age secret key; default: a passphrase is asked for")
	cmd.Flags().StringVar(&phraseFile, "passphrase-file", "",
		"file with the passphrase in its first line, instead of asking")
	cmd.Flags().BoolVar(&check, "check", false, "read the whole backup and restore nothing")
	cmd.Flags().BoolVar(&force, "force", false, "also when this node has accepted minions")
	cmd.Flags().BoolVar(&history, "history", false, "only the history of runs, added to that of this node")
	cmd.Flags().StringArrayVar(&trust.Signers, "trust", nil, "fingerprint of the key that signed the backup")
	cmd.Flags().BoolVar(&trust.Unsigned, "unsigned", false, "also a backup for recipients that nobody has signed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for i, f := range trust.Signers {
			trust.Signers[i] = strings.ToLower(strings.TrimSpace(f))
		}

		in, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		defer in.Close()

		ids, err := backupIdentities(cmd.Context(), identityFile, phraseFile)
		if err != nil {
			return err
		}
		if check {
			sum, _, err := backup.Inspect(cmd.Context(), in, backup.Limits{}, ids...)
			if err == nil {
				printBackup(cmd.OutOrStdout(), "whole", sum)
			}
			return err
		}

		if history {
			return f.restoreHistory(cmd, in, trust, ids)
		}
		return f.restore(cmd, in, force, trust, ids)
	}

	return cmd
}

func (f *flags) restore(cmd *cobra.Command, in io.Reader, force bool, trust backup.Trust, ids []age.Identity) error {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return fmt.Errorf("%w; set this node up first: applianced setup", err)
	}

	if err := backup.RequireVolume(s); err != nil {
		return fmt.Errorf("restore: %w", err)
	}

	if err := aloneInCluster(s); err != nil {
		return err
	}

	t := backup.Target{Settings: s, Force: force, Trust: trust, Stamp: restoreStamp()}
	sum, config, err := backup.Restore(cmd.Context(), in, t, ids...)
	if err != nil {
		return untrusted(err)
	}

	out := cmd.OutOrStdout()
	printBackup(out, "restored", sum)
	if config != nil {
		path := filepath.Join(s.DataDir, "appliance.yaml.restored")
		if _, err := layout.WriteFile(path, config, 0o600); err != nil {
			return err
		}
		fmt.Fprintf(out, "This node keeps its own appliance.yaml; that of the backup is in %s.\n", path)
	}

	if sum.Manifest.Cluster != s.Cluster {
		fmt.Fprintf(out, "Note: the backup is of cluster %s, this node is of %s.\n", sum.Manifest.Cluster, s.Cluster)
	}

	client := api.NewClient(f.apiSocket())
	restart := func() error { return client.Restart(cmd.Context(), "master") }
	if s.Peering.Enabled {
		if err := adoptRestoredKey(cmd.Context(), s); err != nil {
			return fmt.Errorf("restore: keys and files are in place, the table of nodes is not: %w", err)
		}
		restart = func() error { return client.Reload(cmd.Context()) }
	}

	return reportRestart(out, restart())
}

// restoreHistory adds the history of runs of a backup to that of this node.
func (f *flags) restoreHistory(cmd *cobra.Command, in io.Reader, trust backup.Trust, ids []age.Identity) error {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return fmt.Errorf("%w; set this node up first: applianced setup", err)
	}
	if err := backup.RequireVolume(s); err != nil {
		return fmt.Errorf("restore: %w", err)
	}

	t := backup.Target{Settings: s, HistoryOnly: true, Trust: trust, Stamp: restoreStamp()}
	sum, _, err := backup.Restore(cmd.Context(), in, t, ids...)
	if err != nil {
		return untrusted(err)
	}

	out := cmd.OutOrStdout()
	printBackup(out, "history restored", sum)
	return reportRestart(out, api.NewClient(f.apiSocket()).Restart(cmd.Context(), "master"))
}

func restoreStamp() string { return time.Now().UTC().Format("20060102T150405Z") }

// untrusted adds the next step to the error for a backup whose signer is not trusted.
func untrusted(err error) error {
	if other, ok := errors.AsType[*backup.SignerError](err); ok {
		return fmt.Errorf("%w; compare it with the one that was printed when the backup was made, and if it "+
			"is the same: --trust %s", err, other.Signer)
	}
	if errors.Is(err, backup.ErrUnsigned) {
		return fmt.Errorf("%w; if you know where it comes from: --unsigned", err)
	}
	return err
}

// reportRestart prints how the restart of the master went. err may be nil.
func reportRestart(out io.Writer, err error) error {
	switch {
	case errors.Is(err, api.ErrNotRunning):
		fmt.Fprintln(out, "applianced does not run; start it: systemctl start applianced")
	case err != nil:
		return fmt.Errorf("restart the master: %w; next: applianced restart master", err)
	default:
		fmt.Fprintln(out, "The master is being restarted; next: applianced status")
	}
	return nil
}

// aloneInCluster returns an error if other nodes use the cluster's key, because a restore would
// change this key.
func aloneInCluster(s *settings.Settings) error {
	if !s.Peering.Enabled {
		return nil
	}
	k, err := nodes.OpenKeeper(s.DataDir, s.SharedNodesDir())
	if err != nil {
		return err
	}
	t := k.Table()
	if err := t.Alone(s.Node); err != nil {
		return fmt.Errorf("restore: %w; restore onto a node that is alone, and let the others join again after it", err)
	}
	return nil
}

// adoptRestoredKey writes the restored key of the cluster to the table of nodes.
func adoptRestoredKey(ctx context.Context, s *settings.Settings) error {
	text, err := durable.Read(filepath.Join(s.SharedPKIDir(), "cluster.pem"), maxSecretFile)
	if err != nil {
		return err
	}
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return err
	}
	return nodes.Rekey(ctx, s.DataDir, s.SharedNodesDir(), s.Node, key.Hash)
}

func printBackup(w io.Writer, heading string, sum backup.Summary) {
	m := sum.Manifest
	fmt.Fprintf(w, "%s: backup of cluster %q, made %s on node %q by version %q: %d files, %s\n",
		heading, m.Cluster, m.Created.UTC().Format("2006-01-02 15:04 UTC"), m.Node, m.Version, sum.Files, status.Size(uint64(sum.Bytes)))
	if sum.Signer != "" {
		fmt.Fprintf(w, "signed by %s\n", sum.Signer)
	} else {
		fmt.Fprintln(w, "not signed: that a passphrase opens it has to be proof enough")
	}
}
