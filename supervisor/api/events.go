package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"saltern/supervisor/history"
)

// Events knows what has happened.
type Events interface {
	// Events gives the last so many since a time, the oldest first.
	Events(last int, since time.Time) ([]history.Event, error)
}

type eventList struct {
	Events []history.Event `json:"events"`
}

func (s *Server) eventRoutes(mux *http.ServeMux, n Events) {
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		last, err := strconv.Atoi(v.Get("last"))
		if err != nil || last < 0 {
			fail(w, http.StatusBadRequest, "last is not a number of events")
			return
		}
		var since time.Time
		if t := v.Get("since"); t != "" {
			if since, err = time.Parse(time.RFC3339Nano, t); err != nil {
				fail(w, http.StatusBadRequest, "since is not a time of RFC 3339")
				return
			}
		}
		events, err := n.Events(last, since)
		s.answer(w, eventList{events}, err)
	})
}

// Events fetches the last events since a time.
func (c *Client) Events(ctx context.Context, last int, since time.Time) ([]history.Event, error) {
	v := url.Values{"last": {strconv.Itoa(last)}}
	if !since.IsZero() {
		v.Set("since", since.Format(time.RFC3339Nano))
	}
	var list eventList
	err := c.do(ctx, http.MethodGet, "/v1/events?"+v.Encode(), nil, &list)
	return list.Events, err
}
