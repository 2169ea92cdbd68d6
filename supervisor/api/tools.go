package api

import (
	"context"
	"io"
	"net/http"
	"os"
	"time"

	"saltern/internal/control/toolrun"
	"saltern/internal/httpserver"
)

// Tools is what the route for Salt's tools serves, when this node's master does not
// answer: the tool runs on another node. Only root may ask for that: the tool has all
// rights there that the master's account has.
//
//	POST /v1/tool   toolrun.Request → frames
type Tools interface {
	// RunTool gives the name of the node that runs the tool, and the frames, which
	// end with ctx. An error that is [ErrState] says that no node has run it; after
	// another one nobody knows.
	RunTool(ctx context.Context, r toolrun.Request) (node string, frames io.ReadCloser, err error)
}

// toolTakes bounds the search for a node that runs a tool.
const toolTakes = 90 * time.Second

func (s *Server) toolRoutes(mux *http.ServeMux, n Tools) {
	slots := make(chan struct{}, toolrun.MaxRuns)
	mux.HandleFunc("POST "+toolrun.Path, func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(peerKey{}).(peer); !ok || p.cred.Uid != 0 && int(p.cred.Uid) != os.Geteuid() {
			fail(w, http.StatusForbidden, "only root can ask another node")
			return
		}

		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			fail(w, http.StatusTooManyRequests, "too many tools of this node ask other nodes already")
			return
		}

		q, err := toolrun.Read(r.Body)
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}

		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // else its end would end the request's context
		_ = control.SetWriteDeadline(time.Now().Add(toolTakes))
		node, frames, err := n.RunTool(r.Context(), q)
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		defer frames.Close()

		w.Header().Set(toolrun.AskedHeader, node)
		if _, err := io.Copy(httpserver.Stream(w, toolrun.Stall), frames); err != nil {
			s.log.Debug("local API: a tool's answer was cut", "node", node, "error", err)
		}
	})
}
