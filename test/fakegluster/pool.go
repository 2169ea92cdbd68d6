// Package fakegluster is a GlusterFS pool in memory: machines that answer the
// gluster command in the XML of the real one, with its refusals, and that
// remember which write is on which brick. Tests of glusterctl break it and look
// whether anything was lost.
package fakegluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/command"
)

// Pool is everything: machines that belong together and others.
type Pool struct {
	mu    sync.Mutex
	nodes []*Node
	group map[*Node]int // nodes with the same number are peers
	vols  map[int]*volume

	// Hook sees each gluster command before (applied false) and after it had its
	// effect; an error it returns is what the caller gets.
	Hook func(node string, args []string, applied bool) error
	// Calls counts gluster commands that change something.
	Calls []string
	// Lost are writes that were acknowledged and that a change of bricks threw
	// away.
	Lost []string
	// HealSpeed is how many writes a question about healing lets through; 0
	// means no healing happens.
	HealSpeed int
	// Stuck are writes that healing does not copy before somebody says which
	// brick is right, as with files of another GFID.
	Stuck map[int]bool
	// Torn are names that no list of what is to be healed has, and of which the
	// copies hold different files.
	Torn []string
	// Settled are those decisions: brick and path.
	Settled []string
	// JoinDelay is how many questions a new peer needs to become a full member.
	JoinDelay int
	// StartTime is how long glusterd says of a brick that was started that it does
	// not run, by Clock, which is time.Now unless it is set.
	StartTime time.Duration
	Clock     func() time.Time

	writes int
}

// Node is one machine.
type Node struct {
	Name, Addr, UUID string
	Up               bool // glusterd and bricks run
	Vanished         bool // it is off and glusterd on the others has not noticed
	Mounted          bool
	Layout           int
	LayoutNodes      []string

	HealerBroken bool // its self-heal daemon does not start

	healerDown bool // its self-heal daemon does not run
	joining    int
	disk       map[string]*brick // by path: survives everything but LoseDisk
	marked     map[string]bool   // paths with a volume's mark
}

type brick struct {
	node    *Node
	path    string
	arbiter bool
	up      bool
	started time.Time // by Pool.Clock
	items   map[int]bool
	lost    bool
}

// shows reports whether glusterd says that a brick runs.
func (p *Pool) shows(b *brick) bool {
	return b.up && p.Clock().Sub(b.started) >= p.StartTime
}

func (b *brick) name() string { return b.node.Name + ":" + b.path }

type volume struct {
	name    string
	id      string
	state   int
	bricks  []*brick
	options [][2]string
	acked   map[int]bool
}

// New makes machines named node1, node2 … with addresses 10.0.0.1, 10.0.0.2 …
// each alone, with glusterd running.
func New(n int) *Pool {
	p := &Pool{group: map[*Node]int{}, vols: map[int]*volume{}, HealSpeed: 1 << 30, Clock: time.Now}
	for i := 1; i <= n; i++ {
		node := &Node{
			Name:   fmt.Sprintf("node%d", i),
			Addr:   fmt.Sprintf("10.0.0.%d", i),
			UUID:   fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			Up:     true,
			disk:   map[string]*brick{},
			marked: map[string]bool{},
		}

		p.nodes = append(p.nodes, node)
		p.group[node] = i
	}

	return p
}

// Do runs f with the pool locked.
func (p *Pool) Do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Node finds a machine by name or address.
func (p *Pool) Node(name string) *Node {
	for _, n := range p.nodes {
		if n.Name == name || n.Addr == name {
			return n
		}
	}
	return nil
}

// Kill stops a machine; vanish: without its peers noticing.
func (p *Pool) Kill(name string, vanish bool) {
	p.Do(func() {
		n := p.Node(name)
		n.Up = false
		n.Vanished = vanish
		n.Mounted = false
		for _, b := range n.disk {
			b.up = false
		}
	})
}

// Revive starts it again; bricks whose disk is there come up.
func (p *Pool) Revive(name string) {
	p.Do(func() {
		n := p.Node(name)
		n.Up = true
		n.Vanished = false
		n.healerDown = false
		for _, b := range n.disk {
			b.up = !b.lost
		}
	})
}

// KillBrick stops one brick process only.
func (p *Pool) KillBrick(name string) {
	p.Do(func() {
		for _, b := range p.Node(name).disk {
			b.up = false
		}
	})
}

// KillHealer stops the self-heal daemon of a machine only.
func (p *Pool) KillHealer(name string) {
	p.Do(func() { p.Node(name).healerDown = true })
}

// LoseDisk empties the disk of a machine.
func (p *Pool) LoseDisk(name string) {
	p.Do(func() {
		n := p.Node(name)
		for _, b := range n.disk {
			b.lost = true
			b.up = false
			b.items = map[int]bool{}
		}
		n.marked = map[string]bool{}
	})
}

