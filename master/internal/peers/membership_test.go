package peers

import (
	"errors"
	"fmt"
	"testing"

	"saltern/internal/control"
	"saltern/master/jobs"
)

// TestPeerBack: that no other master keeps returns is a problem until one is back,
// also when no job follows; another reason stays.
func TestPeerBack(t *testing.T) {
	var now error
	m := &Membership{problem: func(f control.Fault, err error) {
		if f != control.ClusterFault {
			t.Errorf("told as %s", f)
		}
		now = err
	}}

	m.degraded(fmt.Errorf("returns are kept by this master and the shared folder: %w", jobs.ErrNoPeer))
	if now == nil {
		t.Error("nothing is told")
	}

	m.peerBack()
	if now != nil {
		t.Errorf("a peer is back: %v", now)
	}

	full := errors.New("no space left on device")
	m.degraded(full)
	m.peerBack()
	if !errors.Is(now, full) {
		t.Errorf("the peer's disk is full: %v", now)
	}
}
