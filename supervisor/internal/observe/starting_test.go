package observe

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// TestStartingNodeIsNotHealthy: a ping through the front succeeds before the node's own check of a service
// does. Until then no state of the service, on a node alone or with others, gives a healthy node, and the
// first line says which service starts.
func TestStartingNodeIsNotHealthy(t *testing.T) {
	alone := map[string]status.Health{
		status.MasterService:   status.NotServing,
		status.BalancerService: status.NotServing,
		status.APIService:      status.Degraded,
	}
	states := []service.State{service.Waiting, service.Starting, service.Stopping}
	for name, want := range alone {
		for _, state := range states {
			for _, others := range []int{0, 2} {
				t.Run(name+" "+string(state)+" beside "+string(rune('0'+others)), func(t *testing.T) {
					cfg := settings.Default("sca-1")
					cfg.DataDir, cfg.RuntimeDir, cfg.Storage.Path = "/data", t.TempDir(), "/data/cluster"
					o := New(Config{
						Settings: &cfg,
						Started:  now,
						Board:    status.NewBoard(),
						Now:      func() time.Time { return now },
					})

					f := healthyFacts(&cfg)
					f.name = cfg.Node
					f.services = append(f.services,
						service.Info{Name: status.APIService, State: service.Running, Since: now})
					for i := range others {
						f.Others = append(f.Others, status.Node{Name: "n" + string(rune('2'+i)), State: "ready", Master: "ok"})
					}
					if d := o.compose(f); d.Health != status.Healthy || d.Exit != status.ExitHealthy {
						t.Fatalf("all run: %s, exit %d: %+v", d.Health, d.Exit, d.Problems)
					}

					i := slices.IndexFunc(f.services, func(i service.Info) bool { return i.Name == name })
					f.services[i].State, f.services[i].Message = state, "waiting for it to answer (connection refused)"
					want := want
					if others > 0 {
						want = status.Degraded
					}
					d := o.compose(f)
					if name == status.BalancerService && len(d.Problems) > 0 {
						want = status.NotServing // a load balancer that is down is a fault
					}
					if d.Health != want || d.Exit != want.Exit() || d.Serves() != (want == status.Degraded) ||
						(d.Nodes[0].State == "ready") != d.Serves() {
						t.Errorf("%s, exit %d, node %s, want %s: %+v", d.Health, d.Exit, d.Nodes[0].State, want, d.Problems)
					}

					var text bytes.Buffer
					if err := status.WriteText(&text, d); err != nil {
						t.Fatal(err)
					}
					first, _, _ := strings.Cut(text.String(), "\n")
					if said := strings.Contains(first, "  starting: "+name); said != (state == service.Starting) {
						t.Errorf("the first line is %q", first)
					}
				})
			}
		}
	}
}
