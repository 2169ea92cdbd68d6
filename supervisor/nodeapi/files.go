package nodeapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"saltern/internal/control"
	"saltern/supervisor/nodes"
)

// filesRoutes adds the route that updates the files from which the node's master serves.
func (s *Server) filesRoutes(routes routes) {
	routes.addRoute("POST /v1/files/newest", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		replyJSON(w, s.host.Newest(r.Context()))
	})
}

// Newest asks the node to copy the newest files from the shared volume. The error says why the
// node's files are, or may be, older than the request.
func (c *Client) Newest(ctx context.Context) error {
	var n control.Newest
	err := c.do(ctx, http.MethodPost, "/v1/files/newest", struct{}{}, &n)
	if notThere(err) {
		return errors.New("its version cannot be asked for its files yet; next: applianced upgrade")
	}
	if why := cmp.Or(n.Why, n.Except); err == nil && why != "" {
		err = errors.New(oneLine(why))
	}
	return err
}
