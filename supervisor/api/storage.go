package api

import (
	"context"
	"errors"
	"net/http"

	"saltern/supervisor/storage"
)

// StorageNode is a node that keeps a shared volume.
type StorageNode interface {
	// Storage gives the newest state; false: this node has no shared volume.
	Storage() (storage.State, bool)
}

var errNoVolume = errors.New("this node keeps no shared volume: storage.kind in appliance.yaml is not volume")

func (s *Server) storage(w http.ResponseWriter, _ *http.Request) {
	if st, ok := s.parts.Storage.Storage(); ok {
		s.answer(w, st, nil)
		return
	}
	fail(w, http.StatusNotFound, errNoVolume.Error())
}

// Storage gives the state of the shared volume as the node sees it.
func (c *Client) Storage(ctx context.Context) (st storage.State, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/storage", nil, &st)
	return st, err
}
