package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/backupplan"
	"saltern/supervisor/status"
)

// backupPlanCommands returns the verbs about scheduled backups.
func backupPlanCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{backupStatusCommand(f), backupListCommand(f), backupNowCommand(f), backupHelperCommand()}
}

func backupStatusCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the scheduled backups are",
		Args:  cobra.NoArgs,
		Long: `status shows the newest of the backups that the nodes make by themselves (backup in
appliance.yaml), when the next one is due, who makes one now, and why the last try
came to nothing.

It exits with 0 when the last try gave a backup, 2 when not, 1 when it cannot be told.`,
		Example: "  applianced backup status\n  applianced backup status --json | jq .last.time",
	}

	return answering[status.BackupList]{
		json: "print it for machines",
		ask: func(cmd *cobra.Command, _ []string) (status.BackupList, error) {
			return f.client().Backups(cmd.Context())
		},
		print: func(cmd *cobra.Command, list status.BackupList) error {
			return writeBackupStatus(cmd.OutOrStdout(), list, time.Now())
		},
		code: func(list status.BackupList) int {
			return degradedIf(list.Failure != nil || list.Last == nil)
		},
	}.verb(cmd)
}

func backupListCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the scheduled backups in the directory of this node",
		Args:  cobra.NoArgs,
		Long: `list shows the backups that the nodes have made by themselves in the directory that
appliance.yaml of this node names (backup.to), the oldest first. Other files there are
neither listed nor ever removed.`,
		Example: `  applianced backup list
  applianced restore --check -i key.txt "$(applianced backup list --json | jq -r '.[-1] | .to + "/" + .name')"`,
	}

	return answering[[]status.BackupFile]{
		json: "print the list for machines",
		ask: func(cmd *cobra.Command, _ []string) ([]status.BackupFile, error) {
			list, err := f.client().Backups(cmd.Context())
			if err == nil && list.Unread != "" {
				err = fmt.Errorf("list the backups: %s", printable.Clean(list.Unread))
			}
			return list.Files, err
		},
		print: func(cmd *cobra.Command, files []status.BackupFile) error {
			return writeBackups(cmd.OutOrStdout(), files)
		},
	}.verb(cmd)
}

func backupNowCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "now",
		Short: "Make a scheduled backup now, on this node",
		Args:  cobra.NoArgs,
		Long: `now has this node make a backup as appliance.yaml says (backup), and waits until it
is there. Ctrl-C does not stop it.`,
		Example: "  applianced backup now",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := f.client()
			before, err := c.Backups(cmd.Context())
			if err == nil {
				err = c.MakeBackup(cmd.Context())
			}

			if err != nil {
				return err
			}

			list, err := backupMade(cmd.Context(), c, before.Tries)
			switch {
			case err != nil:
				return err
			case list.Result != "":
				return fmt.Errorf("make a backup: %s", printable.Clean(list.Result))
			case list.Last == nil:
				return errors.New("the backup was made, but is not known yet: applianced backup status")
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s: %d files, %s\n", printable.Clean(list.Last.To),
				printable.Clean(list.Last.Name), list.Last.Files,
				status.Size(uint64(max(list.Last.Bytes, 0))))
			return err
		},
	}
}

// backupMade waits until this node has made one more backup attempt than tries, and returns the
// list of backups after that attempt.
func backupMade(ctx context.Context, c *api.Client, tries int) (status.BackupList, error) {
	for {
		list, err := c.Backups(ctx)
		if err != nil || list.Tries != tries && !list.Running {
			return list, err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return list, errors.New("it goes on without this terminal: applianced backup status")
		}
	}
}

func writeBackupStatus(w io.Writer, l status.BackupList, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "Made\t%s, to %s, %d are kept\n", printable.Clean(l.Every), printable.Clean(l.To), l.Keep)
	switch b := l.Last; {
	case b != nil:
		fmt.Fprintf(tw, "Last\t%s (%s ago) by %s: %s, %d files, %s\n", backupTime(b.Time),
			status.Age(now.Sub(b.Time)), printable.Clean(b.Node),
			printable.Clean(b.Name), b.Files, status.Size(uint64(max(b.Bytes, 0))))
		fmt.Fprintf(tw, "Signed by\t%s\n", printable.Clean(b.Signer))
	default:
		fmt.Fprintln(tw, "Last\tnone yet")
	}

	if f := l.Failure; f != nil {
		fmt.Fprintf(tw, "Failed\t%s on %s: %s\n", backupTime(f.Time), printable.Clean(f.Node), printable.Clean(f.Cause))
	}

	switch m := l.Making; {
	case m != nil:
		fmt.Fprintf(tw, "Now\t%s makes one since %s\n", printable.Clean(m.Node), backupTime(m.Since))
	case !l.Next.IsZero():
		fmt.Fprintf(tw, "Next\t%s\n", backupTime(l.Next))
	}

	if l.Unread != "" {
		fmt.Fprintf(tw, "Not seen\t%s\n", printable.Clean(l.Unread))
	} else {
		fmt.Fprintf(tw, "There\t%d backups\n", len(l.Files))
	}

	return tw.Flush()
}

func backupTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func writeBackups(w io.Writer, files []status.BackupFile) error {
	if len(files) == 0 {
		_, err := fmt.Fprintln(w, "There is none yet; next: applianced backup now")
		return err
	}

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tNODE\tSIZE\tFILES\tNAME")
	for _, b := range files {
		note := ""
		if b.Missing {
			note = " (is missing)"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s%s\n", backupTime(b.Time), printable.Clean(b.Node),
			status.Size(uint64(max(b.Bytes, 0))), b.Files, printable.Clean(b.Name), note)
	}

	return tw.Flush()
}

// backupHelperCommand returns the verb that touches the storage and the directory for backups. The
// supervisor starts this verb.
func backupHelperCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "helper",
		Short:              "Make backups on behalf of the supervisor (not for people)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := backupplan.Main(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(),
				cmd.ErrOrStderr()); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
}
