package storage

import (
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/supervisor/nodes"
)

// A brick that runs and is not found for a minute has glusterd started anew, once in a while;
// not the brick of another node, one that does not run, nor one that is found in time.
func TestHiddenBrick(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := New(Config{
		Self:   "n1",
		Volume: "cluster",
		Mount:  "/srv/cluster",
		Dir:    t.TempDir(),
		Now:    func() time.Time { return now },
	})

	m.table = nodes.Table{Nodes: []nodes.Node{
		{Name: "n1", Address: "192.0.2.1", State: nodes.Member, Storage: "data", Brick: "/b/1"},
		{Name: "n2", Address: "192.0.2.2", State: nodes.Member, Storage: "data", Brick: "/b/1"},
	}}

	look := func(online, found, otherFound bool) string {
		m.setObservation(&glusterctl.Observation{
			Volume:    &cli.Volume{Replica: 2, Bricks: []cli.Brick{{Name: "n1:/b/1"}, {Name: "n2:/b/1"}}},
			Processes: []cli.Process{{Name: "n1:/b/1", Online: online}, {Name: "n2:/b/1", Online: true}},
			Heal:      []cli.Heal{{Brick: "n1:/b/1", Connected: found}, {Brick: "n2:/b/1", Connected: otherFound}},
		}, true)

		m.mu.Lock()
		defer m.mu.Unlock()
		return m.takeForgotten()
	}

	wait := func(d time.Duration) { now = now.Add(d) }
	for range 5 {
		if why := look(true, true, false); why != "" {
			t.Fatalf("the other one is not found: %s", why)
		}
		if why := look(false, false, true); why != "" {
			t.Fatalf("the own one does not run: %s", why)
		}
		wait(time.Minute)
	}

	look(true, false, true)
	wait(59 * time.Second)
	if why := look(true, false, true); why != "" {
		t.Errorf("after 59 s: %s", why)
	}

	look(true, true, true)
	wait(time.Minute)
	if why := look(true, false, true); why != "" {
		t.Errorf("it was found meanwhile: %s", why)
	}

	wait(time.Minute)
	if look(true, false, true) == "" {
		t.Error("after a minute glusterd goes on as it is")
	}

	wait(startedFor)
	if why := look(true, false, true); why != "" {
		t.Errorf("it was started a moment ago: %s", why)
	}

	wait(hiddenLimit)
	if look(true, false, true) == "" {
		t.Error("it is not started again")
	}
}
