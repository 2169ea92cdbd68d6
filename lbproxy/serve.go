package lbproxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"

	"saltern/internal/rpc"
)

// Serve runs a proxy with this configuration until ctx ends. If an earlier proxy runs with the same
// hand-over socket, Serve replaces it: it takes over the listening sockets and the settings of
// administrators (drain, maint, weights). The earlier process finishes its sessions and exits. No
// connection is refused during the hand-over. Without an earlier process, Serve calls [New] and
// [Proxy.Run].
//
// Serve waits at most 10 s for an earlier process that does not answer. After that it returns an
// error, because that process still uses the ports.
func Serve(ctx context.Context, cfg Config, log *slog.Logger) error {
	p, err := New(cfg, log)
	if err != nil {
		return err
	}
	if p.cfg.Admin.Handover == "" {
		return p.Run(ctx)
	}

	h, err := takeOver(ctx, p.cfg.Admin.Handover)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return p.Run(ctx) // no earlier process
	case err != nil:
		p.log.Warn("no hand-over from the running load balancer", "error", err)
		return p.Run(ctx)
	}

	if p.cfg.Admin.Socket != "" {
		p.adoptSettings(ctx, NewClient(p.cfg.Admin.Socket))
	}

	if err := p.Inherit(h.Files); err != nil {
		h.Abort()
		return err
	}

	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.Ready():
			if err := h.Done(); err != nil {
				p.log.Warn("the earlier load balancer may go on beside us", "error", err)
			}
		case <-ended:
			h.Abort()
		}
	}()

	err = p.Run(ctx)
	close(ended)
	<-done
	return err
}

// adoptSettings copies the settings that administrators have made at the earlier proxy.
func (p *Proxy) adoptSettings(ctx context.Context, c *Client) {
	st, err := c.Status(ctx)
	if err != nil {
		p.log.Warn("ask the running load balancer for what was set there", "error", err)
		return
	}

	list, err := call(ctx, c, readKnown, rpc.None{})
	if err != nil {
		// the earlier process has an older release, which does not know this request
		p.log.Info("the running load balancer does not tell which sources are known", "error", err)
	}

	p.known.inherit(list, p.clock())
	for _, b := range st.Backends {
		own, err := p.backendNamed(b.Name)
		if err != nil || b.Removing {
			continue // this configuration does not have the backend
		}

		own.draining.Store(b.Drain)
		own.maintenance.Store(b.Maint)
		if b.Weight >= 1 && b.Weight <= 1000 {
			own.weight.Store(int32(b.Weight))
		}
	}
}
