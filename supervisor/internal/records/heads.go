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

// Heads tells where the chains of this node's audit record are: the other nodes, which ask
// for it every two seconds, and the system's log. It writes down what the others tell, and
// what this node's own are: the master's account may write to files of its own, this
// record is root's.
type Heads struct {
	env     child.Env
	record  *audit.Log
	reading oneatatime.Runner // the disk may hang

	mu   sync.Mutex
	told []audit.Head // of this node

	// seen holds the last heads of each node, noted those last written down. Only run uses them.
	seen  map[string][]audit.Head
	noted map[string]notedHeads
}

type notedHeads struct {
	text string
	at   time.Time
}

const (
	// headsNote is between two records of one node's heads.
	headsNote = 15 * time.Minute
)

// NewHeads returns the heads of a node that writes its records to record.
func NewHeads(env child.Env, record *audit.Log) *Heads {
	return &Heads{
		env:     env,
		record:  record,
		reading: oneatatime.New(),
		seen:    map[string][]audit.Head{},
		noted:   map[string]notedHeads{},
	}
}

// Own are the heads of this node as of the newest look.
func (h *Heads) Own() []audit.Head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told
}

// Run looks again and again until ctx ends. key is this node's in the table of nodes, others
// returns what the other nodes told; "" and nil: the node is alone.
func (h *Heads) Run(ctx context.Context, key string, others func() map[string]member.Heads) {
	for {
		h.readHeads(ctx, key, others)
		if pause.For(ctx, 20*time.Second) != nil {
			return
		}
	}
}

// readHeads reads this node's heads and takes those of the others.
func (h *Heads) readHeads(ctx context.Context, key string, others func() map[string]member.Heads) {
	folders := []audit.Folder{
		{Name: audit.NodeFolder, Dir: h.env.Settings.AuditDir()},
		{Name: audit.MasterFolder, Dir: audit.MasterDir(h.env.Settings.CacheDir())},
	}

	type answer struct {
		list []audit.Head
		err  error
	}

	got := make(chan answer, 1)
	err := h.reading.Do(ctx, "read the heads of the audit record", func() {
		list, err := audit.Heads(folders...)
		got <- answer{list, err}
	})
	if err != nil {
		return // ctx has ended
	}

	a := <-got
	if a.err != nil {
		h.env.Log.Warn("the newest records of the audit record cannot be read", "error", a.err)
	} else {
		h.mu.Lock()
		h.told = a.list
		h.mu.Unlock()
		if h.noteHeads(h.env.Settings.Node, key, a.list) {
			h.env.Log.Info("heads of this node's audit record", "heads", audit.HeadsText(a.list))
		}
	}

	if others == nil {
		return
	}

	for node, said := range others() {
		h.noteHeads(node, said.Key, said.Heads)
	}
}

// noteHeads writes down what is new of a node's heads, and reports whether it did.
func (h *Heads) noteHeads(node, key string, list []audit.Head) bool {
	h.noteShrunk(node, key, list)
	// What this record is written to changes by it.
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

// noteShrunk writes down that a node has fewer records than it had.
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
