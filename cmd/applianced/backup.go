package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/release"
	"saltern/internal/room"
	"saltern/supervisor/backup"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

func backupCommand(f *flags) *cobra.Command {
	var out, phraseFile, recipientsFile, from string
	var recipients []string
	var jobs bool
	cmd := &cobra.Command{
		Use:   "backup --output FILE",
		Short: "Write an encrypted backup: keys, options, states and pillars; show the scheduled ones",
		Long: `backup writes what cannot be made again: the keys of the cluster and of its
minions, the administrator's options, states and pillars, and with --jobs the job
cache and the history of runs. One backup of any node is enough for the cluster.

It is encrypted with age (https://age-encryption.org): for recipients, whose
public keys are not secret, or with a passphrase, which is asked for. Whoever has
the passphrase or the key of a recipient has the keys of your minions' master.

It is signed by the cluster's key. Write down the key's fingerprint that is
printed: a fresh machine restores a backup for recipients only if it is told it.

Nodes make backups by themselves when appliance.yaml says so (backup); "applianced
backup status" shows how those are.`,
		Example: `  applianced backup -o /mnt/backup/prod.age
  applianced backup -o - --recipient age1... | ssh store 'cat > prod.age'`,
		Args: cobra.NoArgs,
	}

	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, - for standard output")
	cmd.Flags().StringArrayVarP(&recipients, "recipient", "r", nil, "age public key; may be given several times")
	cmd.Flags().StringVarP(&recipientsFile, "recipients-file", "R", "", "file with age public keys, one a line")
	cmd.Flags().StringVar(&phraseFile, "passphrase-file", "",
		"file with the passphrase in its first line, instead of asking")
	cmd.Flags().BoolVar(&jobs, "jobs", false, "the job cache and the history of runs too")
	cmd.Flags().StringVar(&from, "from", "",
		"read this copy of the storage instead: this node's brick, when the shared volume is lost")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if out == "" {
			return misused("backup: --output FILE is needed, or --output - for standard output")
		}

		s, err := settings.Load(f.config, hostname())
		if err != nil {
			return err
		}

		to, err := backupRecipients(cmd.Context(), recipients, recipientsFile, phraseFile)
		if err != nil {
			return err
		}

		o := backup.Options{
			Settings:   s,
			ConfigPath: f.config,
			Version:    release.Version(),
			Now:        time.Now(),
			Jobs:       jobs,
			From:       from,
		}

		if jobs && from == "" {
			syncHistory(cmd, s)
		}

		if out == "-" {
			sum, err := backup.Write(cmd.Context(), cmd.OutOrStdout(), o, to...)
			for _, l := range sum.Skipped {
				fmt.Fprintln(cmd.ErrOrStderr(), "left out:", l)
			}

			if err == nil && sum.Signer != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "signed by %s\n", sum.Signer)
			}

			return err
		}

		sum, err := writePrivate(out,
			func(w io.Writer) (backup.Summary, error) { return backup.Write(cmd.Context(), w, o, to...) })
		if err != nil {
			return err
		}

		for _, l := range sum.Skipped {
			fmt.Fprintln(cmd.ErrOrStderr(), "left out:", l)
		}

		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files, %s; to check it: applianced restore --check %s\n", out,
			sum.Files, status.Size(uint64(sum.Bytes)), out)
		if sum.Signer != "" {
			fmt.Fprintf(cmd.OutOrStdout(),
				"signed by %s; write it down: a fresh machine is told it (applianced restore --trust)\n",
				sum.Signer)
		}

		return nil
	}

	cmd.AddCommand(backupPlanCommands(f)...)
	return cmd
}

// syncTakes is how long a backup waits for the master's disk.
const syncTakes = 30 * time.Second

// syncHistory has the master write to the disk what a backup of the history would lack. It prints why that
// failed, since the rest of the backup is worth having.
func syncHistory(cmd *cobra.Command, s *settings.Settings) {
	ctx, cancel := context.WithTimeout(cmd.Context(), syncTakes)
	defer cancel()
	account, err := layout.FindAccount(s.Users.Master)
	if err == nil {
		client := control.NewClient(filepath.Join(s.MasterSockDir(), control.Socket), account.UID)
		err = client.SyncHistory(ctx)
	}

	stopped := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) // it wrote them as it stopped
	if err != nil && !stopped {
		fmt.Fprintf(cmd.ErrOrStderr(), "left out: the newest runs of the history, if the master has not written them yet: %v\n", err)
	}
}

// writePrivate writes a file that only the account of this process may read. It creates either the
// complete file or none.
func writePrivate(path string, write func(io.Writer) (backup.Summary, error)) (sum backup.Summary, err error) {
	watch, err := room.Guard(filepath.Dir(path), room.Usual())
	if err != nil {
		return sum, fmt.Errorf("backup: %w", err)
	}
	_, err = durable.Rename(path, func(f *os.File) (err error) {
		sum, err = write(watch.Writer(f))
		return err
	})
	return sum, err
}
