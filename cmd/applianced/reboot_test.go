package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/nodes"
)

// turns is a supervisor that knows of turns only.
type turns struct {
	busy     int // so often another node has the turn
	sessions int // leave one at a look
	needed   string
	alone    bool
	mine     bool
	ended    int
	force    bool
}

func (s *turns) handlers() *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, api.ReadTurn, rpc.Question(s.Turn))
	rpc.Handle(h, api.ChangeTurn, rpc.Order(func(ctx context.Context, q api.ClusterRequest) error {
		if q.End {
			return s.EndTurn(ctx)
		}
		return s.TakeTurn(ctx, q.Force)
	}))
	return h
}

func (s *turns) Turn(context.Context) (api.Turn, error) {
	s.sessions = max(0, s.sessions-1)
	return api.Turn{Alone: s.alone, Mine: s.mine, Needed: s.needed, Sessions: s.sessions}, nil
}

func (s *turns) TakeTurn(_ context.Context, force bool) error {
	s.force = force
	s.busy--
	if s.busy >= 0 && !force {
		return fmt.Errorf("%w: n2 %w", api.ErrState, nodes.ErrTurn)
	}
	s.mine = true
	return nil
}

func (s *turns) EndTurn(context.Context) error {
	s.ended++
	return nil
}

func TestRestartInTurn(t *testing.T) {
	for name, c := range map[string]struct {
		s     turns
		r     restartTurn
		fault string
		ended int
	}{
		"alone":            {s: turns{alone: true}},
		"its turn":         {s: turns{sessions: 3}, r: restartTurn{drain: time.Minute}},
		"minions stay":     {s: turns{sessions: 1000}, r: restartTurn{drain: 5 * time.Millisecond}},
		"another's turn":   {s: turns{busy: 1}, fault: "has the turn"},
		"waits":            {s: turns{busy: 3}, r: restartTurn{wait: time.Minute}},
		"waits in vain":    {s: turns{busy: 1 << 30}, r: restartTurn{wait: 20 * time.Millisecond}, fault: "waited for"},
		"by force":         {s: turns{busy: 1 << 30, needed: "n2 is away"}, r: restartTurn{force: true}},
		"lost a node then": {s: turns{needed: "n2 is away"}, fault: "n2 is away", ended: 1},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			srv := api.NewServer(api.Config{Handlers: c.s.handlers(), Log: slog.New(slog.DiscardHandler)})
			ln, err := srv.Listen(socket)
			if err != nil {
				t.Fatal(err)
			}

			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- srv.Serve(ctx, ln) }()
			booted := 0
			var out bytes.Buffer
			c.r.out = &out
			c.r.askEvery = time.Millisecond
			c.r.boot = func() error { booted++; return nil }
			err = c.r.restartNode(ctx, api.NewClient(socket))
			stop()

			if err := <-done; err != nil {
				t.Error(err)
			}

			if c.fault == "" && (err != nil || booted != 1) ||
				c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || booted != 0) {
				t.Errorf("%d restarts, %v\n%s", booted, err, &out)
			}

			if c.s.ended != c.ended {
				t.Errorf("the turn was given back %d times", c.s.ended)
			}
		})
	}

	if err := (&restartTurn{boot: func() error { return nil }}).restartNode(t.Context(),
		api.NewClient(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("without a supervisor: %v", err)
	}
}
