package life

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// TestAPIService: a node has the service where the settings say so.
func TestAPIService(t *testing.T) {
	for _, on := range []bool{true, false} {
		dir := t.TempDir()
		cfg := settings.Default("n1")
		cfg.DataDir = filepath.Join(dir, "data")
		cfg.RuntimeDir = filepath.Join(dir, "run")
		cfg.Storage.Path = filepath.Join(dir, "cluster")
		cfg.API.Enabled = on
		log := slog.New(slog.DiscardHandler)
		n, err := New(Config{
			Settings:   &cfg,
			Board:      status.NewBoard(),
			Log:        log,
			Now:        time.Now,
			Executable: filepath.Join(dir, "applianced"),
			Notify:     systemd.Nobody{},
			Recovery:   recovery.New(dir, log),
		})
		if err != nil {
			t.Fatal(err)
		}

		if there := slices.ContainsFunc(n.manager.Services(0),
			func(i service.Info) bool { return i.Name == status.APIService }); there != on {
			t.Errorf("enabled %t: %+v", on, n.manager.Services(0))
		}

		if err := n.manager.Restart(status.APIService); (err == nil) != on {
			t.Errorf("enabled %t: restart: %v", on, err)
		}

		n.Close()
	}
}
