package glusterctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
)

// NewPlan says what to do, and in which order, so that what was observed
// becomes what is desired. It does nothing itself and asks nobody: the same
// arguments give the same plan.
//
// Steps after the first assume that the ones before did their work; Apply
// makes a new plan after each of them, so nothing rests on that assumption.
func NewPlan(obs *Observation, d Desired) Plan {
	p := &planner{obs: obs, d: d, plan: Plan{Desired: d}}
	p.run()
	return p.plan
}

// planner carries a model of the pool from step to step.
type planner struct {
	obs  *Observation
	d    Desired
	plan Plan

	joined map[string]bool // members that are in the pool, or will be
	alive  map[string]bool // members that take part now, or will
	vol    *cli.Volume     // a copy that follows the steps
	down   map[string]bool // bricks that do not run
	upOK   bool            // it is known which bricks run
	healed bool            // all bricks run and nothing is to be healed
}

func (p *planner) step(s Step) { p.plan.Steps = append(p.plan.Steps, s) }

func (p *planner) refuse(code, next, format string, args ...any) {
	p.plan.Refused = append(p.plan.Refused, Finding{Code: code, What: fmt.Sprintf(format, args...), Next: next})
}

func (p *planner) warn(code, next, format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, Finding{Code: code, What: fmt.Sprintf(format, args...), Next: next})
}

