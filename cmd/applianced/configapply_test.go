package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/options"
)

// applies is a supervisor whose rolls come to what the test says, at the second look.
type applies struct {
	check, roll options.Result
	busy        bool

	mu    sync.Mutex
	asked []api.ApplyRequest
	looks int
}

func (s *applies) handlers() *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, api.ApplyOptions, rpc.Order(s.Apply))
	rpc.Handle(h, api.ReadOptionsRoll, func(context.Context, rpc.None) (options.Progress, error) { return s.Applying(), nil })
	return h
}

func (s *applies) Apply(_ context.Context, q api.ApplyRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return fmt.Errorf("%w: since 10:00:00 UTC", api.ErrState)
	}
	s.asked, s.looks = append(s.asked, q), 0
	return nil
}

func (s *applies) Applying() options.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := options.Progress{Schema: options.Schema, Running: s.looks == 0, Lines: []string{"n1: step\x1b[31m"}}
	s.looks++
	if !p.Running {
		p.Result = &s.roll
		if s.asked[len(s.asked)-1].Dry {
			p.Result = &s.check
		}
	}
	return p
}

func TestConfigApply(t *testing.T) {
	of := func(code options.Code, state options.Force, faults ...options.Fault) options.Result {
		return options.Result{
			Code:  code,
			Cause: "because",
			Nodes: []options.NodeResult{{Name: "n1", State: state, Findings: options.Findings{Faults: faults}}},
		}
	}

	may := of(options.Checked, options.Before)
	for name, c := range map[string]struct {
		s     *applies
		args  string
		out   []string
		fault string // in the error; "exit 1": nothing but that
		dry   []bool
	}{
		"--yes": {
			s:    &applies{roll: of(options.Applied, options.New)},
			args: "--yes",
			out:  []string{"n1: step\n", "n1 has the new options\n"},
			dry:  []bool{false},
		},
		"nobody is asked": {s: &applies{check: may}, fault: "The masters of n1 are restarted",
			dry: []bool{true}},
		"nothing to do": {
			s:   &applies{check: of(options.Checked, options.Same), roll: of(options.Unchanged, options.Same)},
			out: []string{"n1 has the present options already"},
			dry: []bool{true, false},
		},
		"dry": {
			s:    &applies{check: may},
			args: "--dry-run",
			out:  []string{"n1 takes the new options"},
			dry:  []bool{true},
		},
		"wrong": {
			s:     &applies{roll: of(options.Wrong, options.Before, options.Fault{Text: "a.conf:3: no\x1b[0m"})},
			args:  "--yes",
			out:   []string{"n1: a.conf:3: no\n"},
			fault: "because; nothing is changed",
			dry:   []bool{false},
		},
		"wrong in JSON": {
			s:     &applies{roll: of(options.Wrong, options.Before, options.Fault{Text: "a.conf:3: no"})},
			args:  "--yes --json",
			out:   []string{`"code": "wrong"`, `"schema": 1`},
			fault: "exit 1",
			dry:   []bool{false},
		},
		"taken back": {s: &applies{roll: of(options.Stopped, options.LastGood)}, args: "--yes --timeout 10s --force",
			out: []string{"n1 has its last good options"}, fault: "fix them and run it again", dry: []bool{false}},
		"under way":  {s: &applies{busy: true}, args: "--yes", fault: "since 10:00:00"},
		"no timeout": {s: &applies{}, args: "--yes --timeout 1s", fault: "--timeout: from 5s to 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			srv := api.NewServer(api.Config{Handlers: c.s.handlers(), Log: slog.New(slog.DiscardHandler)})
			ln, err := srv.Listen(socket)
			if err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- srv.Serve(ctx, ln) }()
			defer func() { cancel(); <-served }()

			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()

			var out bytes.Buffer
			cmd := rootCommand()
			cmd.SetIn(null)
			cmd.SetOut(&out)
			cmd.SetErr(&bytes.Buffer{})
			cmd.SetArgs(append([]string{"--socket", socket, "config", "apply"}, strings.Fields(c.args)...))
			err = cmd.ExecuteContext(ctx)
			if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}

			for _, want := range c.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}

			if strings.Contains(c.args, "--json") && !json.Valid(out.Bytes()) {
				t.Errorf("no JSON: %s", out.String())
			}

			var dry []bool
			for _, q := range c.s.asked {
				dry = append(dry, q.Dry)
				if limited := strings.Contains(c.args, "10s"); limited != (q.Limit.Seconds() == 10) ||
					q.Force != strings.Contains(c.args, "--force") {
					t.Errorf("asked %+v", q)
				}
			}

			if fmt.Sprint(dry) != fmt.Sprint(c.dry) {
				t.Errorf("asked %v, want %v", dry, c.dry)
			}
		})
	}
}
