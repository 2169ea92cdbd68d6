package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
)

// The cluster's secret is changed in two steps that the masters' record on the
// shared storage keeps, so that whoever is interrupted goes on from there:
//
//  1. The record names the next secret. Each node writes it to its own disk and
//     says so to the others; both secrets count.
//  2. When every node has it, it takes the place of the present one in the
//     record. The nodes follow; the old one counts no more.
//
// A node that was away finds the record when it is back: it belongs to the
// cluster by its key, not by the secret. Removing a node makes a new secret at
// once, and an end of a change under way.

// maxRecord bounds the masters' record: 64 masters and 256 removed ones with their keys.
const maxRecord = 4 << 20

// takeSecret takes the masters' secrets for the node API as well. It runs in
// the worker of the shared storage.
func (m *member) takeSecret() {
	b, err := layout.ReadFile(m.n.cfg.ClusterRecord(), maxRecord, 0)
	var r struct {
		Seed   string `json:"seed"`
		Secret string `json:"secret"`
		Next   string `json:"next_secret"`
	}
	if err != nil || json.Unmarshal(b, &r) != nil {
		return
	}
	if err := m.keepSecrets(r.Seed, r.Secret, r.Next); err != nil {
		m.n.opt.Log.Error("the cluster's new secret", "error", err)
	}
}

// keepSecrets brings this node's files in line with the record: first the secret,
// then what is to follow it.
func (m *member) keepSecrets(seed, secret, next string) error {
	dir := m.n.cfg.NodeDir()
	own, err := setup.ReadSecret(dir)
	if err != nil {
		return err
	}
	if secret != "" && secret != own {
		if err := setup.WriteSecret(dir, secret); err != nil {
			return err
		}
		if err := m.n.writeSecret(); err != nil {
			return err
		}
		own = secret
		m.n.opt.Log.Info("the cluster has a new secret; join strings of before are void")
	}
	staged, err := setup.ReadNextSecret(dir)
	if err != nil {
		return err
	}
	if staged != next {
		if err := setup.WriteNextSecret(dir, next); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.secrets = secretNames{own: setup.SecretFinger(seed, own), next: setup.SecretFinger(seed, next), weak: own != "" && setup.WeakSecret(own) != ""}
	return nil
}

// secretNames are the fingerprints of the secrets on this node's disk.
type secretNames struct {
	own, next string
	weak      bool // the present one is easy to guess
}

// RotateSecret implements api.Cluster. It may be called again after whatever
// interrupted it. force goes on without nodes that cannot be reached.
func (s *Supervisor) RotateSecret(ctx context.Context, force bool) (without []string, err error) {
	m, err := s.ours()
	if err != nil {
		return nil, err
	}
	if err := m.n.saltRun(ctx, "cluster.secret_next"); err != nil {
		return nil, fmt.Errorf("make the next secret: %w; the present one holds", err)
	}
	next, without, err := m.spreadSecret(ctx, force)
	if err != nil {
		return nil, err
	}
	if err := m.n.saltRun(ctx, "cluster.secret_commit", next); err != nil {
		return nil, fmt.Errorf("put the next secret in its place: %w; the present one holds; try again: applianced secret rotate", err)
	}
	err = m.await(ctx, func(have map[string]secretNames, away []string) (bool, string) {
		for _, name := range names(have) {
			if have[name].own != next {
				return false, name + " to use it"
			}
		}
		return true, ""
	})
	if err != nil { // it holds all the same
		return without, fmt.Errorf("the secret was changed, but %w; applianced join-string on another node shows whether it has it", err)
	}
	return without, nil
}

// spreadSecret waits until every node has the next secret on its disk, and
// names it.
func (m *member) spreadSecret(ctx context.Context, force bool) (next string, without []string, err error) {
	var refused error
	err = m.await(ctx, func(have map[string]secretNames, away []string) (bool, string) {
		next = have[m.n.cfg.Node].next
		if next == "" {
			return false, "this node to write it down"
		}
		for _, name := range names(have) {
			switch other := have[name].next; {
			case other != "" && !strings.HasPrefix(other, setup.FingerPrefix):
				return false, name + " to be upgraded to the version of " + m.n.cfg.Node
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

// names are the names in order.
func names(have map[string]secretNames) []string {
	var out []string
	for name := range have {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// await asks done, once a second, with what the nodes that answer have, and
// who does not answer.
func (m *member) await(ctx context.Context, done func(have map[string]secretNames, away []string) (bool, string)) error {
	for {
		have, away, waits := m.secretsOf()
		ok := waits == ""
		if ok {
			ok, waits = done(have, away)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: still waits for %s", api.ErrState, waits)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// secretsOf gives which secrets the nodes have; waits tells for whose first
// answer it is too early.
func (m *member) secretsOf() (have map[string]secretNames, away []string, waits string) {
	t := m.keeper.Table()
	m.mu.Lock()
	defer m.mu.Unlock()
	have = map[string]secretNames{m.n.cfg.Node: m.secrets}
	for _, n := range t.Peers(m.n.cfg.Node) {
		p := m.peers[n.Name]
		switch {
		case n.State == nodes.Joining && (p == nil || p.err != nil):
			away = append(away, n.Name)
		case p == nil || p.seen.IsZero() && p.err == nil:
			waits = n.Name + " to answer"
		case p.err != nil:
			away = append(away, n.Name)
		default:
			have[n.Name] = secretNames{own: p.summary.Secret, next: p.summary.NextSecret}
		}
	}
	return have, away, waits
}
