package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/supervisor/api"
)

// The cluster's secret changes in two steps, which are recorded in the masters' record on the
// shared storage, so that any node can continue after an interruption:
//
// 1. The record names the next secret. Each node writes that secret to its
//    own disk and sends the secret's fingerprint to the other nodes. Both secrets are valid.
// 2. When every node has the next secret, it replaces the present one in the
//    record. The nodes follow, and the old secret is no longer valid.
//
// A node that was unreachable reads the record when it is back: it belongs to the cluster by its
// key, not by the secret. The removal of a node creates a new secret at once, and ends a change
// that is under way.

// RotateSecret replaces the secret of the cluster. After an interruption it may be called again. If
// force is set, it skips unreachable nodes and returns their names in without.
func (m Verbs) RotateSecret(ctx context.Context, force bool) (without []string, err error) {
	if m.env.Settings.Arbiter {
		return nil, m.peers.noMaster("change the secret")
	}

	if err := m.uses.mayAct(); err != nil {
		return nil, fmt.Errorf("change the secret: %w", err)
	}

	if err := m.LookForSecret(); err != nil {
		return nil, fmt.Errorf("read the present secret: %w", err)
	}

	before := m.shared.fingerprints().own
	if err := m.cfg.Master.StageSecret(ctx); err != nil {
		return nil, fmt.Errorf("make the next secret: %w; the present one holds", err)
	}

	next, without, err := m.spreadSecret(ctx, force, before)
	if err != nil {
		return nil, err
	}

	replaced := func() bool { _ = m.LookForSecret(); return m.shared.fingerprints().own == next }
	if err := m.cfg.Master.CommitSecret(ctx, next); err != nil && !replaced() {
		return nil, fmt.Errorf("put the next secret in its place: %w; the present one holds; try again: applianced secret rotate",
			err)
	}

	err = m.awaitNodes(ctx, func(have map[string]secretNames, away []string) (bool, string) {
		for _, name := range nodeNames(have) {
			if have[name].own != next {
				return false, name + " to use it"
			}
		}
		return true, ""
	})
	if err != nil { // the new secret is valid even after this error
		return without, fmt.Errorf("the secret was changed, but %w; applianced join-string on another node shows whether it has it",
			err)
	}

	return without, nil
}

// spreadSecret waits until every node has the next secret on its disk, and returns that secret's
// fingerprint. If another administrator replaces the secret during the wait, by rotate or remove,
// spreadSecret returns the fingerprint of the new secret. before is the fingerprint at the start;
// without names the unreachable nodes.
func (m Verbs) spreadSecret(ctx context.Context, force bool, before string) (next string, without []string, err error) {
	var refused error
	err = m.awaitNodes(ctx, func(have map[string]secretNames, away []string) (bool, string) {
		mine := have[m.env.Settings.Node]
		if next = mine.next; next == "" && mine.own != before {
			next, without = mine.own, away
			return true, ""
		}
		if next == "" {
			return false, "this node to write it down"
		}

		for _, name := range nodeNames(have) {
			switch other := have[name].next; {
			case other != "" && !strings.HasPrefix(other, control.FingerPrefix):
				return false, name + " to be upgraded to the version of " + m.env.Settings.Node
			case other != next:
				return false, name + " to write it down"
			}
		}

		without = away
		if len(away) > 0 && !force {
			refused = fmt.Errorf("%w: %s cannot be reached and has not taken the new secret; the present one holds until then, join strings of now as well. "+
				"Start it and run applianced secret rotate again; if it comes back later: applianced secret rotate --force, it takes the secret when it is back; if it is gone for good: applianced remove %s",
				api.ErrState, strings.Join(away, ", "), away[0])
		}

		return true, ""
	})
	if err != nil {
		return "", nil, fmt.Errorf("%w; the present secret holds; try again: applianced secret rotate", err)
	}

	return next, without, refused
}

// nodeNames returns the names of the nodes in have, sorted.
func nodeNames(have map[string]secretNames) []string { return slices.Sorted(maps.Keys(have)) }

// awaitNodes calls done several times a second until done returns true. have holds the secrets of
// the nodes that answer, including this one. away holds the names of the nodes that do not. The
// text that done returns says what is missing.
func (m Verbs) awaitNodes(
	ctx context.Context,
	done func(have map[string]secretNames, away []string) (bool, string),
) error {
	for {
		have, away, waits := m.peers.secrets()
		have[m.env.Settings.Node] = m.shared.fingerprints()
		ok := waits == ""
		if ok {
			ok, waits = done(have, away)
		}
		if ok {
			return nil
		}
		if pause.For(ctx, 300*time.Millisecond) != nil {
			return fmt.Errorf("%w: still waits for %s", api.ErrState, waits)
		}
	}
}
