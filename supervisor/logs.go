package supervisor

import (
	"fmt"

	"saltern/supervisor/api"
	"saltern/supervisor/childlog"
	"saltern/supervisor/service"
)

// Log implements api.Logs.
func (s *Supervisor) Log(name string, q api.LogQuery) (api.LogPage, error) {
	m := s.manager()
	if m == nil {
		return api.LogPage{}, fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
	}
	if _, err := m.Output(name, 0); err != nil {
		return api.LogPage{}, err
	}
	s.mu.Lock()
	var log *childlog.Log
	if s.node != nil {
		log = s.node.logs[name]
	}
	s.mu.Unlock()
	if log == nil {
		return api.LogPage{Lines: []string{}}, nil
	}
	if q.Cursor == "" && q.Since.IsZero() {
		page, err := log.Last(q.Last)
		return api.LogPage(page), err
	}
	if q.Cursor == "" {
		var err error
		if q.Cursor, err = log.Since(q.Since); err != nil {
			return api.LogPage{}, err
		}
	}
	page, err := log.After(q.Cursor)
	return api.LogPage(page), err
}
