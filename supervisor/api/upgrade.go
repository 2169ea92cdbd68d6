package api

import (
	"context"
	"net/http"

	"saltern/supervisor/upgrade/rollout"
)

// Upgrades is what the routes of an upgrade of all nodes serve:
//
//	POST /v1/upgrade   [UpgradeRequest]: all nodes take a version of the system
//	GET  /v1/upgrade   how far that is (rollout.Progress)
type Upgrades interface {
	// Upgrade begins; it is refused with [ErrState] while another one is under way, and
	// for a file that is not signed.
	Upgrade(ctx context.Context, q UpgradeRequest) error
	Upgrading() rollout.Progress
}

// UpgradeRequest says which version all nodes take.
type UpgradeRequest struct {
	Path string `json:"path"`          // of the bundle, on this node
	Dry  bool   `json:"dry,omitempty"` // only look
}

func (s *Server) upgradeRoutes(mux *http.ServeMux, n Upgrades) {
	mux.HandleFunc("GET /v1/upgrade", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, n.Upgrading(), nil) })
	mux.HandleFunc("POST /v1/upgrade", withBody(func(w http.ResponseWriter, r *http.Request, q UpgradeRequest) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTakes)
		defer cancel()
		s.answer(w, struct{}{}, n.Upgrade(ctx, q))
	}))
}

// Upgrade has all nodes take a version of the system, one after another; it returns
// when that has begun.
func (c *Client) Upgrade(ctx context.Context, q UpgradeRequest) error {
	return c.post(ctx, "/v1/upgrade", q, nil)
}

// Upgrading tells how far that is.
func (c *Client) Upgrading(ctx context.Context) (p rollout.Progress, err error) {
	return p, c.do(ctx, http.MethodGet, "/v1/upgrade", nil, &p)
}
