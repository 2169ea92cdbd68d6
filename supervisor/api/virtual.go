package api

import (
	"context"
	"net/http"
	"time"
)

// Virtual is what the routes of the virtual address serve:
//
//	GET  /v1/fit              whether this node may have the address
//	POST /v1/cluster/virtual  {address}: another one for the cluster; empty: none
type Virtual interface {
	Fit() error
	SetVirtual(ctx context.Context, address string) error
}

type virtualRequest struct {
	Address string `json:"address"`
}

func (s *Server) virtualRoutes(mux *http.ServeMux, n Virtual) {
	mux.HandleFunc("GET /v1/fit", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, struct{}{}, n.Fit()) })
	mux.HandleFunc("POST /v1/cluster/virtual", withBody(func(w http.ResponseWriter, r *http.Request, q virtualRequest) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeTakes + 10*time.Second))
		ctx, cancel := context.WithTimeout(r.Context(), changeTakes)
		defer cancel()
		s.answer(w, struct{}{}, n.SetVirtual(ctx, q.Address))
	}))
}

// Fit asks whether the node may have the virtual address; an error that is
// [ErrState] says why not.
func (c *Client) Fit(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/v1/fit", nil, nil)
}

// SetVirtual gives the cluster another virtual address; empty: none.
func (c *Client) SetVirtual(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTakes+5*time.Second)
	defer cancel()
	return c.post(ctx, "/v1/cluster/virtual", virtualRequest{address}, nil)
}