func (p *planner) run() {
	if err := p.d.Validate(); err != nil {
		p.refuse("storage.invalid", "correct the configuration", "the desired state is not valid: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	if !p.daemon() || !p.pool() {
		return
	}
	if p.obs.VolumeError != "" {
		p.refuse("storage.volume_unknown", "look at the log of glusterd, then try again", "the configuration of volume %s cannot be read: %s", p.d.Volume, p.obs.VolumeError)
		return
	}
	if p.obs.Volume == nil {
		if !p.form() {
			return
		}
	} else if !p.adopt() {
		return
	}
	if !p.quorum() {
		return
	}
	p.options()
	p.start()
	p.bricks()
	p.options()
	p.mount()
	p.detach()
}

func (p *planner) daemon() bool {
	if p.obs.Daemon == "" {
		return true
	}
	p.step(Step{ID: "start-daemon", Kind: StartDaemon, What: "start glusterd on this node", Why: "it does not answer: " + p.obs.Daemon, Targets: []string{p.d.Self}})
	p.plan.Incomplete = true
	return false
}

// pool brings the members together. It returns false when nothing more can be
// planned before the pool has changed.
func (p *planner) pool() bool {
	if p.obs.PoolError != "" {
		p.step(Step{ID: "wait-pool", Kind: WaitPool, What: "wait until the list of pool members is settled", Why: p.obs.PoolError})
		p.plan.Incomplete = true
		return false
	}
	// A machine that went away without a word holds up every command that needs
	// the lock of the pool until glusterd has noticed.
	for _, peer := range p.obs.Pool {
		if !peer.Self && peer.Connected && p.unreachable(peer) {
			p.step(Step{ID: "wait-pool " + peer.Hostname, Kind: WaitPool, What: "wait until glusterd has noticed that " + peer.Hostname + " is away", Why: "its port does not answer although glusterd counts it as connected; a change would hang", Targets: []string{peer.Hostname}})
			p.plan.Incomplete = true
		}
	}
	if p.plan.Incomplete {
		return false
	}
	if n := len(p.obs.Disowned); n > 0 && !slices.ContainsFunc(p.d.others(), func(m Member) bool {
		return p.obs.Reachable[m.Address] && !slices.Contains(p.obs.Disowned, m.Name)
	}) {
		p.refuse("storage.disowned", "if this node was removed on purpose, reset its storage daemon and let it join as a new one", "%s no longer count(s) this node as a member", strings.Join(p.obs.Disowned, ", "))
		return false
	}

	p.joined, p.alive = map[string]bool{p.d.Self: true}, map[string]bool{p.d.Self: true}
	var wait []string
	for _, m := range p.d.others() {
		peer, known := p.obs.peer(m.Name, m.Address)
		reach := p.obs.Reachable[m.Address]
		switch {
		case known && peer.State == cli.PeerRejected:
			p.refuse("storage.peer_rejected", "on "+m.Name+", if it holds no copy that is needed: reset its storage daemon and let it join as a new node", "%s is rejected: its configuration differs from the pool's", m.Name)
		case known && peer.State == cli.PeerInCluster && peer.Connected:
			p.joined[m.Name], p.alive[m.Name] = true, true
			if slices.Contains(p.obs.Unsure, m.Name) {
				wait = append(wait, m.Name)
			}
		case known && reach:
			p.joined[m.Name], p.alive[m.Name] = true, true
			wait = append(wait, m.Name)
		case known:
			p.joined[m.Name] = true
			p.warn("storage.peer_down", "bring it back, or remove it", "%s is away: its glusterd does not answer", m.Name)
		case reach:
			p.joined[m.Name], p.alive[m.Name] = true, true
			p.step(Step{ID: "probe " + m.Name, Kind: Probe, What: "take " + m.Name + " into the pool", Why: "it is a member of the cluster and not in the pool yet", Command: []string{"peer", "probe", m.Name}, Targets: []string{m.Name, m.Address}})
			wait = append(wait, m.Name)
		default:
			p.warn("storage.member_unreachable", "check that the machine is on, that glusterd runs on it, and that port 24007 is open between the nodes", "%s (%s) is not in the pool and does not answer", m.Name, m.Address)
		}
	}
	for _, peer := range p.obs.Pool {
		if !peer.Self && p.member(peer.UUID, peer.Hostname) == nil && !p.leaving(peer) {
			p.warn("storage.unknown_peer", "if it should not be there: name it as leaving", "the pool has a member that is not in the configuration: %s", peer.Hostname)
		}
	}
	if len(wait) > 0 {
		p.step(Step{ID: "wait-peers " + strings.Join(wait, ","), Kind: WaitPeers, What: "wait until " + strings.Join(wait, ", ") + " and all others count each other as members", Why: "commands are refused before that", Targets: wait})
	}
	return true
}

func (p *planner) unreachable(peer cli.Peer) bool {
	for _, n := range append([]string{peer.Hostname}, peer.Names...) {
		if ok, tried := p.obs.Reachable[n]; tried {
			return !ok
		}
	}
	if m := p.member(peer.UUID, peer.Hostname); m != nil {
		if ok, tried := p.obs.Reachable[m.Address]; tried {
			return !ok
		}
	}
	return false
}

func (p *planner) leaving(peer cli.Peer) bool {
	return slices.ContainsFunc(p.d.Leaving, func(l string) bool {
		return l == peer.Hostname || l == peer.UUID || slices.Contains(peer.Names, l)
	})
}

// member finds the member that a brick or peer belongs to, by the UUID of its
// glusterd or by name; nil if there is none.
func (p *planner) member(uuid, host string) *Member {
	for i, m := range p.d.Members {
		if host == m.Name || host == m.Address {
			return &p.d.Members[i]
		}
		if uuid == "" {
			continue
		}
		if m.Name == p.d.Self {
			if uuid == p.obs.selfUUID() {
				return &p.d.Members[i]
			}
		} else if peer, ok := p.obs.peer(m.Name, m.Address); ok && peer.UUID == uuid {
			return &p.d.Members[i]
		}
	}
	return nil
}

func (p *planner) owner(b cli.Brick) *Member {
	host, _, _ := cli.SplitBrick(b.Name)
	return p.member(b.HostUUID, host)
}

// form plans a new volume. It begins with as many copies as there are data
// members that answer, under the rules of [planner.choose].
func (p *planner) form() bool {
	if !p.d.Form {
		p.refuse("storage.no_volume", "join this node to its cluster again, or form a new one", "volume %s does not exist on this node", p.d.Volume)
		return false
	}
	var bricks []cli.Brick
	arbiters := 0
	for _, m := range p.choose(nil) {
		if m.Role == Arbiter {
			arbiters = 1
		}
		bricks = append(bricks, cli.Brick{Name: m.BrickName(), Arbiter: m.Role == Arbiter})
	}
	if len(bricks) == 0 {
		p.refuse("storage.no_brick", "give at least one member the role data", "no member can hold the data")
		return false
	}
	args := []string{"volume", "create", p.d.Volume}
	if len(bricks) > 1 {
		args = append(args, "replica", fmt.Sprint(len(bricks)))
	}
	if arbiters > 0 {
		args = append(args, "arbiter", "1")
	}
	args = append(args, "transport", "tcp")
	names := brickNames(bricks)
	p.step(Step{ID: "create " + p.d.Volume, Kind: Create, What: fmt.Sprintf("create volume %s with %s", p.d.Volume, copies(len(bricks)-arbiters, arbiters)), Why: "it does not exist yet", Command: append(args, names...), Targets: names})
	p.vol = &cli.Volume{Name: p.d.Volume, State: cli.Created, Dist: 1, Replica: len(bricks), Arbiters: arbiters, Bricks: bricks, Options: map[string]string{}}
	if len(bricks) > 1 {
		p.vol.Options[granularOption] = "on"
	}
	p.down, p.upOK, p.healed = map[string]bool{}, true, true
	return true
}

// adopt takes the volume that exists as the start of the model.
func (p *planner) adopt() bool {
	v := *p.obs.Volume
	v.Options, v.Bricks = maps.Clone(v.Options), slices.Clone(v.Bricks)
	if v.Options == nil {
		v.Options = map[string]string{}
	}
	p.vol = &v
	plain := v.Type == "Distribute" && len(v.Bricks) == 1
	replicated := v.Type == "Replicate" && v.Dist == 1 && v.Replica == len(v.Bricks) && v.Replica <= MaxReplica
	if !plain && !replicated {
		p.refuse("storage.foreign_volume", "this volume was not made by the appliance; nothing is changed on it", "volume %s is %s with %d bricks (replica %d)", v.Name, v.Type, len(v.Bricks), v.Replica)
		return false
	}
	p.down = map[string]bool{}
	p.upOK = v.State == cli.Started
	for _, b := range v.Bricks {
		up, known := p.obs.brickState(b)
		if !known {
			p.upOK = false
		} else if !up {
			p.down[b.Name] = true
		}
	}
	p.healed = p.upOK && len(p.down) == 0 && p.obs.HealState().Pending.Zero() && p.obs.HealState().SplitBrain.Zero()
	return true
}

// quorum refuses everything when too many members are away: glusterd accepts
// no change then and has stopped the bricks (cluster.server-quorum-type server,
// more than half of the pool).
func (p *planner) quorum() bool {
	if p.vol.Options["cluster.server-quorum-type"] != "server" {
		return true
	}
	up, away := 0, []string{}
	for _, peer := range p.obs.Pool {
		if peer.Self || peer.Connected {
			up++
		} else {
			away = append(away, peer.Hostname)
		}
	}
	if 2*up > len(p.obs.Pool) {
		return true
	}
	p.refuse("storage.no_quorum", "bring at least one of them back; the rest follows by itself", "only %d of %d pool members are there (%s away): the volume has stopped and cannot be changed", up, len(p.obs.Pool), strings.Join(away, ", "))
	return false
}

// options plans the settings that differ, all in one command: each command of
// its own takes the lock of the pool and makes all clients load a new graph.
func (p *planner) options() {
	var allow, names []string
	for _, m := range p.d.Members {
		allow, names = append(allow, m.Address), append(names, m.Name)
	}
	want := p.d.options(p.vol.Replica, len(p.joined), allow, names)
	cmd := []string{"volume", "set", p.d.Volume}
	var pairs, why []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		have, set := p.vol.Options[k]
		if equalOption(k, have, want[k]) || !set && want[k] == "none" {
			continue
		}
		if (k == "client.ssl" || k == "server.ssl") && p.vol.State == cli.Started {
			p.refuse("storage.tls_late", "TLS is decided when the cluster is formed; to change it, stop the volume by hand", "%s is %q and cannot be set while volume %s runs", k, have, p.vol.Name)
			continue
		}
		if k == granularOption {
			if p.vol.State == cli.Started && p.healed { // its command wants both
				p.vol.Options[k] = want[k]
				p.step(Step{ID: "set " + k, Kind: SetOption, What: "heal directories name by name", Why: "it is not set", Command: []string{"volume", "heal", p.d.Volume, "granular-entry-heal", want[k]}})
			}
			continue
		}
		if set {
			why = append(why, k+" is "+have)
		}
		pairs, cmd = append(pairs, k+"="+want[k]), append(cmd, k, want[k])
		p.vol.Options[k] = want[k]
	}
	if len(pairs) == 0 {
		return
	}
	if len(why) == 0 {
		why = []string{"they are not set"}
	}
	p.step(Step{ID: "set " + strings.Join(pairs, " "), Kind: SetOption, What: "set " + strings.Join(pairs, " "), Why: strings.Join(why, ", "), Command: cmd})
}

