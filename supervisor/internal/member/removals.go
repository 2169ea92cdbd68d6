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

// A removal has two steps: the masters' record, then the table of nodes. A node that dies between
// the two leaves it half done. Every node compares the two regularly, reports a half-done removal
// and does the other step, whichever node began it.

// guessFor is how long compare must report the same guess before a node acts on it, because a
// volume may show an old record for seconds.
const guessFor = 15 * time.Second

var errWhole = errors.New("another node was faster")

// removals finishes removals of nodes that were interrupted.
type removals struct {
	env    Env
	master Master
	keeper *nodes.Keeper
	change func(context.Context, func(*nodes.Table) error) error
	worker service.Worker // touches the shared storage and the master, which may hang

	looked  time.Time            // when the last comparison began; only the loop of Run uses it
	version uint64               // newest version of the record seen; only the worker uses the fields from here to mu
	since   map[string]time.Time // when each guess was first made, by the node's key
	failed  map[string]string    // why the last try failed, by the node's key

	mu    sync.Mutex
	found []status.Finding
}

// findings returns a finding for each removal that is not finished.
func (h *removals) findings() []status.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found
}

// reconcile starts a comparison of table and record when one is due. Member.Run calls it about once
// a second.
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

// finishFound compares table and record once, and finishes each half-done removal.
func (h *removals) finishFound(ctx context.Context) {
	list, ok := h.compare(ctx)
	if !ok {
		return // keep the findings of the last comparison
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

// finishNode finishes the removal of the node whose certificate has that hash. It repeats the
// missing step until nothing is missing, because the node's master may have joined again before the
// secrets were replaced.
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

		if err := pause.For(ctx, 20*time.Millisecond); err != nil { // the volume may briefly show an old record
			return err
		}
	}
}

// checkNameFree returns nil if n may join. It returns an error while the removal of a node with the
// same name or address is unfinished: that node's master, which may still know the secrets, would
// be mistaken for the master of n.
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

	return nodes.Admit(&t, n) // refuses a name or address that a present node has
}

// compare reads the table of nodes, then the masters' record, and returns the half-done removals.
// It reports whether it could read both and the record is not older than the last record it read.
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

// finish does the missing step of a half-done removal. The error errWhole means that there was
// nothing for this node to do.
func (h *removals) finish(ctx context.Context, f nodes.Half) error {
	if h.env.Settings.Arbiter {
		return errWhole // an arbiter has no master and may change only its own entry; another node does this step
	}
	if f.Removal.Node == "" {
		return h.change(ctx, func(t *nodes.Table) error {
			if n, ok := t.ByCertificate(f.Node.Certificate); !ok || n.State == nodes.Removed || t.LastServing(n) {
				return errWhole
			}
			return t.Remove(f.Node.Certificate)
		})
	}

	// A new node may have joined at the removed node's address meanwhile. Then the master at that
	// address in the record is the new node's, and stays.
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
