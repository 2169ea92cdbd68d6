package records

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"saltern/internal/audit"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/oneatatime"
)

// Heads publishes the heads of this node's audit record, which are the ends of its chains: in the
// system's log, and to the other nodes, which ask every two seconds. It also records the heads of
// all nodes in an audit log that only root can write. The master's account writes some chains
// itself. If that account changes a chain, the recorded heads reveal the change.
type Heads struct {
	env     child.Env
	record  *audit.Log
	reading oneatatime.Runner // reads the audit record; the disk may hang

	mu   sync.Mutex
	told []audit.Head // heads of this node

	// seen holds the newest heads of each node, noted the heads that were last recorded. Only Run
	// accesses them.
	seen  map[string][]audit.Head
	noted map[string]notedHeads
}

type notedHeads struct {
	text string
	at   time.Time
}

const (
	// headsNote is the least time between two records of one node's heads.
	headsNote = 15 * time.Minute
)

// NewHeads returns the publisher of a node's heads. It records heads in record.
func NewHeads(env child.Env, record *audit.Log) *Heads {
	return &Heads{
		env:     env,
		record:  record,
		reading: oneatatime.New(),
		seen:    map[string][]audit.Head{},
		noted:   map[string]notedHeads{},
	}
}

// Own returns the heads of this node as Run last read them.
func (h *Heads) Own() []audit.Head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told
}

// Run reads the heads every 20 seconds until ctx ends. key is this node's key in the table of
// nodes. others returns the heads of the other nodes. If the node has no cluster, others is nil and
// key is "".
func (h *Heads) Run(ctx context.Context, key string, others func() map[string]member.Heads) {
	for {
		h.readHeads(ctx, key, others)
		if pause.For(ctx, 20*time.Second) != nil {
			return
		}
	}
}

// readHeads reads this node's heads once, and records its heads and those of the other nodes.
func (h *Heads) readHeads(ctx context.Context, key string, others func() map[string]member.Heads) {
	folders := []audit.Folder{
		{Name: audit.NodeFolder, Dir: h.env.Settings.AuditDir()},
		{Name: audit.MasterFolder, Dir: audit.MasterDir(h.env.Settings.CacheDir())},
	}

	list, err := oneatatime.Do(ctx, h.reading, "read the heads of the audit record", func() ([]audit.Head, error) {
		return audit.Heads(folders...)
	})
	if ctx.Err() != nil {
		return
	}

	if err != nil {
		h.env.Log.Warn("the newest records of the audit record cannot be read", "error", err)
	} else {
		h.mu.Lock()
		h.told = list
		h.mu.Unlock()
		if h.noteHeads(h.env.Settings.Node, key, list) {
			h.env.Log.Info("heads of this node's audit record", "heads", audit.HeadsText(list))
		}
	}

	if others == nil {
		return
	}

	for node, heads := range others() {
		h.noteHeads(node, heads.Key, heads.Heads)
	}
}

// noteHeads records a node's heads if they are new and the last record is old enough. It reports
// whether it recorded them.
func (h *Heads) noteHeads(node, key string, list []audit.Head) bool {
	h.noteShrunk(node, key, list)
	// Leave out the audit log in which heads are recorded, because each record changes its head.
	acts := slices.DeleteFunc(slices.Clone(list), func(head audit.Head) bool { return head.OfHeads() })
	id, text := node+" "+key, audit.HeadsText(acts)
	last := h.noted[id]
	due := h.env.Now().Sub(last.at) >= headsNote || last.at.IsZero()
	if text == "" || text == last.text || !due {
		return false
	}
	h.noted[id] = notedHeads{text, h.env.Now()}
	h.record.Note(audit.HeadsRecord(node, key, list))
	return true
}

// noteShrunk records that a node has fewer audit records than before.
func (h *Heads) noteShrunk(node, key string, list []audit.Head) {
	id := node + " " + key
	for _, before := range h.seen[id] {
		i := slices.IndexFunc(list,
			func(now audit.Head) bool { return now.Folder == before.Folder && now.Book == before.Book })
		if i >= 0 && list[i].Seq >= before.Seq {
			continue
		}

		now := "none"
		if i >= 0 {
			now = list[i].String()
		}

		err := errors.New("it was " + before.String() + ", it is " + now)
		h.env.Log.Error("records are missing at the end of a node's audit record", "node", node, "error", err)
		h.record.Note(audit.CutRecord(node, err))
	}

	h.seen[id] = list
}
