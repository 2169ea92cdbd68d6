package sharedvolume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/supervisor/internal/child"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// testVolume returns the volume of a node that is alone, and what it logs.
func testVolume(t *testing.T) (*Volume, *settings.Settings, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.RuntimeDir = filepath.Join(dir, "run")
	cfg.Storage.Kind = settings.VolumeStorage
	cfg.Storage.Path = filepath.Join(dir, "cluster")
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}

	log := &bytes.Buffer{}
	env := child.Env{
		Settings:   &cfg,
		Log:        slog.New(slog.NewTextHandler(log, nil)),
		Now:        time.Now,
		Executable: "/bin/false",
	}
	return New(&cfg, env, layout.Account{}, nil), &cfg, log
}

// TestWithoutVolume: a node whose files lie in a directory has no volume, and says so.
func TestWithoutVolume(t *testing.T) {
	cfg := settings.Default("n1")
	v := New(&cfg, child.Env{Settings: &cfg}, layout.Account{}, nil)
	if v != nil || v.Facts() != nil || v.StorageManager() != nil {
		t.Errorf("%+v", v)
	}
}

// TestFeed: the manager gets each new table of nodes. A broken one is reported once, and changes
// nothing.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, cfg, log := testVolume(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			v.feed(ctx)
		}()

		var table nodes.Table
		write := func(text []byte) {
			path := filepath.Join(cfg.DataDir, nodes.File)
			if err := os.WriteFile(path+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}

		for i, name := range []string{"n1", "n2"} {
			table.Version++
			table.Nodes = append(table.Nodes, nodes.Node{
				Name:        name,
				Address:     "10.0.0." + name[1:],
				State:       nodes.Member,
				Certificate: strings.Repeat(name[1:], 64),
				Storage:     "data",
				Brick:       "/bricks/1",
			})
			table.Cluster, table.KeyHash = "c", strings.Repeat("0", 64)
			text, err := json.Marshal(table)
			if err != nil {
				t.Fatal(err)
			}

			write(text)
			if members := v.Desired().Members; len(members) != i+1 {
				t.Errorf("%d members of a table of %d: %s", len(members), i+1, log)
			}
		}

		write([]byte("{"))
		if members := v.Desired().Members; len(members) != 2 {
			t.Errorf("%d members after a broken table", len(members))
		}
		if n := strings.Count(log.String(), "the table of nodes cannot be used"); n != 1 {
			t.Errorf("reported %d times: %s", n, log)
		}

		cancel()
		<-ended
	})
}

// TestNewestFiles: files that could not be brought up to date are served as they are, with the reason.
func TestNewestFiles(t *testing.T) {
	v, cfg, _ := testVolume(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	newest := v.NewestFiles(ctx, cfg)
	if newest.Why == "" || newest.Direct || newest.Copy != cfg.MirrorDir() || newest.Source != cfg.Storage.Path {
		t.Errorf("%+v", newest)
	}
}

// TestReady: the master waits for the volume, with the volume's own words.
func TestReady(t *testing.T) {
	v, _, _ := testVolume(t)
	if facts := v.Facts(); facts.Ready || facts.Waiting == "" {
		t.Errorf("%+v", facts)
	}

	ready := v.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ready.Wait(ctx); err == nil || ready.String() != v.Facts().Waiting {
		t.Errorf("%v: %q, not %q", err, ready, v.Facts().Waiting)
	}

	if _, err := (noCluster{}).Sign(t.Context(), nil); !errors.Is(err, errNoCluster) {
		t.Errorf("%v", err)
	}
	var _ storage.Certifier = noCluster{}
}
