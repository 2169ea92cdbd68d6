package fakegluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
	"saltern/internal/command"
)

func (r runner) Run(ctx context.Context, argv []string) (command.Output, error) {
	if err := ctx.Err(); err != nil {
		return command.Output{}, err
	}

	p := r.p
	n := p.Node(r.node)
	switch argv[0] {
	case "gluster":
		return r.gluster(argv[1:])
	case "mount":
		p.mu.Lock()
		defer p.mu.Unlock()
		if v := p.volumeOf(n); v == nil || v.state != 1 {
			return command.Output{Exit: 1, Stderr: []byte("Mount failed. Check the log file for more details.")}, nil
		}
		n.Mounted = true
		return command.Output{}, nil
	case "umount":
		p.Do(func() { n.Mounted = false })
		return command.Output{}, nil
	case "probe":
		p.mu.Lock()
		defer p.mu.Unlock()
		b, _ := json.Marshal(map[string]any{"state": "ok", "layout": n.Layout, "nodes": n.LayoutNodes})
		return command.Output{Stdout: b}, nil
	case "helper": // layout SPEC, names VOLUME PATH
		if argv[1] == "names" {
			p.mu.Lock()
			defer p.mu.Unlock()
			b, _ := json.Marshal(map[string]any{"looked": len(p.Torn), "torn": p.Torn})
			return command.Output{Stdout: b}, nil
		}

		var spec struct {
			Tree struct {
				Version int
				Nodes   []string
			}
		}

		if err := json.Unmarshal([]byte(argv[2]), &spec); err != nil {
			return command.Output{}, err
		}

		p.Do(func() {
			for _, o := range p.nodes {
				if p.group[o] == p.group[n] || o == n {
					o.Layout, o.LayoutNodes = spec.Tree.Version, spec.Tree.Nodes
				}
			}
		})

		return command.Output{}, nil
	}

	return command.Output{}, fmt.Errorf("start %s: %w", argv[0], exec.ErrNotFound)
}

func ok(body string) command.Output { return xmlOut(0, 0, "", body) }

func no(errno int, format string, args ...any) command.Output {
	return xmlOut(-1, errno, fmt.Sprintf(format, args...), "")
}

func xmlOut(ret, errno int, text, body string) command.Output {
	return command.Output{Stdout: fmt.Appendf(nil,
		"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n<cliOutput>\n  <opRet>%d</opRet>\n  <opErrno>%d</opErrno>\n  <opErrstr>%s</opErrstr>\n%s</cliOutput>\n",
		ret, errno, strings.NewReplacer("<", "&lt;", "&", "&amp;").Replace(text), body)}
}

