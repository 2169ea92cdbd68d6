package glusterctl

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"saltern/glusterctl/cli"
)

// Observe examines the pool, the volume and the mount. d names the members and the volume. Observe
// changes nothing and takes a few seconds at most while all peers answer. If a part stays unknown,
// the observation holds the reason. Observe returns an error only if ctx has ended.
//
// While glusterd counts a peer as connected that does not answer us, Observe skips the commands
// that need the lock of the pool (such as which bricks run): they would hang and leave the lock
// behind.
func (c *Controller) Observe(ctx context.Context, d Desired) (*Observation, error) {
	return c.observe(ctx, d, look{running: true, sizes: true})
}

// look selects the expensive parts of an observation.
type look struct {
	running bool // observe which bricks run, and which entries need healing
	sizes   bool // observe the size and the free space of the bricks
}

// ObserveQuick works like Observe, but leaves out the parts that take locks or ask bricks: which
// bricks run, and the entries to heal.
func (c *Controller) ObserveQuick(ctx context.Context, d Desired) (*Observation, error) {
	return c.observe(ctx, d, look{})
}

func (c *Controller) observe(ctx context.Context, d Desired, parts look) (*Observation, error) {
	o := &Observation{At: c.cfg.Clock.Now(), Reachable: map[string]bool{}}
	if d.Mount != "" && c.cfg.Prober != nil {
		h := c.cfg.Prober.Probe(ctx)
		o.Mount = &h
	}

	var err error
	if o.Pool, err = c.client.PoolList(ctx); err != nil {
		o.Pool = nil
		if k := cli.KindOf(err); k == cli.DaemonDown || errors.Is(err, exec.ErrNotFound) {
			o.Daemon = err.Error()
			return o, ctx.Err()
		}
		o.PoolError = err.Error()
	}

	addresses := []string{}
	for _, m := range d.others() {
		addresses = append(addresses, m.Address)
	}

	for _, p := range o.Pool {
		if !p.Self && !slices.ContainsFunc(d.others(),
			func(m Member) bool { return m.Name == p.Hostname || m.Address == p.Hostname }) {
			addresses = append(addresses, p.Hostname)
		}
	}

	// Run the commands in parallel: each starts a process, which takes long on a busy machine.
	var vols []cli.Volume
	var wg sync.WaitGroup
	wg.Go(func() { vols, err = c.client.Volumes(ctx) })
	c.probeAddresses(ctx, addresses, o)
	c.askOthers(ctx, d, o)
	wg.Wait()

	if err != nil {
		o.VolumeError = err.Error()
		return o, ctx.Err()
	}

	for _, v := range vols {
		if v.Name == d.Volume {
			o.Volume = &v
		} else {
			o.Others = append(o.Others, v.Name)
		}
	}

	if o.Volume == nil {
		c.askForVolume(ctx, d, o)
	}

	if parts.running && o.Volume != nil && o.Volume.State == cli.Started {
		c.running(ctx, d, o, parts.sizes)
	}

	return o, ctx.Err()
}

// maxDials bounds concurrent connections.
const maxDials = 16

func (c *Controller) probeAddresses(ctx context.Context, addresses []string, o *Observation) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxDials)
	for _, a := range addresses {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := c.cfg.Machine.Dial(ctx, a)
			mu.Lock()
			o.Reachable[a] = err == nil
			mu.Unlock()
		})
	}

	wg.Wait()
}