func (p *planner) start() {
	if p.vol.State != cli.Started {
		p.step(Step{ID: "start " + p.d.Volume, Kind: StartVolume, What: "start volume " + p.d.Volume, Why: "it is " + p.vol.State.String(), Command: []string{"volume", "start", p.d.Volume}})
		wasStopped := p.vol.State == cli.Stopped
		p.vol.State = cli.Started
		if wasStopped { // which bricks come up, and what they lack, is seen then
			p.plan.Incomplete = true
		}
		return
	}
	var lazy []string
	for _, b := range p.vol.Bricks {
		m := p.owner(b)
		_, path, _ := cli.SplitBrick(b.Name)
		if p.down[b.Name] && m != nil && p.alive[m.Name] && path == m.Brick {
			lazy = append(lazy, b.Name)
		}
	}
	if len(lazy) == 0 || !p.upOK {
		return
	}
	p.step(Step{ID: "start-bricks " + strings.Join(lazy, ","), Kind: StartBricks, What: "start " + strings.Join(lazy, ", "), Why: "the node is there, the brick does not run", Command: []string{"volume", "start", p.d.Volume, "force"}, Targets: lazy})
	for _, b := range lazy {
		delete(p.down, b)
	}
}

func (p *planner) mount() {
	if p.d.Mount == "" || p.obs.Mount == nil {
		return
	}
	h := p.obs.Mount
	switch h.State {
	case mount.OK:
		p.tree(h)
	case mount.Absent:
		p.step(Step{ID: "mount " + p.d.Mount, Kind: Mount, What: "mount volume " + p.d.Volume + " at " + p.d.Mount, Why: "it is not mounted on this node"})
		if p.d.Layout > 0 && p.obs.Volume == nil {
			p.layout("the volume is new")
		} else if p.d.Layout > 0 {
			p.plan.Incomplete = true
		}
	case mount.Foreign:
		p.refuse("storage.mount_foreign", "unmount it", "%s is a mount of something else (%s)", p.d.Mount, h.Text)
	default:
		p.warn("storage.mount_"+string(h.State), "nothing to do here: the mount is watched and made again", "%s does not answer: %s", p.d.Mount, h.Text)
	}
}

