package api

import (
	"fmt"

	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
	"saltern/supervisor/upgrade/rollout"
)

// ErrConfig means that a configuration was refused. Its text is sent to the caller.
var ErrConfig error = &rpc.Kind{Code: rpc.CodeConfig, Text: "configuration refused"}

// ErrState means that a request is not possible in the present state of the node or its set-up, or
// because another wizard leads the set-up.
var ErrState = setup.ErrState

// Errors of methods for which the node lacks something.
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

// errNoService returns the error for a service of a machine that is not set up, and so has no
// services.
func errNoService(name string) error {
	return fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
}

func noOutput(q OutputRequest) (OutputLines, error) { return OutputLines{}, errNoService(q.Service) }

func noLog(q LogRequest) (LogPage, error) { return LogPage{}, errNoService(q.Service) }

func noRestart(service string) (rpc.None, error) { return rpc.None{}, errNoService(service) }

// noTurn answers for a node without a cluster, which needs no turn.
func noTurn(rpc.None) (Turn, error) { return Turn{Alone: true}, nil }

func noRoll(rpc.None) (options.Progress, error) {
	return options.Progress{Schema: options.Schema}, nil
}

func noUpgrade(rpc.None) (rollout.Progress, error) {
	return rollout.Progress{Schema: rollout.Schema}, nil
}
