package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"saltern/internal/control/toolrun"
	"saltern/supervisor/api"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
)

// RunTool runs a tool on another node, and returns the node's name and the stream of the tool's
// frames. The stream ends when ctx ends. RunTool asks one node after the other. It asks the next
// node only if the previous one answered that it did not run the tool. An [api.ErrState] means that
// no node has run the tool. After any other error a node may have run it.
func (m Verbs) RunTool(ctx context.Context, r toolrun.Request) (node string, frames io.ReadCloser, err error) {
	var why []string
	for _, n := range m.peers.answeringMasters() {
		c := m.peers.clientFor(n) // a separate client, because a run must not delay other requests
		frames, err := c.RunTool(ctx, r)
		if err == nil {
			m.env.Log.Info("a tool runs on another node: this node's master does not answer", "node", n.Name,
				"tool", r.Tool, "user", r.User)
			return fmt.Sprintf("%s (%s)", n.Name, n.Address), frames, nil
		}

		c.Close()
		err = fmt.Errorf("%s: %w", n.Name, err)
		if !errors.Is(err, nodeapi.ErrNotRun) {
			return "", nil, err
		}

		why = append(why, err.Error())
	}

	if why == nil {
		why = []string{"no other node with a master answers"}
	}

	return "", nil, fmt.Errorf("%w: %s", api.ErrState, strings.Join(why, "; "))
}

// answeringMasters returns the other nodes that answer and have a master. Nodes whose last answer
// reported a healthy master come first.
func (p *peers) answeringMasters() []nodes.Node {
	t := p.keeper.Table()
	p.mu.Lock()
	defer p.mu.Unlock()

	var well, rest []nodes.Node
	for _, n := range t.Peers(p.env.Settings.Node) {
		switch v := p.views[n.Name]; {
		case n.IsArbiter() || v == nil || v.err != nil || v.seen.IsZero():
		case v.summary.Node.Master == "ok":
			well = append(well, n)
		default:
			rest = append(rest, n)
		}
	}

	return append(well, rest...)
}
