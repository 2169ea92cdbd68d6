package supervisor

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/life"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// A change of the network cannot be kept that takes away the address by which
// the other nodes know this one.
func TestNetworkKeepsTheNodesAddress(t *testing.T) {
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.RuntimeDir = filepath.Join(dir, "run")
	cfg.Storage.Path = filepath.Join(dir, "shared")
	cfg.Peering.Enabled = true
	s := New(Options{
		Log:  slog.New(slog.DiscardHandler),
		Base: setup.Base{DataDir: cfg.DataDir, RuntimeDir: cfg.RuntimeDir},
	})

	var err error
	if s.node, err = life.New(life.Config{
		Settings: &cfg,
		Board:    status.NewBoard(),
		Log:      s.opt.Log,
		Now:      s.opt.Now,
	}); err != nil {
		t.Fatal(err)
	}

	for address, want := range map[string]string{
		"192.0.2.77": "would lose 192.0.2.77",
		"127.0.0.1":  "nothing is being tried",
	} {
		cfg.Peering.Address = address
		_, err := s.guide().tryNetwork(t.Context(), api.NetworkRequest{Action: "confirm"})
		if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