// Notice lets glusterd see that vanished machines are away.
func (p *Pool) Notice() {
	p.Do(func() {
		for _, n := range p.nodes {
			n.Vanished = false
		}
	})
}

func (p *Pool) volumeOf(n *Node) *volume { return p.vols[p.group[n]] }

// Write writes one file through node's mount under the quorum rule of
// replicated volumes, and reports whether it was acknowledged.
func (p *Pool) Write(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.volumeOf(p.Node(node))
	if v == nil || v.state != 1 {
		return false
	}

	up := 0
	for _, b := range v.bricks {
		if b.up {
			up++
		}
	}

	if n := len(v.bricks); 2*up < n || 2*up == n && !v.bricks[0].up || up == 0 {
		return false
	}

	// With an arbiter in a majority of two the one data copy must be one that
	// the arbiter does not blame.
	data := 0
	for _, b := range v.bricks {
		if b.up && !b.arbiter && (up == len(v.bricks) || !p.blamed(v, b)) {
			data++
		}
	}

	if data == 0 {
		return false
	}

	p.writes++
	for _, b := range v.bricks {
		if b.up {
			b.items[p.writes] = true
		}
	}

	v.acked[p.writes] = true
	return true
}

// blamed reports whether the arbiter knows of something that b lacks.
func (p *Pool) blamed(v *volume, b *brick) bool {
	for _, a := range v.bricks {
		if a.arbiter && a.up {
			for i := range a.items {
				if !b.items[i] {
					return true
				}
			}
		}
	}
	return false
}

// heal copies what is missing between bricks that run, at most n writes.
func (v *volume) heal(n int, stuck map[int]bool) {
	for _, to := range v.bricks {
		for _, from := range v.bricks {
			if !to.up || !from.up || to == from || from.arbiter && !to.arbiter {
				continue
			}

			for i := range from.items {
				if !to.items[i] && !stuck[i] {
					if n == 0 {
						return
					}
					to.items[i] = true
					n--
				}
			}
		}
	}
}

// pending are the writes of b that another brick lacks.
func (v *volume) pending(b *brick) []int {
	var out []int
	for i := range b.items {
		for _, o := range v.bricks {
			if o != b && !o.items[i] {
				out = append(out, i)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// drop takes a brick away and remembers what was on it alone.
func (p *Pool) drop(v *volume, b *brick, with *brick) {
	held := maps.Clone(b.items)
	i := slices.Index(v.bricks, b)
	if with != nil {
		v.bricks[i] = with
	} else {
		v.bricks = slices.Delete(v.bricks, i, i+1)
	}

	if b.arbiter || b.lost {
		return
	}

	for item := range held {
		if v.acked[item] && !slices.ContainsFunc(v.bricks, func(o *brick) bool { return !o.arbiter && o.items[item] }) {
			p.Lost = append(p.Lost, fmt.Sprintf("write %d with %s", item, b.name()))
		}
	}
}

// Bricks lists the bricks of the volume that node knows, "-" before those that
// do not run.
func (p *Pool) Bricks(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.volumeOf(p.Node(node))
	if v == nil {
		return nil
	}

	var out []string
	for _, b := range v.bricks {
		s := b.name()
		if b.arbiter {
			s += "(arbiter)"
		}

		if !b.up {
			s = "-" + s
		}

		out = append(out, s)
	}

	return out
}

// Option gives a volume option, "" when it is not set.
func (p *Pool) Option(node, key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.volumeOf(p.Node(node)); v != nil {
		for _, o := range v.options {
			if o[0] == key {
				return o[1]
			}
		}
	}
	return ""
}

// Peers lists the names of node's peers, sorted.
func (p *Pool) Peers(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, n := range p.peers(p.Node(node)) {
		out = append(out, n.Name)
	}
	return out
}

func (p *Pool) peers(n *Node) []*Node {
	var out []*Node
	for _, o := range p.nodes {
		if o != n && p.group[o] == p.group[n] {
			out = append(out, o)
		}
	}
	return out
}

// Dial is what a TCP connection to a machine's glusterd gives.
func (p *Pool) Dial(address string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.Node(address); n == nil || !n.Up {
		return fmt.Errorf("dial %s: no answer", address)
	}
	return nil
}

// MountInfo is /proc/self/mountinfo of a machine with a mount at point.
func (p *Pool) MountInfo(node, point string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	table := "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	if n := p.Node(node); n.Mounted {
		table += "50 22 0:44 / " + point + " rw,relatime shared:1 - fuse.glusterfs " + node + ":/cluster rw\n"
	}
	return table
}

var _ command.Runner = runner{}

type runner struct {
	p    *Pool
	node string
}

// Runner runs commands as if on that machine: gluster, mount, umount, and
// "probe" and "layout" as helpers.
func (p *Pool) Runner(node string) command.Runner { return runner{p, node} }

func words(args []string) string { return strings.Join(args, " ") }
