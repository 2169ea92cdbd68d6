package lbproxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"syscall"
)

// Serve runs a proxy with this configuration until ctx ends, in the place of
// one that runs with the same hand-over socket, if there is one: it takes over
// the listening sockets and what administrators had set (drain, maint,
// weights); the earlier process lets its sessions go and ends. No connection is
// refused meanwhile. Without an earlier one it is [New] and [Proxy.Run].
//
// An earlier process that does not answer is not waited for longer than 10 s;
// its ports are then in use, which is the error returned.
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
		return p.Run(ctx) // nobody there
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
	told := make(chan struct{})
	go func() {
		defer close(told)
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
	<-told
	return err
}

// adoptSettings takes over what administrators set at the earlier proxy.
func (p *Proxy) adoptSettings(ctx context.Context, c *Client) {
	st, err := c.Status(ctx)
	if err != nil {
		p.log.Warn("ask the running load balancer for what was set there", "error", err)
		return
	}

	var list []knownSource
	if err := c.do(ctx, http.MethodGet, "known", nil, &list); err != nil {
		// an earlier release
		p.log.Info("the running load balancer does not tell which sources are known", "error", err)
	}

	p.known.inherit(list, p.clock())
	for _, b := range st.Backends {
		own, err := p.backendNamed(b.Name)
		if err != nil || b.Removing {
			continue // it is not configured any more
		}

		own.draining.Store(b.Drain)
		own.maintenance.Store(b.Maint)
		if b.Weight >= 1 && b.Weight <= 1000 {
			own.weight.Store(int32(b.Weight))
		}
	}
}
