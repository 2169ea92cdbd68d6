package api

import (
	"context"
	"net/http"
	"time"

	"saltern/supervisor/status"
)

// Git is what the routes of git remotes serve:
//
//	GET  /v1/git         the remotes of all nodes (status.GitList)
//	POST /v1/git/fetch   {remote}: all nodes fetch now; how it is after it, or
//	                     after control.GitTakes
type Git interface {
	Git(ctx context.Context, fetch bool, remote string) (status.GitList, error)
}

type gitRequest struct {
	Remote string `json:"remote"`
}

func (s *Server) gitRoutes(mux *http.ServeMux, n Git) {
	do := func(w http.ResponseWriter, r *http.Request, fetch bool, remote string) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(keysTake))
		list, err := n.Git(r.Context(), fetch, remote)
		s.answer(w, list, err)
	}
	mux.HandleFunc("GET /v1/git", func(w http.ResponseWriter, r *http.Request) { do(w, r, false, "") })
	mux.HandleFunc("POST /v1/git/fetch",
		withBody(func(w http.ResponseWriter, r *http.Request, q gitRequest) { do(w, r, true, q.Remote) }))
}

// Git asks for the git remotes of all nodes; fetch: after those of that URL or name,
// "" for all, were fetched.
func (c *Client) Git(ctx context.Context, fetch bool, remote string) (list status.GitList, err error) {
	ctx, cancel := context.WithTimeout(ctx, keysTake)
	defer cancel()
	if fetch {
		err = c.post(ctx, "/v1/git/fetch", gitRequest{remote}, &list)
	} else {
		err = c.do(ctx, http.MethodGet, "/v1/git", nil, &list)
	}
	return list, err
}
