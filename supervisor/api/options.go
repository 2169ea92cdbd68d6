package api

import (
	"context"
	"net/http"
	"time"

	"saltern/supervisor/options"
)

// Options is what the routes of the master's options serve:
//
//	POST /v1/options/apply   [ApplyRequest]: all nodes take the options of now
//	GET  /v1/options/apply   how far that is (options.Progress)
type Options interface {
	// Apply begins; it is refused with [ErrState] while another one is under way.
	Apply(ctx context.Context, q ApplyRequest) error
	Applying() options.Progress
}

// ApplyRequest says how all nodes take new options.
type ApplyRequest struct {
	Dry   bool          `json:"dry,omitempty"`   // only check
	Force bool          `json:"force,omitempty"` // without nodes that are away
	Limit time.Duration `json:"limit"`           // for a master to serve, in nanoseconds
}

func (s *Server) optionsRoutes(mux *http.ServeMux, n Options) {
	mux.HandleFunc("GET /v1/options/apply",
		func(w http.ResponseWriter, _ *http.Request) { s.answer(w, n.Applying(), nil) })
	mux.HandleFunc("POST /v1/options/apply", withBody(func(w http.ResponseWriter, r *http.Request, q ApplyRequest) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTakes)
		defer cancel()
		s.answer(w, struct{}{}, n.Apply(ctx, q))
	}))
}

// Apply has all nodes take the master's options of now, one after another; it
// returns when that has begun.
func (c *Client) Apply(ctx context.Context, q ApplyRequest) error {
	return c.post(ctx, "/v1/options/apply", q, nil)
}

// Applying tells how far that is.
func (c *Client) Applying(ctx context.Context) (p options.Progress, err error) {
	return p, c.do(ctx, http.MethodGet, "/v1/options/apply", nil, &p)
}
