package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LogPage is a part of what a service wrote. Each line begins with its time in UTC.
type LogPage struct {
	Lines  []string `json:"lines"`
	Cursor string   `json:"cursor"` // where the next page begins
	More   bool     `json:"more"`   // there is more already
}

// LogQuery says where a page begins: at a Cursor, else at a time, else so many lines
// before the end.
type LogQuery struct {
	Cursor string
	Since  time.Time
	Last   int
}

// Logs reads the services' logs from any place on.
type Logs interface {
	Log(service string, q LogQuery) (LogPage, error)
}

const maxLast = 10_000 // lines of one page by their number

func (s *Server) logRoutes(mux *http.ServeMux, n Logs) {
	mux.HandleFunc("GET /v1/services/{name}/log/page", func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		q := LogQuery{Cursor: v.Get("cursor")}
		var err error
		if t := v.Get("since"); t != "" {
			if q.Since, err = time.Parse(time.RFC3339Nano, t); err != nil {
				fail(w, http.StatusBadRequest, "since is not a time of RFC 3339")
				return
			}
		}

		if t := v.Get("last"); t != "" {
			if q.Last, err = strconv.Atoi(t); err != nil || q.Last < 0 {
				fail(w, http.StatusBadRequest, "last is not a number of lines")
				return
			}
			q.Last = min(q.Last, maxLast)
		}

		page, err := n.Log(r.PathValue("name"), q)
		s.answer(w, page, err)
	})
}

// Log fetches a page of what a service wrote.
func (c *Client) Log(ctx context.Context, service string, q LogQuery) (LogPage, error) {
	v := url.Values{}
	switch {
	case q.Cursor != "":
		v.Set("cursor", q.Cursor)
	case !q.Since.IsZero():
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	default:
		v.Set("last", strconv.Itoa(q.Last))
	}
	var page LogPage
	err := c.do(ctx, http.MethodGet, "/v1/services/"+url.PathEscape(service)+"/log/page?"+v.Encode(), nil, &page)
	return page, err
}
