package life

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// testLife returns a life of a node in a folder of the test. change changes its settings before.
func testLife(t *testing.T, change func(*settings.Settings)) *Life {
	t.Helper()
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.RuntimeDir = filepath.Join(dir, "run")
	cfg.Storage.Path = filepath.Join(dir, "cluster")
	change(&cfg)

	log := slog.New(slog.DiscardHandler)
	n, err := New(Config{
		Settings:   &cfg,
		Board:      status.NewBoard(),
		Log:        log,
		Now:        time.Now,
		Started:    time.Now(),
		Executable: filepath.Join(dir, "applianced"),
		Notify:     systemd.Nobody{},
		Recovery:   recovery.New(dir, log),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Close)
	return n
}

// inCluster changes the settings to those of a node of a cluster of n1, n2 and the arbiter n3.
func inCluster(t *testing.T, self string) func(*settings.Settings) {
	return func(cfg *settings.Settings) {
		t.Helper()
		cfg.Node = self
		cfg.Peering.Enabled = true
		cfg.Storage.Kind = settings.VolumeStorage
		if err := os.MkdirAll(cfg.NodeDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		id, err := nodeapi.LoadIdentity(cfg.NodeDir())
		if err != nil {
			t.Fatal(err)
		}

		table := nodes.Table{Version: 1, Cluster: "c", KeyHash: fmt.Sprintf("%064d", 0)}
		for i, storage := range []string{"data", "data", nodes.ArbiterStorage} {
			n := nodes.Node{
				Name:        fmt.Sprintf("n%d", i+1),
				Address:     fmt.Sprintf("127.0.75.%d", i+1),
				State:       nodes.Member,
				Certificate: fmt.Sprintf("%064d", i+1),
				Storage:     storage,
				Brick:       "/bricks/1",
			}
			if n.Name == self {
				n.Certificate = id.Hash
			}
			table.Nodes = append(table.Nodes, n)
		}

		text, err := json.Marshal(table)
		if err == nil {
			err = os.WriteFile(filepath.Join(cfg.DataDir, nodes.File), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestServices: a node runs the services that its settings ask for, and an arbiter none for minions.
func TestServices(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*settings.Settings)
		has    string
		lacks  string
	}{
		"alone": {
			change: func(*settings.Settings) {},
			has:    "master lb packages observe options upgrades",
			lacks:  "member removed volume webhook channel window backups",
		},
		"without its optional programs": {
			change: func(s *settings.Settings) { s.API.Enabled, s.LB.Enabled = false, false },
			has:    "master",
			lacks:  "api lb",
		},
		"with all that may be set": {
			change: func(s *settings.Settings) {
				s.API.Enabled = true
				s.Webhook.Listen = "127.0.0.1:0"
				s.Upgrade = settings.Upgrade{URL: "https://files.example.net/v", Window: "Sat 02:00-04:00"}
				s.Backup = settings.Backup{Every: "6h", To: "/backups", Keep: 3}
			},
			has: "api webhook channel window backups",
		},
		"member":  {change: inCluster(t, "n1"), has: "master lb volume member removed"},
		"arbiter": {change: inCluster(t, "n3"), has: "volume member removed observe", lacks: "master lb api packages"},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, spec := range testLife(t, c.change).serviceSpecs() {
				names = append(names, spec.Name)
			}

			for want := range strings.FieldsSeq(c.has) {
				if !slices.Contains(names, want) {
					t.Errorf("no service %s: %q", want, names)
				}
			}
			for not := range strings.FieldsSeq(c.lacks) {
				if slices.Contains(names, not) {
					t.Errorf("there is a service %s: %q", not, names)
				}
			}
		})
	}
}

// TestAPIService: salt-api can be restarted where the settings enable it.
func TestAPIService(t *testing.T) {
	for _, on := range []bool{true, false} {
		n := testLife(t, func(s *settings.Settings) { s.API.Enabled = on })
		if there := slices.ContainsFunc(n.manager.Services(0),
			func(i service.Info) bool { return i.Name == status.APIService }); there != on {
			t.Errorf("enabled %t: %+v", on, n.manager.Services(0))
		}

		if err := n.manager.Restart(status.APIService); (err == nil) != on {
			t.Errorf("enabled %t: restart: %v", on, err)
		}
	}
}

// A node without a volume serves its own directory.
func TestNewestWithoutVolume(t *testing.T) {
	if n := (server{}).newest(t.Context(), &Life{}); !n.Direct {
		t.Errorf("%+v", n)
	}
}

// serveMethods serves the methods of a life, and returns their client.
func serveMethods(t *testing.T, n *Life) *api.Client {
	t.Helper()
	handlers := &rpc.Handlers{}
	n.Register(handlers)
	server := api.NewServer(api.Config{Handlers: handlers, Settings: n.cfg.Settings, Log: n.cfg.Log})
	socket := filepath.Join(t.TempDir(), "api.sock")
	listener, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func(l net.Listener) { ended <- server.Serve(ctx, l) }(listener)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return api.NewClient(socket)
}

// TestEveryMethodHasAFunction: a node that lacks nothing has a function for each row of the local API. A row
// that is never registered would answer with what it needs, on a node that has it.
func TestEveryMethodHasAFunction(t *testing.T) {
	// The supervisor registers these on every machine.
	everywhere := []string{
		api.ReadStatus.Route, api.ReadConfig.Route, api.CheckConfig.Route, api.SetConfig.Route, api.Reload.Route,
		api.PlanReset.Route, api.ResetNode.Route, api.ReadReset.Route,
		api.ReadSetup.Route, api.ReadFacts.Route, api.CheckAnswers.Route, api.RunPreflight.Route, api.StartSetup.Route,
		api.RetrySetup.Route, api.LeaveSetup.Route, api.TryNetwork.Route, api.ClaimSetup.Route,
	}
	n := testLife(t, func(s *settings.Settings) {
		inCluster(t, "n1")(s)
		s.Backup = settings.Backup{Every: "6h", To: "/backups", Keep: 3}
	})
	handlers := &rpc.Handlers{}
	n.Register(handlers)

	for _, route := range handlers.Missing(api.Table) {
		if !slices.Contains(everywhere, route) {
			t.Errorf("%s has no function: register it, see docs/recipes.md", route)
		}
	}
}

// TestMethods: the local API answers for what a node has, and says what it lacks.
func TestMethods(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		c := serveMethods(t, testLife(t, func(*settings.Settings) {}))
		if _, err := c.Log(t.Context(), "nobody", api.LogQuery{Last: 3}); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("the log of no service: %v", err)
		}
		if page, err := c.Log(t.Context(), status.MasterService, api.LogQuery{Last: 3}); err != nil || len(page.Lines) != 0 {
			t.Errorf("an empty log: %+v %v", page, err)
		}
		if err := c.Restart(t.Context(), "nobody"); err == nil {
			t.Error("no service was restarted")
		}
		if err := c.Restart(t.Context(), status.MasterService); err != nil {
			t.Errorf("restart the master: %v", err)
		}
		if _, err := c.Backups(t.Context()); !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "backup.every") {
			t.Errorf("backups: %v", err)
		}
		if err := c.Drain(t.Context(), "n2", false); !errors.Is(err, api.ErrState) {
			t.Errorf("drain: %v", err)
		}
		if turn, err := c.Turn(t.Context()); err != nil || !turn.Alone {
			t.Errorf("turn: %+v %v", turn, err)
		}
	})

	t.Run("arbiter", func(t *testing.T) {
		c := serveMethods(t, testLife(t, inCluster(t, "n3")))
		refusals := map[string]error{}
		_, refusals["minions"] = c.Minions(t.Context(), false)
		_, refusals["tokens"] = c.Tokens(t.Context())
		refusals["keys"] = c.ChangeKeys(t.Context(), api.KeyChange{})
		refusals["drain"] = c.Drain(t.Context(), "n2", false)
		for what, err := range refusals {
			if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "do it on n1 or n2") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestKnown: the status learns what stands against the node's own files and settings.
func TestKnown(t *testing.T) {
	n := testLife(t, func(*settings.Settings) {})
	n.cfg.Differs = errors.New("the table of nodes has another address")
	n.cfg.ConfigPath = "/etc/appliance.yaml"
	k := n.statusFacts()
	if k.Role != status.RoleSingle || k.Volume != nil || k.Setup != "" {
		t.Errorf("%+v", k)
	}
	if !slices.ContainsFunc(k.Own, func(f status.Finding) bool {
		return f.Code == status.ConfigDiffers && f.Subject == n.cfg.ConfigPath && f.Cause != ""
	}) {
		t.Errorf("no finding of a file that is not followed: %+v", k.Own)
	}

	member := testLife(t, inCluster(t, "n1"))
	if k := member.statusFacts(); len(k.Others) != 2 || k.Volume == nil {
		t.Errorf("%d other nodes, volume %v", len(k.Others), k.Volume)
	}
	if member.Copied() != "" || n.Copied() != "" {
		t.Error("a node that nobody copied may not act")
	}
}
