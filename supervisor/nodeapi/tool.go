package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"saltern/internal/control/toolrun"
	"saltern/internal/httpserver"
	"saltern/supervisor/nodes"
)

// toolRoute adds the route by which another node runs one of Salt's tools on this one. The tool
// runs with our own master and the rights of the master's account. Only nodes that serve may use
// the route. They gain no power by it: each has the cluster's key, with which it can command every
// minion.
func (s *Server) toolRoute(routes routes) {
	routes.addRoute("POST "+toolrun.Path, func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		q, err := toolrun.Read(r.Body)
		if err != nil {
			refuse(w, newFault(codeRequest, err.Error(), http.StatusBadRequest))
			return
		}

		run, err := s.host.Tool(r.Context(), q)
		if err != nil {
			refuse(w, faultOf(err))
			return
		}

		s.log.Info("a node, whose master does not answer, has a tool run here", "peer", n.Name, "tool",
			q.Tool, "user", q.User)
		run(r.Context(), httpserver.Stream(w, toolrun.Stall))
	})
}

// ErrNotRun means that the tool certainly has not run and will not run. Errors of [Client.RunTool]
// wrap it.
var ErrNotRun = errors.New("the tool was not run")

// notRunError marks an error as [ErrNotRun] and keeps its text.
type notRunError struct{ error }

func (e *notRunError) Unwrap() []error { return []error{ErrNotRun, e.error} }

// RunTool asks the node to run one of Salt's tools with its master, and returns the stream of
// frames. The stream ends when ctx ends. An [ErrNotRun] means that the tool has not run. After any
// other error the tool may have run.
func (c *Client) RunTool(ctx context.Context, q toolrun.Request) (io.ReadCloser, error) {
	body, err := q.Encode()
	if err != nil {
		return nil, &notRunError{err}
	}

	var reached atomic.Bool
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }}))
	late := time.AfterFunc(answerTakes, cancel)
	defer late.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://node"+toolrun.Path, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, &notRunError{err}
	}

	req.GetBody = nil // keeps package http from sending the request twice
	long := *c.http
	long.Timeout = 0
	resp, err := long.Do(req)
	switch {
	case err != nil && !reached.Load():
		err = &notRunError{shortError(err)}
	case err != nil:
		err = shortError(err)
	case resp.StatusCode == http.StatusOK && late.Stop():
		return &toolFrames{resp.Body, cancel}, nil
	case resp.StatusCode == http.StatusOK:
		err = errors.Join(errors.New("no answer in time"), resp.Body.Close())
	default:
		err = notRun(resp)
	}

	cancel()
	return nil, err
}

// notRun returns the reason with which a node has refused to run a tool.
func notRun(resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxHello))
	var f fault
	if err != nil || json.Unmarshal(b, &f) != nil || f.Error == "" {
		return &notRunError{&httpError{resp.StatusCode, resp.Status}}
	}
	return &notRunError{&refusedError{codes[f.Code], oneLine(f.Error), f.Next}}
}

// toolFrames is the stream of frames of a run. Close ends the run.
type toolFrames struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (f *toolFrames) Close() error {
	f.cancel()
	return f.ReadCloser.Close()
}
