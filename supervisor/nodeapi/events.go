package nodeapi

import (
	"context"
	"errors"
	"net/http"

	"saltern/supervisor/history"
	"saltern/supervisor/nodes"
)

// eventRoutes adds the routes of this node's events.
func (s *Server) eventRoutes(routes routes) {
	routes.addRoute("GET /v1/events", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		q, err := history.ParseQuery(r.URL.Query())
		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}
		events, err := s.host.Events(q)
		answer(w, events, err)
	})
}

// Events returns the events of a node. Callers check them with [history.List.Add].
func (c *Client) Events(ctx context.Context, q history.Query) (events []history.Event, err error) {
	err = c.within(ctx, maxList, http.MethodGet, "/v1/events?"+q.Values().Encode(), nil, &events)
	if notThere(err) {
		return nil, errors.New("its version does not tell others yet; next: applianced upgrade")
	}
	return events, err
}
