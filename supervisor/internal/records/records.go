// Package records fetches the audit records (who did what) and the events (what happened) of all
// nodes of a cluster. [Heads] reveals whether audit records have disappeared.
package records

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
)

// Node reads the audit records of this node.
type Node struct {
	settings *settings.Settings
	reading  oneatatime.Runner // reads the files; the disk may hang
}

// NewNode returns a reader of the audit records of a node with these settings.
func NewNode(s *settings.Settings) *Node { return &Node{settings: s, reading: oneatatime.New()} }

// Cluster reads the audit records of all nodes of the cluster. It implements api.Audit.
type Cluster struct {
	own   *Node
	peers func() map[string]*nodeapi.Client // returns the clients of the other nodes; nil: this node has no cluster
}

// NewCluster returns a reader of the audit records of this node and its peers. peers may be nil:
// the node has no cluster.
func NewCluster(own *Node, peers func() map[string]*nodeapi.Client) *Cluster {
	return &Cluster{own: own, peers: peers}
}

// recordsTake is the longest time that one node may take to answer.
const recordsTake = 20 * time.Second

// Read returns the audit records of this node, from the files on its own disk.
func (r *Node) Read(ctx context.Context, q audit.Query) (audit.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, recordsTake)
	defer cancel()
	return oneatatime.Do(ctx, r.reading, "read the audit record", func() (audit.Page, error) {
		return audit.Read(ctx, r.settings.Node, q, r.settings.AuditDir(), audit.MasterDir(r.settings.CacheDir()))
	})
}

// Audit asks all nodes for their audit records at the same time.
func (r *Cluster) Audit(ctx context.Context, q audit.Query) (audit.List, error) {
	ctx, cancel := context.WithTimeout(ctx, recordsTake+time.Second)
	defer cancel()
	ask := map[string]func() (audit.Page, error){r.own.settings.Node: func() (audit.Page, error) { return r.own.Read(ctx, q) }}
	if r.peers != nil {
		for name, c := range r.peers() {
			ask[name] = func() (audit.Page, error) { return c.Audit(ctx, name, q) }
		}
	}

	if q.Node != "" {
		if ask[q.Node] == nil {
			return audit.List{}, fmt.Errorf("%w: there is no node %.70q; there are %s; what a node had written down that is gone went with its disk", api.ErrState, q.Node,
				strings.Join(slices.Sorted(maps.Keys(ask)), ", "))
		}
		maps.DeleteFunc(ask, func(name string, _ func() (audit.Page, error)) bool { return name != q.Node })
	}

	var out audit.List
	out.Unasked = everynode.Ask(ask, func(_ string, p audit.Page) {
		out.Records = append(out.Records, p.Records...)
		out.More = out.More || p.More
		out.Damaged += p.Damaged
	})
	if len(out.Unasked) == len(ask) {
		return audit.List{}, noAnswer(out.Unasked)
	}

	last := audit.MaxRecords
	if q.Last > 0 {
		last = min(last, q.Last)
	}

	damaged, more := out.Damaged, out.More
	out.Page = out.Newest(last)
	out.Damaged, out.More = damaged, more || out.More
	return out, nil
}

// Told sends this node's audit records and heads to the other nodes. It implements
// [member.Records].
type Told struct {
	Node   *Node
	Newest *Heads
}

// Own implements [member.Records].
func (t Told) Own(ctx context.Context, q audit.Query) (audit.Page, error) { return t.Node.Read(ctx, q) }

// Heads implements [member.Records].
func (t Told) Heads() []audit.Head { return t.Newest.Own() }
