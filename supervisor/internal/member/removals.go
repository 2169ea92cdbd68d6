package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// A removal is two steps: the masters' record, then the table of nodes. A node that
// is lost between the two leaves half of it. Every node compares the two at each
// look, tells of it and does the other half, whoever began it and whoever is faster.

// guessFor is how long a guess must hold: a volume may show an old record for
// seconds.
const guessFor = 15 * time.Second

var errWhole = errors.New("another node was faster")

// removals finishes removals.
type removals struct {
	env    Env
	master Master
	keeper *nodes.Keeper
	change func(context.Context, func(*nodes.Table) error) error
	worker service.Worker // uses the shared storage and the master, which may hang

	looked  time.Time            // the loop's alone
	version uint64               // newest record seen; the worker's alone, as those below
	since   map[string]time.Time // when a guess was first made, by the node's key
	failed  map[string]string    // why the last try failed, by the node's key

	mu    sync.Mutex
	found []status.Finding
}

// findings tell of removals that are not finished.
func (h *removals) findings() []status.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found
}

// reconcile looks whether there is something to finish. It is called again and
// again.
func (h *removals) reconcile(ctx context.Context) {
	if h.env.Now().Sub(h.looked) < sharedEvery {
		return
	}
	h.looked = h.env.Now()
	h.worker.Start(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		h.finishFound(ctx)
	})
}

// finishFound compares once and finishes each removal that has stopped half way.
func (h *removals) finishFound(ctx context.Context) {
	list, ok := h.compare(ctx)
	if !ok {
		return // what was found before is still the newest
	}

	since := map[string]time.Time{}
	var found []status.Finding
	for _, f := range list {
		cause := "its master is out; the table of nodes still has it as " + string(f.Node.State)
		if f.Removal.Node != "" {
			cause = "the table of nodes has it as removed; the secrets that it knows are not replaced"
		}

		if why := h.failed[f.Node.Certificate]; why != "" {
			cause += "; last try: " + why
		}

		found = append(found, status.Finding{Code: status.RemovalHalf, Subject: f.Node.Name, Cause: cause})
		if f.Guess {
			since[f.Node.Certificate] = h.env.Now()
			if at, ok := h.since[f.Node.Certificate]; ok {
				since[f.Node.Certificate] = at
			}
		}
	}

	h.since = since
	h.mu.Lock()
	h.found = found
	h.mu.Unlock()

	failed := map[string]string{}
	for _, f := range list {
		if f.Guess && h.env.Now().Sub(since[f.Node.Certificate]) < guessFor {
			continue
		}

		switch err := h.finish(ctx, f); {
		case err == nil:
			h.env.Log.Warn("a removal that had stopped half way was finished", "peer", f.Node.Name,
				"address", f.Node.Address)
		case !errors.Is(err, errWhole):
			failed[f.Node.Certificate] = status.Clip(err.Error())
			if failed[f.Node.Certificate] != h.failed[f.Node.Certificate] {
				h.env.Log.Warn("cannot finish the removal of a node", "peer", f.Node.Name, "error", err)
			}
		}
	}

	h.failed = failed
}

// finishNode does what is missing of the removal of one node, as finishFound does, and looks
// again: its master may have come in until the secrets were replaced.
func (h *removals) finishNode(ctx context.Context, certificate string) error {
	for {
		if err := h.keeper.Look(ctx); err != nil {
			return err
		}

		r, err := control.ReadRecord(h.env.Settings.ClusterRecord())
		if err != nil {
			return err
		}

		list := nodes.FindHalves(h.keeper.Table(), r)
		i := slices.IndexFunc(list, func(f nodes.Half) bool { return f.Node.Certificate == certificate })
		if i < 0 {
			return nil
		}

		if err := h.finish(ctx, list[i]); err != nil && !errors.Is(err, errWhole) {
			return err
		}

		if err := pause.For(ctx, 20*time.Millisecond); err != nil { // a volume may show an old record for a moment
			return err
		}
	}
}

// checkNameFree returns nil when nothing is left to do for a removed node that had the name or
// the address of n, which is to be let in: its master, or one that comes in yet by
// the secrets it knows, would be taken for that of n.
func (h *removals) checkNameFree(ctx context.Context, n nodes.Node) error {
	if err := h.keeper.Look(ctx); err != nil {
		return err
	}

	t := h.keeper.Table()
	if _, in := t.ByCertificate(n.Certificate); in {
		return nil
	}

	r, err := control.ReadRecord(h.env.Settings.ClusterRecord())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", nodeapi.ErrStorage, err)
	}

	for _, f := range nodes.FindHalves(t, r) {
		if f.Node.Address == n.Address || f.Node.Name == n.Name {
			return fmt.Errorf("%w: the removal of %s at %s is not finished yet; try again in a moment",
				nodeapi.ErrStorage, f.Node.Name, f.Node.Address)
		}
	}

	return nodes.Admit(&t, n) // what is taken now is not free in a moment
}

// compare reads the table of nodes, then the masters' record, and reports whether
// both could be read and are not older than what was seen before.
func (h *removals) compare(ctx context.Context) ([]nodes.Half, bool) {
	if h.keeper.Look(ctx) != nil {
		return nil, false
	}
	t := h.keeper.Table()
	r, err := control.ReadRecord(h.env.Settings.ClusterRecord())
	if err != nil || r.Version < h.version {
		return nil, false
	}
	h.version = r.Version
	return nodes.FindHalves(t, r), true
}

// finish does what is missing of a removal.
func (h *removals) finish(ctx context.Context, f nodes.Half) error {
	if h.env.Settings.Arbiter {
		return errWhole // it changes its own entry only, and has no master; the other nodes do it
	}
	if f.Removal.Node == "" {
		return h.change(ctx, func(t *nodes.Table) error {
			if n, ok := t.ByCertificate(f.Node.Certificate); !ok || n.State == nodes.Removed || t.LastServing(n) {
				return errWhole
			}
			return t.Remove(f.Node.Certificate)
		})
	}

	// A node may have joined at the removed one's address since. Then the master at that address in
	// the record is the new node's, and stays.
	if err := h.keeper.Look(ctx); err != nil {
		return err
	}

	t := h.keeper.Table()
	for _, n := range t.Present() {
		if n.Address == f.Removal.ID && f.Removal.Key != control.NoMaster {
			return errWhole
		}
	}

	if err := h.master.RemoveMember(ctx, f.Removal); err != nil {
		return fmt.Errorf("have the masters forget it: %w", err)
	}

	return nil
}
