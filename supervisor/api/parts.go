package api

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/history"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/upgrade/rollout"
)

// Parts are what the API serves, each given by its owner. What a node does not
// have stays nil, and is refused with the reason; only Node is always there.
type Parts struct {
	Node     Node
	Services Services
	Logs     Logs
	Events   Events
	Setup    Setup
	Cluster  Cluster
	Recovery Recovery
	Virtual  Virtual
	Turns    Turns
	Reset    Reset
	Minions  Minions
	LogIns   LogIns
	Storage  StorageNode
	Options  Options
	Backups  Backups
	Upgrades Upgrades
	Git      Git
	Schedule Schedule
	Tools    Tools
	Audit    Audit
	// Settings are the node's; nil: it has none. Faults of its shared storage are worded
	// by them.
	Settings *settings.Settings
	// Record is where what callers ask for is written down; nil: nowhere.
	Record *audit.Log
}

// filled puts the refusals into the places that are empty.
func (p Parts) filled() Parts {
	p.Services, p.Logs, p.Events = cmp.Or[Services](p.Services, absent{}), cmp.Or[Logs](p.Logs, absent{}), cmp.Or[Events](p.Events, absent{})
	p.Cluster, p.Recovery, p.Turns = cmp.Or[Cluster](p.Cluster, absent{}), cmp.Or[Recovery](p.Recovery,
		absent{}), cmp.Or[Turns](p.Turns, absent{})
	p.Virtual, p.Minions, p.Storage = cmp.Or[Virtual](p.Virtual, absent{}), cmp.Or[Minions](p.Minions,
		absent{}), cmp.Or[StorageNode](p.Storage, absent{})
	p.Backups, p.Upgrades = cmp.Or[Backups](p.Backups, absent{}), cmp.Or[Upgrades](p.Upgrades, absent{})
	p.Options, p.Git, p.Tools = cmp.Or[Options](p.Options, absent{}), cmp.Or[Git](p.Git, absent{}), cmp.Or[Tools](p.Tools, absent{})
	p.Schedule = cmp.Or[Schedule](p.Schedule, absent{})
	p.Audit, p.LogIns = cmp.Or[Audit](p.Audit, absent{}), cmp.Or[LogIns](p.LogIns, absent{})
	return p
}

var (
	errAlone     = fmt.Errorf("%w: this node is not part of a cluster", ErrState)
	errNoBackups = fmt.Errorf("%w: this node makes no backups by itself: backup.every is not set in its appliance.yaml",
		ErrState)
	errNew = fmt.Errorf("%w: this node is not set up; next: applianced setup", ErrState)
)

// errNoService refuses a service of a machine that has none yet.
func errNoService(name string) error {
	return fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
}

// absent stands for the parts that a node does not have.
type absent struct{}

func (absent) Output(name string, _ int) ([]string, error)   { return nil, errNoService(name) }
func (absent) Restart(name string) error                     { return errNoService(name) }
func (absent) Log(name string, _ LogQuery) (LogPage, error)  { return LogPage{}, errNoService(name) }
func (absent) Events(history.Query) ([]history.Event, error) { return nil, errNew }
func (absent) History(context.Context, history.Query) (history.List, error) {
	return history.List{}, errNew
}
func (absent) JoinString() (string, error)                          { return "", errAlone }
func (absent) Drain(context.Context, string, bool) error            { return errAlone }
func (absent) Leave(context.Context) error                          { return errAlone }
func (absent) Remove(context.Context, string, bool) error           { return errAlone }
func (absent) Recover(context.Context, bool) error                  { return errAlone }
func (absent) Recovering() (Recovering, error)                      { return Recovering{}, errNew }
func (absent) Fit() error                                           { return errAlone }
func (absent) SetVirtual(context.Context, string) error             { return errAlone }
func (absent) Turn(context.Context) (Turn, error)                   { return Turn{Alone: true}, nil }
func (absent) TakeTurn(context.Context, bool) error                 { return errAlone }
func (absent) Apply(context.Context, ApplyRequest) error            { return errNew }
func (absent) Applying() options.Progress                           { return options.Progress{Schema: options.Schema} }
func (absent) EndTurn(context.Context) error                        { return errAlone }
func (absent) ChangeKeys(context.Context, KeyChange) error          { return errNew }
func (absent) Storage() (storage.State, bool)                       { return storage.State{}, false }
func (absent) Ping(context.Context, string) ([]setup.Check, error)  { return nil, errAlone }
func (absent) TakeKey(context.Context, string) error                { return errAlone }
func (absent) Keys() (ClusterKeys, error)                           { return ClusterKeys{}, errAlone }
func (absent) NewKey(context.Context) (ClusterKeys, error)          { return ClusterKeys{}, errAlone }
func (absent) RotateSecret(context.Context, bool) ([]string, error) { return nil, errAlone }
func (absent) RunTool(context.Context, toolrun.Request) (string, io.ReadCloser, error) {
	return "", nil, errAlone
}
func (absent) Minions(context.Context, bool) (status.MinionList, error) {
	return status.MinionList{}, errNew
}

func (absent) Tokens(context.Context) (control.Tokens, error) { return control.Tokens{}, errNew }
func (absent) RevokeTokens(context.Context, control.Revocation) (control.Revoked, error) {
	return control.Revoked{}, errNew
}

func (absent) Audit(context.Context, audit.Query) (audit.List, error) {
	return audit.List{}, errNew
}

func (absent) Backups() (status.BackupList, error)           { return status.BackupList{}, errNoBackups }
func (absent) Upgrade(context.Context, UpgradeRequest) error { return errNew }
func (absent) Upgrading() rollout.Progress                   { return rollout.Progress{Schema: rollout.Schema} }
func (absent) MakeBackup() error                             { return errNoBackups }

func (absent) Schedule(context.Context) (status.Schedule, error) { return status.Schedule{}, errNew }
func (absent) Git(context.Context, bool, string) (status.GitList, error) {
	return status.GitList{}, errNew
}
