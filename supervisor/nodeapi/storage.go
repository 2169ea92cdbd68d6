package nodeapi

import (
	"context"
	"errors"
	"net/http"

	"saltern/supervisor/nodes"
)

// Authority signs the certificates of the shared volume's servers and clients.
type Authority struct {
	Cert []byte `json:"cert"` // certificate, in PEM
	Key  []byte `json:"key"`  // private key, in PEM; a secret
}

// Certificate is a certificate for the shared volume, and the authority that has signed it, both
// PEM.
type Certificate struct {
	Cert      []byte `json:"cert"`
	Authority []byte `json:"authority"`
}

// certificateRequest is a request for a certificate in the asking node's own name.
type certificateRequest struct {
	Request []byte `json:"request"` // PKCS #10, PEM
}

// storageRoutes adds the routes for certificates of the shared volume. Any node gets a certificate
// in its own name. A node that serves may also get the authority's key. So each such node can admit
// a new node, even if all others are lost.
func (s *Server) storageRoutes(routes routes) {
	routes.addRoute("POST /v1/storage/certificate", func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		withBody(maxHello, func(w http.ResponseWriter, _ *http.Request, q certificateRequest) {
			c, err := s.host.SignStorage(q.Request, n.Name)
			if err == nil {
				s.log.Info("a node was given a certificate for the storage", "peer", n.Name)
			}
			answer(w, c, err)
		})(w, r)
	})

	routes.addRoute("GET /v1/storage/authority", func(w http.ResponseWriter, _ *http.Request, n nodes.Node) {
		a, err := s.host.StorageAuthority()
		if err == nil {
			s.log.Info("a node was given the authority of the storage's certificates", "peer", n.Name)
		}
		answer(w, a, err)
	})
}

// StorageAuthority fetches the authority of the shared volume's certificates.
func (c *Client) StorageAuthority(ctx context.Context) (a Authority, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/storage/authority", nil, &a)
	if err == nil && (len(a.Cert) == 0 || len(a.Key) == 0 || len(a.Cert)+len(a.Key) > maxHello) {
		err = errors.New("node API: the answer holds no authority")
	}
	return a, err
}

// SignStorage asks the node to sign this node's certificate for the shared volume. request is PKCS
// #10, PEM.
func (c *Client) SignStorage(ctx context.Context, request []byte) (signed Certificate, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/storage/certificate", certificateRequest{request}, &signed)
	if err == nil && (len(signed.Cert) == 0 || len(signed.Authority) == 0 ||
		len(signed.Cert)+len(signed.Authority) > maxHello) {
		err = errors.New("node API: the answer holds no certificate")
	}
	return signed, orOlder(err)
}
