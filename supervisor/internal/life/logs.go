package life

import (
	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/service"
)

// logs reads what the services have written, from any place on.
type logs struct {
	*service.Manager
	of *child.Programs
}

// Log returns a page of what a service has written.
func (l logs) Log(name string, q api.LogQuery) (api.LogPage, error) {
	if _, err := l.Output(name, 0); err != nil {
		return api.LogPage{}, err
	}

	log := l.of.Log(name)
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
