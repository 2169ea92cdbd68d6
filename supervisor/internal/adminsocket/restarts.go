package adminsocket

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/internal/rpc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

const (
	// answerFirst is how long a restart is delayed, so that the master or salt-api can send the
	// answer first.
	answerFirst = time.Second
	// maxSoon bounds the pending restarts. A further restart is refused.
	maxSoon = 4
)

// restartable returns the services that a user of the master may restart.
func restartable() []string {
	return []string{status.MasterService, status.BalancerService, status.APIService}
}

// Restarts restarts services of this node for users of the master, here and on other nodes.
type Restarts struct {
	log     *slog.Logger
	manager serviceManager
	soon    chan string // names of services to restart

	mu    sync.Mutex
	ended bool // Run has ended: no further restart is accepted
}

var errEnding = &rpc.Error{
	Code: rpc.CodeBusy,
	Text: "applianced stops its services or starts them with other settings at this moment: " +
		"try again in half a minute",
}

// serviceManager manages the services: [service.Manager].
type serviceManager interface {
	Output(name string, lines int) ([]string, error)
	Restart(name string) error
}

// NewRestarts returns a Restarts for the services of manager.
func NewRestarts(log *slog.Logger, manager serviceManager) *Restarts {
	return &Restarts{log: log, manager: manager, soon: make(chan string, maxSoon)}
}

// RestartSoon restarts a service shortly after the call has returned. It implements
// [member.Restarts].
func (r *Restarts) RestartSoon(name string) error {
	if !slices.Contains(restartable(), name) {
		return fmt.Errorf("%w: %.70q; these may be restarted: %s", service.ErrUnknown, name,
			strings.Join(restartable(), ", "))
	}
	if _, err := r.manager.Output(name, 0); err != nil { // the node has no service of this name
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errEnding
	}
	select {
	case r.soon <- name:
		return nil
	default:
		return errBusy
	}
}

// Run makes the restarts that RestartSoon has accepted, until ctx ends. At the end it makes the
// restarts that are left, because the service may outlive this life of the node.
func (r *Restarts) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case name := <-r.soon:
			_ = pause.For(ctx, answerFirst)
			r.restart(name)
		}
	}

	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	for len(r.soon) > 0 {
		r.restart(<-r.soon)
	}
}

func (r *Restarts) restart(name string) {
	r.log.Info("a service is restarted, as was asked for", "service", name)
	if err := r.manager.Restart(name); err != nil {
		r.log.Error("restart a service", "service", name, "error", err)
	}
}