func (r runner) gluster(args []string) (command.Output, error) {
	p, n := r.p, r.p.Node(r.node)
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		if host, ok := strings.CutPrefix(args[0], "--remote-host="); ok {
			if n = p.Node(host); n == nil {
				return command.Output{
					Exit:   1,
					Stdout: []byte("Connection failed. Please check if gluster daemon is operational.\n"),
				}, nil
			}
		}

		args = args[1:]
	}

	question := args[0] == "pool" || args[1] == "info" || args[1] == "status" ||
		args[1] == "heal" && len(args) > 3 && args[3] == "info"
	if !question && p.Hook != nil {
		if err := p.Hook(r.node, args, false); err != nil {
			return command.Output{}, err
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if !n.Up {
		return command.Output{
			Exit:   1,
			Stdout: []byte("Connection failed. Please check if gluster daemon is operational.\n"),
		}, nil
	}

	if question {
		return p.ask(n, args), nil
	}

	p.Calls = append(p.Calls, words(args))
	out := p.change(n, args)
	if p.Hook != nil {
		if err := p.Hook(r.node, args, true); err != nil {
			return command.Output{}, err
		}
	}

	return out, nil
}

func (p *Pool) change(n *Node, args []string) command.Output {
	for _, o := range p.peers(n) {
		if o.Vanished && args[0] != "peer" {
			return command.Output{Exit: 1, Stdout: []byte("Error : Request timed out\n")}
		}
	}

	switch words(args[:2]) {
	case "peer probe":
		return p.probe(n, args[2])
	case "peer detach":
		return p.detach(n, args[2])
	case "volume create":
		return p.create(n, args[2], args[3:])
	}

	v := p.volumeOf(n)
	if v == nil || v.name != args[2] {
		return no(30806, "Volume %s does not exist", args[2])
	}

	if v.option("cluster.server-quorum-type") == "server" {
		up := 1
		for _, o := range p.peers(n) {
			if o.Up {
				up++
			}
		}

		if 100*up < 51*(1+len(p.peers(n))) && args[1] != "remove-brick" {
			return no(30800, "Quorum not met. Volume operation not allowed.")
		}
	}

	switch args[1] {
	case "start":
		if v.state == 1 && !slices.Contains(args, "force") {
			return no(30800, "Volume %s already started", v.name)
		}

		v.state = 1
		for _, b := range v.bricks {
			if !b.up {
				b.started = p.Clock()
			}
			b.up = b.node.Up && !b.lost
		}

		for _, o := range append(p.peers(n), n) {
			o.healerDown = o.healerDown && (!o.Up || o.HealerBroken)
		}
	case "stop":
		v.state = 2
	case "set":
		for i := 3; i+1 < len(args); i += 2 {
			if args[i] == "cluster.granular-entry-heal" {
				return no(30800,
					"'gluster volume set <VOLNAME> cluster.granular-entry-heal {enable, disable}' is not supported.")
			}
			v.set(args[i], args[i+1])
		}
	case "heal":
		return p.healing(v, args)
	case "add-brick":
		return p.addBrick(v, args[3:])
	case "remove-brick":
		return p.removeBrick(v, args[3:])
	case "replace-brick":
		return p.replaceBrick(v, args[3], args[4])
	default:
		return no(30800, "unknown command %s", words(args))
	}

	return ok("")
}

// healing is `gluster volume heal` in its forms.
func (p *Pool) healing(v *volume, args []string) command.Output {
	if len(args) == 5 && args[3] == "granular-entry-heal" {
		if v.state != 1 || len(v.bricks) < 2 {
			return no(30800, "Volume %s is not started or not replicated", v.name)
		}

		for _, b := range v.bricks {
			if len(v.pending(b)) > 0 || !b.up {
				return no(0,
					"One or more entries need heal. Please execute the command again after there are no entries to be healed")
			}
		}

		v.set("cluster.granular-entry-heal", "enable")
		return ok("")
	}

	if len(args) == 7 && args[3] == "split-brain" && args[4] == "source-brick" {
		if i := slices.Index(p.Torn, args[6]); i >= 0 {
			p.Torn = slices.Delete(p.Torn, i, i+1)
			p.Settled = append(p.Settled, args[5]+" "+args[6])
			return ok("")
		}

		var i int
		if _, err := fmt.Sscanf(args[6], "/f%d", &i); err != nil || !p.Stuck[i] {
			return no(0, "Healing %s failed: File not in split-brain", args[6])
		}

		delete(p.Stuck, i)
		p.Settled = append(p.Settled, args[5]+" "+args[6])
	}

	v.heal(p.HealSpeed, p.Stuck)
	return ok("")
}

func (v *volume) option(k string) string {
	for _, o := range v.options {
		if o[0] == k {
			return o[1]
		}
	}
	return ""
}

func (v *volume) set(k, val string) {
	for i := range v.options {
		if v.options[i][0] == k {
			v.options[i][1] = val
			return
		}
	}
	v.options = append(v.options, [2]string{k, val})
}

func (p *Pool) probe(n *Node, host string) command.Output {
	o := p.Node(host)
	switch {
	case o == nil || !o.Up:
		return no(107, "Probe returned with Transport endpoint is not connected")
	case o == n:
		return xmlOut(0, 1, "", "  <output>Probe on localhost not needed</output>\n")
	case p.group[o] == p.group[n]:
		return xmlOut(0, 2, "", "  <output>Host "+host+" port 24007 already in peer list</output>\n")
	case len(p.peers(o)) > 0 || p.volumeOf(o) != nil:
		return no(3, "%s is either already part of another cluster or having volumes configured", host)
	}
	p.group[o], o.joining = p.group[n], p.JoinDelay
	return ok("")
}

func (p *Pool) detach(n *Node, host string) command.Output {
	o := p.Node(host)
	if o == nil || p.group[o] != p.group[n] {
		return no(2, "%s is not part of cluster", host)
	}
	if v := p.volumeOf(n); v != nil && slices.ContainsFunc(v.bricks, func(b *brick) bool { return b.node == o }) {
		return xmlOut(1, 3,
			"Peer "+host+" hosts one or more bricks. If the peer is in not recoverable state then use either replace-brick or remove-brick command",
			"")
	}
	p.group[o] = 100 + len(p.Calls) // alone
	o.Mounted = false
	return ok("")
}

// fresh makes a brick from host:/path, or says why not.
func (p *Pool) fresh(of *Node, name string, arbiter bool) (*brick, *command.Output) {
	host, path, _ := cli.SplitBrick(name)
	o := p.Node(host)
	if o == nil || p.group[o] != p.group[of] || !o.Up || o.joining > 0 {
		out := no(30800, "Host %s is not in 'Peer in Cluster' state", host)
		return nil, &out
	}
	if o.marked[path] {
		out := no(30800, "Pre Validation failed on %s. %s is already part of a volume", host, path)
		return nil, &out
	}

	o.marked[path] = true
	b := &brick{
		node:    o,
		path:    path,
		arbiter: arbiter,
		up:      true,
		items:   map[int]bool{},
	}

	return b, nil
}

func (p *Pool) create(n *Node, name string, args []string) command.Output {
	if p.volumeOf(n) != nil {
		return xmlOut(-1, 0, "Volume "+name+" already exists", "")
	}

	arbiter := slices.Contains(args, "arbiter")
	var names []string
	for _, a := range args {
		if strings.Contains(a, ":/") {
			names = append(names, a)
		}
	}

	v := &volume{
		name:    name,
		id:      "11111111-0000-4000-8000-000000000001",
		acked:   map[int]bool{},
		options: [][2]string{{"nfs.disable", "on"}},
	}

	if len(names) > 1 {
		v.set("cluster.granular-entry-heal", "on")
	}

	for i, b := range names {
		br, bad := p.fresh(n, b, arbiter && i == len(names)-1)
		if bad != nil {
			return *bad
		}
		br.up = false
		br.node.disk[br.path] = br
		v.bricks = append(v.bricks, br)
	}

	p.vols[p.group[n]] = v
	return ok("")
}

func (p *Pool) addBrick(v *volume, args []string) command.Output {
	name := args[len(args)-1]
	host, _, _ := cli.SplitBrick(name)
	for _, b := range v.bricks {
		if b.node == p.Node(host) {
			return no(30800,
				"Multiple bricks of a replicate volume are present on the same server. This setup is not optimal.")
		}
	}

	if args[0] != "replica" || args[1] != fmt.Sprint(len(v.bricks)+1) {
		return no(30800, "Incorrect number of bricks supplied")
	}

	b, bad := p.fresh(v.bricks[0].node, name, slices.Contains(args, "arbiter"))
	if bad != nil {
		return *bad
	}

	b.node.disk[b.path] = b
	v.bricks = append(v.bricks, b)
	return ok("")
}

func (v *volume) find(name string) *brick {
	for _, b := range v.bricks {
		if b.name() == name {
			return b
		}
	}
	return nil
}

func (p *Pool) removeBrick(v *volume, args []string) command.Output {
	names := args[2 : len(args)-1]
	if len(names) == 0 || args[1] != fmt.Sprint(len(v.bricks)-len(names)) || args[len(args)-1] != "force" {
		return no(30800, "Incorrect bricks %s for volume %s", names, v.name)
	}
	for _, name := range names {
		if v.find(name) == nil {
			return no(30800, "Incorrect brick %s for volume %s", name, v.name)
		}
	}
	for _, name := range names {
		p.drop(v, v.find(name), nil)
	}
	return ok("")
}

func (p *Pool) replaceBrick(v *volume, old, name string) command.Output {
	b := v.find(old)
	if b == nil || len(v.bricks) == 1 {
		return no(30800, "brick: %s does not exist in volume: %s", old, v.name)
	}

	var alive *Node
	for _, o := range v.bricks {
		if o.node.Up {
			alive = o.node
		}
	}

	if alive == nil {
		alive = b.node
	}

	fresh, bad := p.fresh(alive, name, b.arbiter)
	if bad != nil {
		return *bad
	}

	fresh.node.disk[fresh.path] = fresh
	p.drop(v, b, fresh)
	return ok("")
}
