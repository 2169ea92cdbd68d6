package cluster

import (
	"slices"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

// TestLeave: when the owner leaves, another master owns the cluster within a second, before the one that
// left is closed; when that one leaves, the third. The last one that leaves waits for nobody.
func TestLeave(t *testing.T) {
	t.Parallel()
	all, _, _ := three(t, nil)
	ms := all[:]
	await.That(t, "an owner", func() bool { return slices.ContainsFunc(ms, owns) })

	lastFence := uint64(0)
	for len(ms) > 0 {
		i := slices.IndexFunc(ms, owns)
		if i < 0 {
			t.Fatalf("nobody of %d masters owns the cluster", len(ms))
		}
		leaving := ms[i]
		fence, _ := leaving.Own()
		if fence <= lastFence {
			t.Errorf("fence %d after %d", fence, lastFence)
		}
		lastFence = fence

		began := time.Now()
		check.Must(t, leaving.Leave(await.Context(t)))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the others took over after %v", took)
		}
		if owns(leaving) {
			t.Error("a master that has left owns the cluster")
		}

		leaving.Close()
		ms = slices.Delete(ms, i, i+1)
	}
}

func owns(m *member) bool {
	_, ok := m.Own()
	return ok
}
