package pyhost

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"saltern/master/internal/pyfork"
	"saltern/master/value"
)

// parent returns the running parent. If no parent runs, it starts one, or waits for a start in
// progress.
func (h *Host) parent(ctx context.Context) (*parent, error) {
	layer := h.cfg.Layer()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}

	if p := h.current; p != nil && p.layer != layer {
		h.mu.Unlock()
		h.replaceParent(p, "there are other Python packages")
		h.mu.Lock()
	}

	if p := h.current; p != nil {
		h.mu.Unlock()
		return p, nil
	}

	s := h.starting
	if s == nil {
		if err := h.failed; err != nil && time.Now().Before(h.notBefore) {
			h.mu.Unlock()
			return nil, err
		}
		s = &parentStart{done: make(chan struct{})}
		h.starting = s
		h.owned.Go(func() { h.startParent(s, layer) })
	}
	h.mu.Unlock()

	select {
	case <-s.done:
		return s.parent, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// startParent performs the start s. If earlier starts failed or earlier parents died, it first
// waits for the startPause.
func (h *Host) startParent(s *parentStart, layer string) {
	defer close(s.done)
	h.mu.Lock()
	pause := time.Until(h.notBefore)
	h.mu.Unlock()

	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-h.ctx.Done():
		}
	}

	s.parent, s.err = h.startAny(layer)
	h.mu.Lock()
	defer h.mu.Unlock()

	h.starting = nil
	h.failed = s.err
	switch {
	case errors.Is(s.err, ErrNoSalt):
		// No Python has Salt's library. Until notBefore, tasks fail at once.
		h.notBefore = time.Now().Add(30 * time.Second)
	case s.err != nil:
		h.deaths++
		h.notBefore = time.Now().Add(h.startPause())
	default:
		h.current = s.parent
		h.starts.Add(1)
	}
}

// startPause returns how long to wait before the next start. The caller holds mu.
func (h *Host) startPause() time.Duration {
	if h.deaths == 0 {
		return 0
	}
	return min(lastPause, firstPause<<min(h.deaths-1, 10))
}

// startAny tries the configured Pythons one after the other, and starts a parent with the first one
// that has Salt's library.
func (h *Host) startAny(layer string) (*parent, error) {
	settings := value.NewMap(
		"layer", layer,
		"memory_limit", h.cfg.Memory,
		"max_files", maxFiles,
		"max_request", maxRequest,
		"max_answer", maxAnswer,
		"log_level", 30,
	)

	began := time.Now()
	var tried []string
	for _, python := range h.cfg.Pythons {
		p, err := pyfork.Start(h.ctx, pyfork.Config{
			Python:       python,
			Program:      pyfork.Prelude + program + h.cfg.Program + "\nhost()\n",
			Settings:     settings,
			Env:          h.cfg.Env,
			StartTimeout: startTakes,
			Name:         "python",
			Log:          h.cfg.Log,
		})

		switch {
		case h.ctx.Err() != nil:
			if p != nil {
				p.Stop(0)
			}
			return nil, errClosed
		case err == nil:
			h.cfg.Log.Info("a Python with Salt's library was started", "python", python, "salt", p.Salt)
			return h.adoptParent(p, layer, began), nil
		case !errors.Is(err, pyfork.ErrNoSalt) && !errors.As(err, new(*exec.Error)):
			return nil, fmt.Errorf("start a Python with Salt's library: %w", err)
		}

		tried = append(tried, python)
	}

	return nil, fmt.Errorf("%w (tried %s)", ErrNoSalt, strings.Join(tried, ", "))
}

// adoptParent returns the parent for a started process, and starts a goroutine that handles the
// messages of the process until it ends. began must be a time before the process began to read
// files.
func (h *Host) adoptParent(started *pyfork.Parent, layer string, began time.Time) *parent {
	p := &parent{
		Parent:  started,
		layer:   layer,
		gone:    make(chan struct{}),
		workers: map[int64]*worker{},
		checked: began,
	}

	stop := context.AfterFunc(h.ctx, func() { p.Stop(stopTakes) })
	h.owned.Go(func() { // this goroutine runs until the parent ends, by itself or by Close
		defer stop()
		p.listen(func(m pyfork.Message) { h.replaceUnfit(p, m) })
		h.forgetDead(p)
	})

	h.orderWarm(p)
	return p
}

// forgetDead removes a parent that has ended. If nobody stopped the parent, forgetDead counts the
// death and delays the next start. Call it when a parent has ended.
func (h *Host) forgetDead(p *parent) {
	p.mu.Lock()
	retired := p.retired
	p.mu.Unlock()

	h.forget(p)
	p.Stop(stopTakes)
	if retired || h.ctx.Err() != nil {
		return
	}

	h.mu.Lock()
	h.notBefore = time.Now().Add(h.startPause())
	h.deaths++
	h.mu.Unlock()

	h.restarts.Add(1)
	h.cfg.Log.Warn("the Python that starts runners has died, with those that ran; another one is started when it is needed",
		"pid", p.PID())
}

// forget ensures that a parent gets no further tasks.
func (h *Host) forget(p *parent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == p {
		h.current = nil
	}
}

// replaceParent retires a parent, so that the next task starts a new one. why is written to the
// log.
func (h *Host) replaceParent(p *parent, why string) {
	h.mu.Lock()
	current := h.current == p
	if current {
		h.current = nil
	}
	h.mu.Unlock()
	if current {
		h.renewals.Add(1)
		h.cfg.Log.Info("Python is started anew: "+why, "pid", p.PID())
	}
	h.retire(p)
}

// retire ensures that a parent gets no further tasks, and stops the parent when its last worker has
// ended.
func (h *Host) retire(p *parent) {
	p.mu.Lock()
	p.retired = true
	stop := len(p.workers) == 0
	p.mu.Unlock()
	if stop {
		p.Stop(stopTakes)
	}
}
