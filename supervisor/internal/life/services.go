package life

import (
	"saltern/supervisor/internal/mastersvc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// services are those of the manager. A master that is restarted by hand tries
// options that were refused.
type services struct {
	*service.Manager
	trial *mastersvc.Trial
}

// Restart restarts a service.
func (s services) Restart(name string) error {
	if name == status.MasterService {
		s.trial.ForgetRefusal()
	}
	return s.Manager.Restart(name)
}
