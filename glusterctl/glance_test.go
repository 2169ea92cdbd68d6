package glusterctl_test

import (
	"testing"

	"saltern/glusterctl/mount"
)

// A glance starts no command, and sees a node, glusterd or brick that is gone.
func TestGlance(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(r *rig)
		same  bool
	}{
		{"nothing", func(*rig) {}, true},
		{"another node", func(r *rig) { r.pool.Kill("node3", false) }, false},
		{"glusterd here", func(r *rig) { r.pool.Kill("node1", false) }, false},
		{"a process here", func(r *rig) { r.dead = 100 }, false},
		{"a process elsewhere, which is not to be seen", func(r *rig) { r.dead = 101 }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := form(t, 3)
			d := want("node1", "1", "2", "3")
			o, err := r.Observe(t.Context(), d)
			if err != nil || o.Mount == nil || len(o.Processes) < 3 {
				t.Fatalf("%v %+v", err, o)
			}

			for i := range o.Processes {
				o.Processes[i].PID = 100 + i
			}

			tt.spoil(r)
			ran := r.ran.Load()
			now, same := r.Glance(t.Context(), d, o, *o.Mount)
			if same != tt.same {
				t.Errorf("the same: %v", same)
			}

			if same && (now.Volume != o.Volume || now.Mount.State != mount.OK || !now.Reachable["10.0.0.3"]) {
				t.Errorf("%+v", now)
			}

			if _, same := r.Glance(t.Context(), d, o, mount.Health{State: mount.Hung}); same {
				t.Error("a mount that hangs is not seen")
			}

			if r.ran.Load() != ran {
				t.Errorf("%d commands were run", r.ran.Load()-ran)
			}
		})
	}
}
