package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade/rollout"
)

// rollouts is a supervisor whose upgrades come to what the test says.
type rollouts struct {
	check, roll rollout.Result
	refusal     string

	mu    sync.Mutex
	asked []api.UpgradeRequest
}

func (s *rollouts) handlers() *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, api.UpgradeNodes, rpc.Order(s.Upgrade))
	rpc.Handle(h, api.ReadUpgrade, func(context.Context, rpc.None) (rollout.Progress, error) { return s.Upgrading(), nil })
	return h
}

func (s *rollouts) Upgrade(_ context.Context, q api.UpgradeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != "" {
		return fmt.Errorf("%w: %s", api.ErrState, s.refusal)
	}
	s.asked = append(s.asked, q)
	return nil
}

func (s *rollouts) Upgrading() rollout.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := rollout.Progress{Schema: rollout.Schema, Version: "2", Lines: []string{"n1: step\x1b[31m"}, Result: &s.roll}
	if s.asked[len(s.asked)-1].Dry {
		p.Lines, p.Result = nil, &s.check
	}
	return p
}

// upgrade check says when the window takes a version, at the earliest.
func TestInstalls(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) // a Wednesday
	for name, c := range map[string]struct {
		window string
		delay  time.Duration
		want   string
	}{
		"none":             {"", 0, ""},
		"on Sunday":        {"Sun 02:00-04:00", 0, "2026-11-29 02:00"},
		"now":              {"Wed 11:00-13:00", 0, "2026-11-25 12:00"},
		"too young now":    {"Wed 11:00-13:00", 48 * time.Hour, "2026-12-02 11:00"},
		"old enough in it": {"Thu 11:00-13:00", 48 * time.Hour, "2026-11-26 12:00"},
	} {
		got := ""
		if at := installs(settings.Upgrade{Window: c.window, Delay: c.delay}, now.AddDate(0, 0, -1), now); at != nil {
			got = at.Format("2006-01-02 15:04")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestUpgradeAll(t *testing.T) {
	of := func(code rollout.Code, places ...rollout.Where) rollout.Result {
		r := rollout.Result{Code: code, Cause: "because"}
		for i, w := range places {
			r.Nodes = append(r.Nodes, rollout.NodeResult{Name: fmt.Sprint("n", i+1), Where: w, Version: "1"})
		}
		return r
	}

	may := of(rollout.Checked, rollout.Before, rollout.Same)
	for name, c := range map[string]struct {
		s     *rollouts
		args  string
		out   []string
		fault string // in the error; "exit 1": nothing but that
		code  int    // of an error
		dry   []bool
	}{
		"--yes": {
			s:    &rollouts{roll: of(rollout.Upgraded, rollout.New, rollout.Same)},
			args: "--yes",
			out:  []string{"n1: step\n", "n1 has the new version\n", "n2 has this version already\n"},
			dry:  []bool{false},
		},
		"nobody is asked": {
			s:     &rollouts{check: may},
			fault: "Version 2 is written on n1; then these machines restart",
			code:  exitUsage,
			dry:   []bool{true},
		},
		"nothing to do": {
			s:   &rollouts{check: of(rollout.Checked, rollout.Same), roll: of(rollout.Unchanged, rollout.Same)},
			out: []string{"n1 has this version already"},
			dry: []bool{true, false},
		},
		"dry": {
			s:    &rollouts{check: may},
			args: "--dry-run",
			out:  []string{"n1 takes version 2 (runs 1)"},
			dry:  []bool{true},
		},
		"last": {
			s:    &rollouts{roll: of(rollout.Last, rollout.New, rollout.Restart)},
			args: "--yes",
			out:  []string{"This machine restarts now, as the last one"},
			dry:  []bool{false},
		},
		"stopped": {s: &rollouts{roll: of(rollout.Stopped, rollout.Back, rollout.Written)}, args: "--yes",
			out: []string{"n1 went back to the earlier version (runs 1)\n",
				"n2 has the earlier version, and tries the new one at its next boot (runs 1)"}, fault: "because. The nodes stand as listed", code: status.ExitUnknown, dry: []bool{false}},
		"in JSON": {
			s:     &rollouts{roll: of(rollout.Away, rollout.Unknown)},
			args:  "--yes --json",
			out:   []string{`"code": "away"`, `"schema": 1`},
			fault: "exit 1",
			code:  status.ExitUnknown,
			dry:   []bool{false},
		},
		"under way": {
			s:     &rollouts{refusal: "this node upgrades all nodes to version 3 since 10:00:00 UTC"},
			args:  "--yes",
			fault: "upgrades all nodes to version 3 since",
			code:  status.ExitUnknown,
		},
		"with --reboot": {
			s:     &rollouts{},
			args:  "--yes --reboot",
			fault: "--reboot is not for --all",
			code:  exitUsage,
		},
		"with a downgrade": {
			s:     &rollouts{},
			args:  "--yes --allow-downgrade",
			fault: "--allow-downgrade is not for --all",
			code:  exitUsage,
		},
		"an address": {
			s:     &rollouts{},
			args:  "--yes https://example.net/v",
			fault: "takes a file, not an address",
			code:  exitUsage,
		},
		"not all, with yes": {s: &rollouts{}, args: "--all=false --yes", fault: "are for --all", code: exitUsage},
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

			args := append([]string{"--socket", socket, "upgrade", "--all"}, strings.Fields(c.args)...)
			if !strings.Contains(c.args, "://") {
				args = append(args, "v.upgrade")
			}

			var out bytes.Buffer
			cmd := rootCommand()
			cmd.SetIn(null)
			cmd.SetOut(&out)
			cmd.SetErr(&bytes.Buffer{})
			cmd.SetArgs(args)
			err = cmd.ExecuteContext(ctx)
			if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}

			if usage := (*usageError)(nil); err != nil && errors.As(err, &usage) != (c.code == exitUsage) {
				t.Errorf("%v, want exit status %d", err, c.code)
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
				if !filepath.IsAbs(q.Path) {
					t.Errorf("asked %+v", q)
				}
			}

			if fmt.Sprint(dry) != fmt.Sprint(c.dry) {
				t.Errorf("asked %v, want %v", dry, c.dry)
			}
		})
	}
}