// tree plans the directories on the volume. Only the forming node begins it.
func (p *planner) tree(h *mount.Health) {
	if p.d.Layout == 0 {
		return
	}
	var missing []string
	for _, m := range p.d.Members {
		if !slices.Contains(h.Nodes, m.Name) {
			missing = append(missing, m.Name)
		}
	}
	switch {
	case h.Layout > p.d.Layout:
		p.refuse("storage.layout_newer", "upgrade this node", "the volume has version %d of its tree, this node knows %d", h.Layout, p.d.Layout)
	case h.Layout == 0 && !p.d.Form:
		p.warn("storage.layout_missing", "wait until the forming node has finished", "the directories of the volume have not been made yet")
	case h.Layout < p.d.Layout:
		p.layout(fmt.Sprintf("the volume has version %d of them", h.Layout))
	case len(missing) > 0:
		p.layout("there are none for " + strings.Join(missing, ", "))
	}
}

func (p *planner) layout(why string) {
	p.step(Step{ID: fmt.Sprintf("layout %d", p.d.Layout), Kind: MakeLayout, What: "make the directories of the volume", Why: why})
}

func (p *planner) detach() {
	for _, peer := range p.obs.Pool {
		if peer.Self || !p.leaving(peer) {
			continue
		}
		if slices.ContainsFunc(p.vol.Bricks, func(b cli.Brick) bool {
			host, _, _ := cli.SplitBrick(b.Name)
			return b.HostUUID == peer.UUID || host == peer.Hostname || slices.Contains(peer.Names, host)
		}) {
			continue // why its brick stays has been said
		}
		p.step(Step{ID: "detach " + peer.Hostname, Kind: Detach, What: "let " + peer.Hostname + " go from the pool", Why: "it is to leave", Command: []string{"peer", "detach", peer.Hostname}, Destructive: true, Proof: "it holds no brick of the volume", Targets: []string{peer.Hostname}})
	}
}

func brickNames(bs []cli.Brick) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = b.Name
	}
	return out
}

func copies(data, arbiters int) string {
	s := fmt.Sprintf("%d copies", data)
	if data == 1 {
		s = "1 copy"
	}
	if arbiters > 0 {
		s += " and an arbiter"
	}
	return s
}
