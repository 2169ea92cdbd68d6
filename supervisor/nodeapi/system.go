package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/upgrade/rollout"
)

const (
	// In bytes: maxBundle limits a bundle with a version of the system, maxSystem the description
	// of a version.
	maxBundle = 8 << 30
	maxSystem = 64 << 10
	// bundleStall is how long the sender of a bundle may send nothing, bundleWritten how long a
	// node may take to write the bundle after the last byte.
	bundleStall   = time.Minute
	bundleWritten = 20 * time.Minute
)

// systemRequest is a request to restart into a version of the system.
type systemRequest struct {
	Version string `json:"version"`
}

// systemRoutes adds the routes for [rollout.Node]. The node accepts a bundle only by its signature,
// whichever member sends it, and restarts only when it has the cluster's turn.
func (s *Server) systemRoutes(routes routes) {
	routes.addRoute("GET /v1/system", func(w http.ResponseWriter, r *http.Request, _ nodes.Node) {
		st, err := s.host.System().State(r.Context())
		answer(w, st, err)
	})

	routes.addRoute("PUT /v1/system/version", func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		s.log.Info("a node hands over a version of the system", "peer", n.Name)
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(time.Hour)) // replaces the connection's own, shorter deadline
		err := s.host.System().Install(r.Context(), &paced{http.MaxBytesReader(w, r.Body, maxBundle), c})
		answer(w, struct{}{}, err)
	})

	routes.addRoute("POST /v1/system/restart", func(w http.ResponseWriter, r *http.Request, n nodes.Node) {
		withBody(maxHello, func(w http.ResponseWriter, r *http.Request, q systemRequest) {
			err := s.host.System().Restart(r.Context(), q.Version)
			if err == nil {
				s.log.Info("a node has this one restart for an upgrade", "peer", n.Name, "version", q.Version)
			}
			answer(w, struct{}{}, err)
		})(w, r)
	})
}

// paced reads a body. It fails if the sender sends nothing for bundleStall.
type paced struct {
	io.Reader
	c *http.ResponseController
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	_ = p.c.SetReadDeadline(time.Now().Add(bundleStall))
	return p.Reader.Read(b)
}

// System returns the node as a machine that can be upgraded.
func (c *Client) System() rollout.Node { return systemClient{c} }

type systemClient struct{ c *Client }

// State implements rollout.Node.
func (s systemClient) State(ctx context.Context) (st rollout.State, err error) {
	err = asOldNode(s.c.within(ctx, maxSystem, http.MethodGet, "/v1/system", nil, &st))
	for _, text := range []*string{&st.Version, &st.Next, &st.Flavour, &st.Boot, &st.Busy, &st.Fault,
		&st.Drives, &st.Left, &st.Window, &st.Trouble} {
		*text = oneLine(*text)
	}
	return st, err
}

// Restart implements rollout.Node.
func (s systemClient) Restart(ctx context.Context, version string) error {
	return asOldNode(s.c.do(ctx, http.MethodPost, "/v1/system/restart", systemRequest{version}, nil))
}

// Install implements rollout.Node.
func (s systemClient) Install(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(bundleStall+bundleWritten, cancel)
	defer late.Stop()

	body := &moving{r, late}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://node/v1/system/version", body)
	if err != nil {
		return err
	}

	long := *s.c.http
	long.Timeout = 0
	resp, err := long.Do(req)
	if err != nil {
		return shortError(err)
	}
	defer resp.Body.Close()

	if resp.StatusCode == http.StatusOK {
		return nil
	}

	b, err := io.ReadAll(io.LimitReader(resp.Body, maxHello))
	var f fault
	if err != nil || json.Unmarshal(b, &f) != nil || f.Error == "" {
		return asOldNode(&httpError{resp.StatusCode, resp.Status})
	}

	return errors.New(oneLine(f.Error))
}

// moving resets a timer with each read.
type moving struct {
	io.Reader
	late *time.Timer
}

// Read implements io.Reader.
func (m *moving) Read(b []byte) (int, error) {
	m.late.Reset(bundleStall + bundleWritten)
	return m.Reader.Read(b)
}

// asOldNode returns rollout.ErrOld if err means that the node has no such route. Otherwise it
// returns err.
func asOldNode(err error) error {
	if notThere(err) {
		return rollout.ErrOld
	}
	return err
}
