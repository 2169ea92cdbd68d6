package api

import (
	"context"
	"net/http"

	"saltern/internal/audit"
)

// Audit is what the route of the audit record serves:
//
//	GET /v1/audit[?since=&user=&action=&node=&last=]   what the nodes have written down (audit.List)
type Audit interface {
	Audit(ctx context.Context, q audit.Query) (audit.List, error)
}

func (s *Server) auditRoutes(mux *http.ServeMux, n Audit) {
	mux.HandleFunc("GET /v1/audit", func(w http.ResponseWriter, r *http.Request) {
		q, err := audit.ParseQuery(r.URL.Query())
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		list, err := n.Audit(r.Context(), q)
		s.answer(w, list, err)
	})
}

// Audit asks all nodes what was done by whom.
func (c *Client) Audit(ctx context.Context, q audit.Query) (list audit.List, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysTake)
	defer cancel()
	err = c.do(ctx, http.MethodGet, "/v1/audit?"+q.Values().Encode(), nil, &list)
	return list, err
}