// askOthers asks the glusterds of the other members whether this node belongs to the pool, and
// whether all count each other as members.
func (c *Controller) askOthers(ctx context.Context, d Desired, o *Observation) {
	self := o.selfUUID()
	if self == "" {
		return
	}

	var ours []string
	for _, p := range o.Pool {
		ours = append(ours, p.UUID)
	}

	others := d.others()
	lists, faults := make([][]cli.Peer, len(others)), make([]error, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		if _, known := o.peerNamed(m.Name, m.Address); known && o.Reachable[m.Address] {
			wg.Go(func() { lists[i], faults[i] = c.client.PoolListOf(ctx, m.Name) })
		}
	}

	wg.Wait()
	for i, m := range others {
		peer, known := o.peerNamed(m.Name, m.Address)
		if !known || !o.Reachable[m.Address] {
			continue
		}

		theirs, err := lists[i], faults[i]
		if err != nil {
			o.Unsure = append(o.Unsure, m.Name)
			continue
		}

		uuids := map[string]bool{}
		settled := true
		for _, t := range theirs {
			uuids[t.UUID] = true
			if !t.Self && slices.Contains(ours, t.UUID) && t.State != cli.PeerInCluster {
				settled = false
			}
			if t.Self && t.UUID != peer.UUID {
				settled = false
			}
		}

		for _, u := range ours {
			if !uuids[u] {
				settled = false
			}
		}

		if !uuids[self] {
			o.Disowned = append(o.Disowned, m.Name)
		} else if !settled {
			o.Unsure = append(o.Unsure, m.Name)
		}
	}
}

// askForVolume asks the other members of the pool whether they have the volume that this node
// lacks.
func (c *Controller) askForVolume(ctx context.Context, d Desired, o *Observation) {
	for _, m := range d.others() {
		if peer, known := o.peerNamed(m.Name, m.Address); !known || peer.State != cli.PeerInCluster ||
			!o.Reachable[m.Address] {
			continue
		}
		vols, err := c.client.VolumesOf(ctx, m.Name)
		if err == nil && slices.ContainsFunc(vols, func(v cli.Volume) bool { return v.Name == d.Volume }) {
			o.Elsewhere = append(o.Elsewhere, m.Name)
		}
	}
}

// running asks which bricks run and which entries must be healed.
func (c *Controller) running(ctx context.Context, d Desired, o *Observation, sizes bool) {
	for _, p := range o.Pool {
		if p.Self || !p.Connected {
			continue
		}

		names := append([]string{p.Hostname}, p.Names...)
		for _, m := range d.Members {
			if slices.Contains(names, m.Name) {
				names = append(names, m.Address)
			}
		}

		for _, n := range names {
			if ok, tried := o.Reachable[n]; tried && !ok {
				o.StatusError = p.Hostname + " does not answer and glusterd has not noticed yet"
				o.HealError = o.StatusError
				return
			}
		}
	}

	ps, err := c.client.Status(ctx, d.Volume)
	if err != nil {
		o.StatusError = err.Error()
		o.HealError = "not asked, because it is not known which bricks run"
		return
	}

	if !sizes {
		// no sizes wanted
	} else if detail, err := c.client.StatusDetail(ctx, d.Volume); err == nil {
		sized := map[string]cli.Process{}
		for _, p := range detail {
			sized[p.Name] = p
		}

		for i, p := range ps {
			if s, ok := sized[p.Name]; ok && p.Name != "" {
				s.Online = p.Online
				s.Port = p.Port
				s.PID = p.PID
				ps[i] = s
			}
		}
	}

	o.Processes = ps
	if o.Volume.Replica == 1 {
		return
	}

	if o.Heal, err = c.client.HealSummary(ctx, d.Volume); err != nil {
		o.Heal, o.HealError = nil, err.Error()
		return
	}

	if o.Volume.Arbiters > 0 && len(o.HealState().Away) > 0 {
		o.SameEntries = c.sameEntries(ctx, d.Volume)
	}
}

// sameEntries reports whether the bricks that answer list the same pending entries.
func (c *Controller) sameEntries(ctx context.Context, volume string) bool {
	hs, err := c.client.HealEntries(ctx, volume)
	if err != nil {
		return false
	}

	var first map[string]bool
	for _, h := range hs {
		if !h.Connected {
			continue
		}
		if !h.Total.Known || h.Total.N != len(h.Entries) {
			return false
		}

		set := map[string]bool{}
		for _, e := range h.Entries {
			set[e.GFID+" "+e.Path] = true
		}

		if first == nil {
			first = set
		} else if !maps.Equal(first, set) {
			return false
		}
	}

	return first != nil
}

// shellQuote returns s quoted as one word for a shell, without characters that are unsafe for a
// terminal.
func shellQuote(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+@%:,", r))
	})
	if plain && s != "" {
		return s
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}

	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(s) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			b.WriteString(`\x` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]))
		default:
			b.WriteByte(c)
		}
	}

	return b.String() + "'"
}
