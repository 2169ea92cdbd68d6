package supervisor

import (
	"context"
	"fmt"

	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// SetupProgress implements api.Setup.
func (s *Supervisor) SetupProgress() setup.Progress {
	return setup.Progress{State: s.Status().Setup, Steps: []setup.Step{}, Since: s.started}
}

// SetupFacts implements api.Setup.
func (s *Supervisor) SetupFacts(context.Context) (setup.Facts, error) {
	return setup.Facts{Hostname: s.opt.Hostname, Version: s.opt.Version, Interfaces: []setup.Interface{}, Disks: []setup.Disk{}}, nil
}

// SetupValidate implements api.Setup.
func (s *Supervisor) SetupValidate(_ context.Context, a setup.Answers) (setup.Validation, error) {
	return setup.Validation{Answers: a, Faults: []setup.Fault{}}, nil
}

// SetupPreflight implements api.Setup.
func (s *Supervisor) SetupPreflight(context.Context, setup.Answers) ([]setup.Check, error) {
	return []setup.Check{}, nil
}

// SetupStart implements api.Setup.
func (s *Supervisor) SetupStart(context.Context, string, setup.Answers) error {
	if st := s.Status().Setup; st != status.SetupNew {
		return fmt.Errorf("%w: this node is %s", api.ErrState, st)
	}
	return fmt.Errorf("%w: nothing can be started", api.ErrState)
}

// SetupRetry implements api.Setup.
func (s *Supervisor) SetupRetry(context.Context, string) error {
	return fmt.Errorf("%w: nothing has failed", api.ErrState)
}

// SetupBack implements api.Setup.
func (s *Supervisor) SetupBack(context.Context, string) error {
	return fmt.Errorf("%w: nothing was started", api.ErrState)
}

// SetupNetwork implements api.Setup.
func (s *Supervisor) SetupNetwork(context.Context, string, string, setup.Network) (setup.Trial, error) {
	return setup.Trial{}, fmt.Errorf("%w: the network of this machine is not managed here", api.ErrState)
}

// SetupClaim implements api.Setup.
func (s *Supervisor) SetupClaim(_ context.Context, _, name string, _ bool) (setup.Claim, error) {
	return setup.Claim{Mine: true, Owner: name, Since: s.opt.Now()}, nil
}
