package observe

import (
	"slices"
	"testing"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// told keeps what the service manager is told.
type told []string

func (t *told) Notify(state string) { *t = append(*t, state) }

// TestNodeWhoseMountComesLate: the masters of other nodes answer at the front of a node whose own master waits for
// the shared volume. Minions can work with it; but it does not serve by itself, which is what an upgrade
// and the service manager ask for.
func TestNodeWhoseMountComesLate(t *testing.T) {
	const comes = 40 * time.Second
	for name, c := range map[string]struct {
		comes time.Duration
		ready time.Duration // when the service manager is told
	}{
		"it comes":    {comes, comes},
		"it does not": {time.Hour, readyAnyway + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			clock := began
			cfg := settings.Default("sca-1")
			cfg.DataDir, cfg.RuntimeDir, cfg.Storage.Path = "/data", t.TempDir(), "/data/cluster"
			var lines told
			o := New(Config{
				Settings: &cfg,
				Started:  began,
				Board:    status.NewBoard(),
				Now:      func() time.Time { return clock },
				Notify:   &lines,
			})

			for at := time.Duration(0); at < 70*time.Second; at += time.Second {
				clock = began.Add(at)
				f := healthyFacts(&cfg)
				f.now, f.name = clock, cfg.Node
				f.Others = []status.Node{{Name: "sca-2", State: "ready", Master: "ok"}}

				if at < c.comes {
					f.services[0] = service.Info{
						Name:    status.MasterService,
						State:   service.Waiting,
						Since:   began,
						Message: "waiting for the shared storage",
					}

					f.Volume = &storage.State{
						Waiting:  "the shared volume to be mounted",
						Problems: []status.Finding{{Code: status.VolumeAbsent}},
					}
				}

				d := o.compose(f)
				o.notify(d)

				if !d.Serves() || d.ServesItself() != (at >= c.comes) {
					t.Fatalf("after %s: serves %t, by itself %t: %s, master %s, storage %s", at, d.Serves(),
						d.ServesItself(), d.Health, d.Nodes[0].Master, d.Nodes[0].Storage)
				}

				if ready := slices.Contains(lines, "READY=1"); ready != (at >= c.ready) {
					t.Fatalf("after %s the service manager was told of a start: %t", at, ready)
				}
			}
		})
	}
}
