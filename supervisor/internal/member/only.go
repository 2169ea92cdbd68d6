package member

import (
	"context"
	"fmt"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/keyuse"
)

const (
	// onlyTakes is the longest time that beOnly waits.
	onlyTakes = 2 * keyuse.SettledAfter
)

// beOnly waits until the other nodes would have noticed a second machine with this node's key. It
// returns an error if there is such a machine, or if that is still unknown after onlyTakes. Call it
// before actions that cannot be undone: for example, if a copy of this machine left the cluster,
// the node itself would be removed.
func (m *Member) beOnly(ctx context.Context) error {
	asked := m.env.Now()
	for {
		if err := m.uses.mayAct(); err != nil {
			return err
		}

		why := m.notOnly(asked)
		if why == "" {
			return nil
		}
		if m.env.Now().Sub(asked) >= onlyTakes {
			return fmt.Errorf("%w: whether another machine uses this node's key cannot be told yet: %s; try again when that has changed",
				api.ErrState, why)
		}

		if err := pause.For(ctx, time.Second); err != nil {
			return fmt.Errorf("wait until it is known that no other machine uses this node's key (%s): %w", why, err)
		}
	}
}

// notOnly returns why it is still unknown whether this machine is the only one, or "".
// waitingSince is when beOnly began to wait.
func (m *Member) notOnly(waitingSince time.Time) string {
	if m.env.Now().Sub(m.uses.began) < keyuse.SettledAfter {
		return "it runs for a few seconds only"
	}
	if why := m.marks.twinDoubt(); why != "" {
		return why
	}
	if !m.peers.answeredSince(waitingSince) {
		return "no other node answers"
	}
	return ""
}
