package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// typed runs a command line as main does.
func typed(ctx context.Context, args ...string) (out, errs string, err error) {
	root := rootCommand()
	var o, e bytes.Buffer
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

// TestConfigCheck: a file that is right is said to be, one that is wrong is
// told with all its faults at once.
func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, text string
		right      string
		wrong      []string
	}{
		{"appliance.yaml", "node: sca-1\ncluster: prod\n", "is right: node sca-1, cluster prod", nil},
		{"faults.yaml", "node: \"not a name\"\nfront: {publish_port: 70000}\nnonsense: 1\n", "",
			[]string{"node", "70000", "nonsense"}},
		{"answers.yaml", "mode: form\ncluster_id: prod\nnode: sca-1\n", "is right: answers to form cluster prod", nil},
		{"wrong-answers.yaml", "mode: join\nnode: \"a b\"\npeers: [\"x y\"]\nsecret: short\n", "",
			[]string{"is not a host name", "shorter than 16", "x y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}

			out, _, err := typed(t.Context(), "config", "check", path)
			if tt.right != "" && (err != nil || !strings.Contains(out, tt.right)) {
				t.Errorf("%q %v", out, err)
			}

			for _, want := range tt.wrong {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %q %v", want, out, err)
				}
			}
		})
	}

	_, errs, err := typed(t.Context(), "--config", filepath.Join(dir, "none.yaml"), "config", "check")
	var code exitError
	if !errors.As(err, &code) || int(code) != status.ExitUnconfigured || errs == "" {
		t.Errorf("no file: %q %v", errs, err)
	}

	out, _, err := typed(t.Context(), "config", "schema")
	var schema map[string]any
	if err != nil || json.Unmarshal([]byte(out), &schema) != nil || schema["$schema"] == nil ||
		schema["properties"] == nil {
		t.Errorf("schema: %v %.200s", err, out)
	}
}

// told is a supervisor that only has a status.
type told struct {
	mu    sync.Mutex
	asked int
	over  context.CancelFunc // called when it is asked for the third time
}

func (n *told) Status() status.Document {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.asked == 3 {
		n.over()
	}

	return status.Document{
		Schema:  status.Schema,
		Time:    time.Unix(1000, 0),
		Health:  status.Degraded,
		Exit:    status.ExitDegraded,
		Setup:   status.SetupReady,
		Node:    "sca-1",
		Cluster: "prod",
	}
}

// TestStatusWatch prints the status again and again until it is interrupted;
// then the last one gives the exit code.
func TestStatusWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := filepath.Join(t.TempDir(), "s")
	node := &told{over: cancel}
	server := api.NewServer(api.Config{Handlers: shownHandlers(node.Status), Log: slog.New(slog.DiscardHandler)})
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}

	served, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Serve(served, l) }()
	defer func() { stop(); <-ended }()

	out, errs, err := typed(ctx, "--socket", socket, "status", "--watch", "--interval", "1ms")
	var code exitError
	if n := strings.Count(out, "DEGRADED"); n < 2 || !errors.As(err, &code) ||
		int(code) != status.ExitDegraded || errs != "" {
		t.Errorf("%d times, %v:\n%s%s", n, err, out, errs)
	}

	out, _, err = typed(t.Context(), "--socket", socket, "status", "--json")
	var d status.Document
	if json.Unmarshal([]byte(out), &d) != nil || d.Schema != status.Schema || !errors.As(err, &code) ||
		int(code) != status.ExitDegraded {
		t.Errorf("%v %s", err, out)
	}
}
