package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// internal are words that only who writes these programs knows.
var internal = regexp.MustCompile(`\.after-|-tmp-|\.new-|\.lock|no such file|not a directory|is a directory|input/output|zmtp|errno|EOF|dial unix|\.ipc`)

// calls are what verbs ask of the supervisor.
func calls(c *api.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"config":       func(ctx context.Context) error { _, err := c.Config(ctx); return err },
		"minions":      func(ctx context.Context) error { _, err := c.Minions(ctx, true); return err },
		"tokens":       func(ctx context.Context) error { _, err := c.Tokens(ctx); return err },
		"git":          func(ctx context.Context) error { _, err := c.Git(ctx, false, ""); return err },
		"audit":        func(ctx context.Context) error { _, err := c.Audit(ctx, audit.Query{Last: 5}); return err },
		"storage":      func(ctx context.Context) error { _, err := c.Storage(ctx); return err },
		"backup list":  func(ctx context.Context) error { _, err := c.Backups(ctx); return err },
		"cluster keys": func(ctx context.Context) error { _, err := c.ClusterKeys(ctx); return err },
		"setup":        func(ctx context.Context) error { _, err := c.SetupProgress(ctx); return err },
		"reset plan":   func(ctx context.Context) error { _, err := c.PlanReset(ctx); return err },
		"join-string":  func(ctx context.Context) error { _, err := c.JoinString(ctx); return err },
		"ping":         func(ctx context.Context) error { _, err := c.Ping(ctx, "n1"); return err },
		"drain":        func(ctx context.Context) error { return c.Drain(ctx, "n1", false) },
		"undrain":      func(ctx context.Context) error { return c.Drain(ctx, "n1", true) },
		"remove":       func(ctx context.Context) error { return c.Remove(ctx, "n9", false) },
		"secret":       func(ctx context.Context) error { _, err := c.RotateSecret(ctx, false); return err },
		"cluster-key":  func(ctx context.Context) error { _, err := c.NewKey(ctx); return err },
		"virtual":      func(ctx context.Context) error { return c.SetVirtual(ctx, "127.0.0.9") },
		"turn":         func(ctx context.Context) error { return c.TakeTurn(ctx, false) },
		"end of turn":  func(ctx context.Context) error { return c.EndTurn(ctx) },
		"backup now":   func(ctx context.Context) error { return c.MakeBackup(ctx) },
		"keys": func(ctx context.Context) error {
			return c.ChangeKeys(ctx, api.KeyChange{Verb: "accept", IDs: []string{"m1"}})
		},
		"tokens revoke": func(ctx context.Context) error {
			_, err := c.RevokeTokens(ctx, control.Revocation{Name: "none"})
			return err
		},
		"apply": func(ctx context.Context) error { return c.Apply(ctx, api.ApplyRequest{Limit: 10 * time.Second}) },
	}
}

// TestVerbsWhileStorageIsAway asks everything of a node that was set up and whose shared
// folder has gone, and later is something else; its master runs and takes no questions. What people read
// has no word that only programs know (M5).
func TestVerbsWhileStorageIsAway(t *testing.T) {
	r, conf := newRun(t)
	shared := filepath.Join(r.dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}

	address := conf["master"].(map[string]any)["address"].(string)
	conf["peering"] = map[string]any{"node_port": 24521, "pool_port": 24520}
	base := setup.Base{DataDir: conf["data_dir"].(string), RuntimeDir: conf["runtime_dir"].(string)}
	for _, key := range []string{"node", "data_dir", "runtime_dir"} {
		delete(conf, key)
	}

	r.base = base
	r.start()
	r.until("not configured", func(d status.Document) bool { return d.Health == status.Unconfigured })
	answers := setup.Answers{Mode: setup.Form, Cluster: "c", Node: "n1", Address: address, Front: []string{address},
		Storage: setup.Storage{Kind: "directory", Path: shared}, Settings: conf}
	if err := r.client.SetupStart(t.Context(), answers); err != nil {
		t.Fatal(err)
	}

	r.until("serves", func(d status.Document) bool { return d.ServingSince != nil && d.Setup == status.SetupReady })

	ask := func(how string) {
		for name, call := range calls(r.client) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			err := call(ctx)
			cancel()
			if err == nil {
				continue
			}

			if word := internal.FindString(err.Error()); word != "" {
				t.Errorf("%s, %s says %q: %v", how, name, word, err)
			}
		}
	}

	if err := os.Rename(shared, shared+".away"); err != nil {
		t.Fatal(err)
	}

	ask("away")
	if err := os.RemoveAll(shared); err != nil { // the node may have made it anew
		t.Fatal(err)
	}

	if err := os.WriteFile(shared, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	ask("a file")
	if err := errors.Join(os.Remove(shared), os.Rename(shared+".away", shared)); err != nil {
		t.Fatal(err)
	}
}
