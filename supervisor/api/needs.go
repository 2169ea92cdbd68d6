package api

import (
	"fmt"

	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
	"saltern/supervisor/upgrade/rollout"
)

// ErrConfig marks a configuration that was refused; the caller gets its text.
var ErrConfig error = &rpc.Kind{Code: rpc.CodeConfig, Text: "configuration refused"}

// ErrState marks a request that does not fit to how the node is, or to where its set-up
// stands, or that somebody else leads.
var ErrState = setup.ErrState

// What methods need that a node does not have.
var (
	errAlone     = fmt.Errorf("%w: this node is not part of a cluster", ErrState)
	errNew       = fmt.Errorf("%w: this node is not set up; next: applianced setup", ErrState)
	errNoBackups = fmt.Errorf("%w: this node makes no backups by itself: backup.every is not set in its appliance.yaml",
		ErrState)
	errNoVolume error = &rpc.Error{
		Code: rpc.CodeNotFound,
		Text: "this node keeps no shared volume: storage.kind in appliance.yaml is not volume",
	}
)

// errNoService refuses a service of a machine that is not set up and has none.
func errNoService(name string) error {
	return fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
}

func noOutput(q OutputRequest) (OutputLines, error) { return OutputLines{}, errNoService(q.Service) }

func noLog(q LogRequest) (LogPage, error) { return LogPage{}, errNoService(q.Service) }

func noRestart(service string) (rpc.None, error) { return rpc.None{}, errNoService(service) }

// noTurn answers for a node that is alone and needs to ask nobody.
func noTurn(rpc.None) (Turn, error) { return Turn{Alone: true}, nil }

func noRoll(rpc.None) (options.Progress, error) {
	return options.Progress{Schema: options.Schema}, nil
}

func noUpgrade(rpc.None) (rollout.Progress, error) {
	return rollout.Progress{Schema: rollout.Schema}, nil
}
