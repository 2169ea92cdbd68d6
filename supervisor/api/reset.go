package api

import (
	"context"
	"net/http"
)

// Reset is what the routes of the reset serve:
//
//	GET  /v1/reset/plan   what would be removed (ResetPlan); changes nothing
//	POST /v1/reset        the node removes all that it has made and is new; the work goes on by itself
//	GET  /v1/reset        how far that is (Resetting)
type Reset interface {
	PlanReset() (ResetPlan, error)
	Reset() error
	Resetting() (Resetting, error)
}

// ResetPlan is what a reset would do.
type ResetPlan struct {
	Remove []string `json:"remove"` // paths
	Keep   []string `json:"keep"`   // "PATH: what it is"
	// Cluster is its name, Others the nodes that would go on without this one.
	Cluster string   `json:"cluster,omitempty"`
	Others  []string `json:"others,omitempty"`
	// Copied says why this machine may not act for the node whose key it has; "": it may. The
	// node goes on whatever becomes of this machine, and Others is empty.
	Copied string `json:"copied,omitempty"`
}

// Resetting is how far a reset is.
type Resetting struct {
	UnderWay bool   `json:"underWay"`
	Fault    string `json:"fault,omitempty"` // why it has stopped
}

func (s *Server) resetRoutes(mux *http.ServeMux, n Reset) {
	mux.HandleFunc("GET /v1/reset/plan", func(w http.ResponseWriter, _ *http.Request) {
		p, err := n.PlanReset()
		s.answer(w, p, err)
	})
	mux.HandleFunc("POST /v1/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, struct{}{}, n.Reset())
	})
	mux.HandleFunc("GET /v1/reset", func(w http.ResponseWriter, _ *http.Request) {
		r, err := n.Resetting()
		s.answer(w, r, err)
	})
}

// PlanReset tells what a reset would do.
func (c *Client) PlanReset(ctx context.Context) (p ResetPlan, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/reset/plan", nil, &p)
	return p, err
}

// Reset makes this machine new; Resetting tells how it goes.
func (c *Client) Reset(ctx context.Context) error { return c.post(ctx, "/v1/reset", nil, nil) }

// Resetting tells how far a reset is.
func (c *Client) Resetting(ctx context.Context) (r Resetting, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/reset", nil, &r)
	return r, err
}
