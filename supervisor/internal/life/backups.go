package life

import (
	"errors"
	"fmt"

	"saltern/supervisor/api"
	"saltern/supervisor/backupplan"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/status"
)

// backups makes the backups of this node.
type backups struct{ *backupplan.Keeper }

// newBackups gives the backups of a node with these settings; nil: it makes none.
func newBackups(env child.Env, version string, document func() status.Document) (*backups, error) {
	if !env.Settings.Backup.On() {
		return nil, nil
	}
	k, err := backupplan.New(backupplan.Config{
		Settings:   env.Settings,
		ConfigPath: env.ConfigPath,
		Version:    version,
		Executable: env.Executable,
		Log:        env.Log,
		Now:        env.Now,
		Rank:       func() (place, of int, ready bool) { return document().ServingRank() },
	})
	return &backups{k}, err
}

// facts returns the backups' part of the status. b may be nil: this node makes none by itself.
func (b *backups) facts() (*status.Backup, []status.Finding) {
	if b == nil {
		return nil, nil
	}
	return b.State(), b.Findings()
}

// Backups returns how the scheduled backups are.
func (b *backups) Backups() (status.BackupList, error) { return b.List(), nil }

// MakeBackup begins a backup. It is refused with [api.ErrState] while one is under way.
func (b *backups) MakeBackup() error {
	err := b.Start()
	if errors.Is(err, backupplan.ErrRunning) {
		return fmt.Errorf("%w: %w", api.ErrState, err)
	}
	return err
}
