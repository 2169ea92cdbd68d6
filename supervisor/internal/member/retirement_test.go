package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// removal says when the node is removed.
type removal struct{ by atomic.Pointer[string] }

func (r *removal) Removed() string {
	if by := r.by.Load(); by != nil {
		return *by
	}
	return ""
}

// restarts lists the services restarted; none of them is enabled.
type restarts struct{ names []string }

func (r *restarts) Restart(name string) error {
	r.names = append(r.names, name)
	return errors.New("no such service")
}

// lastingProcess is a process that runs until its service waits, two seconds after its restart.
type lastingProcess struct {
	services *restarts
	looks    int
	stopped  bool
}

func (p *lastingProcess) Info() service.Info {
	if len(p.services.names) == 0 {
		return service.Info{State: service.Running}
	}
	if p.looks++; p.looks < 20 {
		return service.Info{State: service.Running}
	}
	return service.Info{State: service.Waiting}
}

func (p *lastingProcess) Stop() { p.stopped = p.looks >= 20 }

// TestRetirement: a node that belongs to its cluster keeps its services. One that is removed restarts
// them, and ends the load balancer's process once the service waits.
func TestRetirement(t *testing.T) {
	for name, balanced := range map[string]bool{"with a load balancer": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told, services := &removal{}, &restarts{}
				process := &lastingProcess{services: services}
				r := Retirement{Membership: told, Services: services, Log: slog.New(slog.DiscardHandler)}
				if balanced {
					r.Balancer, r.Process = process, process
				}

				ended := make(chan struct{})
				go func() {
					defer close(ended)
					r.Run(t.Context())
				}()

				time.Sleep(time.Hour)
				synctest.Wait()
				if len(services.names) != 0 {
					t.Fatalf("restarted before the removal: %q", services.names)
				}

				by := "n2 says so"
				told.by.Store(&by)
				<-ended
				want := []string{status.MasterService, status.BalancerService, status.APIService}
				if !slices.Equal(services.names, want) {
					t.Errorf("restarted %q, want %q", services.names, want)
				}
				if process.stopped != balanced {
					t.Errorf("the load balancer's process was stopped: %t", process.stopped)
				}
			})
		})
	}
}

// TestRetirementEndsWithItsLife: a node that is not removed stops waiting with its context.
func TestRetirementEndsWithItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		Retirement{Membership: &removal{}, Services: &restarts{}, Log: slog.New(slog.DiscardHandler)}.Run(ctx)
	})
}
