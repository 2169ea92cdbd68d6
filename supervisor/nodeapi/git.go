package nodeapi

import (
	"context"
	"errors"
	"net/http"

	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// gitRequest names the remotes to fetch; empty: all.
type gitRequest struct {
	Remote string `json:"remote"`
}

// gitRoutes adds the routes of the git remotes of our own master.
func (s *Server) gitRoutes(routes routes) {
	routes.addRoute("GET /v1/git", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		v, err := s.host.Git(r.Context(), false, "")
		answer(w, v, err)
	})
	routes.addRoute("POST /v1/git/fetch", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		withBody(maxHello, func(w http.ResponseWriter, r *http.Request, q gitRequest) {
			v, err := s.host.Git(r.Context(), true, q.Remote)
			answer(w, v, err)
		})(w, r)
	})
}

// Git returns the git remotes of the node's master. If fetch is set, the master first fetches the
// remote with that URL or name, or all remotes for "".
func (c *Client) Git(ctx context.Context, fetch bool, remote string) (v status.GitView, err error) {
	if fetch {
		err = c.within(ctx, maxList, http.MethodPost, "/v1/git/fetch", gitRequest{remote}, &v)
	} else {
		err = c.within(ctx, maxList, http.MethodGet, "/v1/git", nil, &v)
	}
	if notThere(err) {
		return status.GitView{}, errors.New("its version does not tell of git remotes yet; next: applianced upgrade")
	}
	if err != nil {
		return status.GitView{}, err
	}
	return v.Bounded(), nil
}
