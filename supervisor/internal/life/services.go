package life

import (
	"saltern/supervisor/internal/mastersvc"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// services restarts services by hand. A master that is restarted so tries options again
// that were refused before.
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
