package api

import (
	"context"
	"net/http"

	"saltern/supervisor/status"
)

// Schedule is what the route of the master's schedule serves:
//
//	GET /v1/schedule   the entries and their next runs (status.Schedule)
type Schedule interface {
	Schedule(ctx context.Context) (status.Schedule, error)
}

func (s *Server) scheduleRoutes(mux *http.ServeMux, n Schedule) {
	mux.HandleFunc("GET /v1/schedule", func(w http.ResponseWriter, r *http.Request) {
		list, err := n.Schedule(r.Context())
		s.answer(w, list, err)
	})
}

// Schedule asks for the master's schedule.
func (c *Client) Schedule(ctx context.Context) (list status.Schedule, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysTake)
	defer cancel()
	err = c.do(ctx, http.MethodGet, "/v1/schedule", nil, &list)
	return list, err
}
