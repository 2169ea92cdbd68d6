package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// rising is a supervisor whose node gets better with each question.
type rising struct {
	mu    sync.Mutex
	next  []status.Health
	setup int // answers during which the set-up has not ended
}

func (n *rising) Status() status.Document {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.next[0]
	if len(n.next) > 1 {
		n.next = n.next[1:]
	}

	d := status.Document{
		Schema:  status.Schema,
		Health:  h,
		Exit:    h.Exit(),
		Setup:   status.SetupReady,
		Node:    "sca-1",
		Cluster: "prod",
	}

	if n.setup > 0 {
		n.setup--
		d.Setup = status.SetupWaiting
	}

	return d
}

// TestStatusWait: it waits for a node that is not well yet, also before its
// supervisor answers, and gives up in time.
func TestStatusWait(t *testing.T) {
	for name, c := range map[string]struct {
		next  []status.Health
		args  string
		late  time.Duration // the supervisor comes so late
		exit  int
		took  time.Duration // at least
		setup int
	}{
		"healthy": {[]status.Health{status.NotServing, status.Degraded, status.Healthy},
			"--wait 60s", 0, 0, 2 * time.Second, 0},
		"serving": {[]status.Health{status.NotServing, status.Degraded},
			"--wait 60s --until serving", 0, status.ExitDegraded, time.Second, 0},
		"asked by health": {[]status.Health{status.Degraded}, "--wait 60s --until serving --serving", 0, 0, 0, 0},
		"not serving": {[]status.Health{status.NotServing}, "--wait 1200ms --serving", 0,
			status.ExitNotServing, 0, 0},
		"in vain": {[]status.Health{status.NotServing}, "--wait 1200ms", 0, status.ExitNotServing,
			1200 * time.Millisecond, 0},
		"late supervisor": {[]status.Health{status.Healthy}, "--wait 60s", 1500 * time.Millisecond, 0,
			1500 * time.Millisecond, 0},
		"set-up goes on": {[]status.Health{status.Healthy}, "--wait 60s", 0, 0, 2 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			served, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				time.Sleep(c.late)
				node := &rising{next: c.next, setup: c.setup}
				server := api.NewServer(api.Config{
					Handlers: shownHandlers(node.Status),
					Log:      slog.New(slog.DiscardHandler),
				})
				l, err := server.Listen(socket)
				if err == nil {
					err = server.Serve(served, l)
				}

				ended <- err
			}()

			began := time.Now()
			out, errs, err := typed(t.Context(),
				append([]string{"--socket", socket, "status"}, strings.Fields(c.args)...)...)
			took := time.Since(began)
			stop()

			if err := <-ended; err != nil {
				t.Error(err)
			}

			var code exitError
			errors.As(err, &code)
			if int(code) != c.exit || strings.Count(out, "cluster prod") != 1 ||
				c.setup > 0 && strings.Contains(out, "waiting") {
				t.Errorf("%v\n%s%s", err, out, errs)
			}

			if took < c.took || took > 50*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}

	if _, _, err := typed(t.Context(), "status", "--wait", "1s", "--until", "tomorrow"); err == nil ||
		!strings.Contains(err.Error(), "neither healthy nor serving") {
		t.Errorf("%v", err)
	}
}
