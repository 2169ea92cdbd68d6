package api

import (
	"context"
	"net/http"

	"saltern/supervisor/history"
)

// Events is what the routes of the history serve:
//
//	GET /v1/events?last=[&since=]    what this node saw
//	GET /v1/history?last=[&since=]   what all nodes saw (history.List)
type Events interface {
	// Events gives what this node saw, the oldest first.
	Events(q history.Query) ([]history.Event, error)
	// History asks all nodes.
	History(ctx context.Context, q history.Query) (history.List, error)
}

type eventList struct {
	Events []history.Event `json:"events"`
}

func (s *Server) eventRoutes(mux *http.ServeMux, n Events) {
	mux.HandleFunc("GET /v1/events", eventQuery(func(w http.ResponseWriter, _ *http.Request, q history.Query) {
		events, err := n.Events(q)
		s.answer(w, eventList{events}, err)
	}))
	mux.HandleFunc("GET /v1/history", eventQuery(func(w http.ResponseWriter, r *http.Request, q history.Query) {
		list, err := n.History(r.Context(), q)
		s.answer(w, list, err)
	}))
}

func eventQuery(next func(http.ResponseWriter, *http.Request, history.Query)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := history.ParseQuery(r.URL.Query())
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		next(w, r, q)
	}
}

// Events fetches what this node saw.
func (c *Client) Events(ctx context.Context, q history.Query) ([]history.Event, error) {
	var list eventList
	err := c.do(ctx, http.MethodGet, "/v1/events?"+q.Values().Encode(), nil, &list)
	return list.Events, err
}

// History asks all nodes what they saw.
func (c *Client) History(ctx context.Context, q history.Query) (list history.List, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysTake)
	defer cancel()
	err = c.do(ctx, http.MethodGet, "/v1/history?"+q.Values().Encode(), nil, &list)
	return list, err
}
