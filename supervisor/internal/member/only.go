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
	// onlyTakes bounds the wait until it is known that this machine is the only one.
	onlyTakes = 2 * keyuse.SettledAfter
)

// beOnly waits until the others would have noticed another machine with this node's key, and
// returns an error when there is one, or when that cannot be told in time. It is for what
// cannot be taken back: a copy that leaves takes the node out.
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

// notOnly says why it is not known yet that this machine is the only one; "": it is.
func (m *Member) notOnly(asked time.Time) string {
	if m.env.Now().Sub(m.uses.began) < keyuse.SettledAfter {
		return "it runs for a few seconds only"
	}
	if why := m.marks.doubt(); why != "" {
		return why
	}
	if !m.peers.answeredSince(asked) {
		return "no other node answers"
	}
	return ""
}
