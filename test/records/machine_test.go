package records

import (
	"errors"
	"fmt"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/node"
	"saltern/supervisor/nodes"
)

// machine is a node: its supervisor, and its master.
type machine struct {
	name, addr, cert, pub string
	secret                string // on its disk
	shown                 string // what its master has shown last
	found                 bool

	up      bool
	life    int // of the supervisor
	table   nodes.Table
	removed bool // it was told so
	looked  time.Time
	version uint64 // newest record seen
	since   map[string]time.Time

	master     *node.Node
	masterLife int
	commands   uint64
	done       map[uint64]func(error)
}

func (m *machine) String() string { return fmt.Sprintf("%s@%s/%.4s", m.name, m.addr, m.cert[60:]) }

func (w *world) newMachine(name, addr string) *machine {
	w.made++
	m := &machine{name: name, addr: addr, cert: fmt.Sprintf("%064d", w.made), done: map[uint64]func(error){}}
	m.pub = "pub " + m.cert
	w.machines = append(w.machines, m)
	return m
}

// start starts the supervisor, which starts the master.
func (m *machine) start(w *world) {
	if m.up {
		return
	}

	m.up = true
	m.life++
	life := m.life
	var tick func()
	tick = func() {
		if m.life == life {
			m.tick(w)
			w.after(w.ms(800, 1200), tick)
		}
	}

	w.after(w.ms(0, 500), tick)
}

// crash ends the supervisor at once, and the master with the machine.
func (m *machine) crash(w *world, all bool) {
	w.tracef("%s crashes, machine %v", m, all)
	m.life++
	m.up = false
	clear(m.done) // nobody waits for the answers
	if all {
		m.stopMaster()
	}
	w.after(w.ms(300, 15000), func() {
		if m.current(w) {
			m.start(w)
		}
	})
}

// current reports whether the machine was not set up anew.
func (m *machine) current(w *world) bool {
	for _, o := range w.machines {
		if o.addr == m.addr && o != m && o.cert > m.cert {
			return false
		}
	}
	return true
}

func (m *machine) stopMaster() { m.master = nil; m.masterLife++ }

// seededRandom draws from the world's seeded source.
type seededRandom struct{ w *world }

func (s seededRandom) Token() string {
	return fmt.Sprintf("%016x%016x", s.w.rng.Uint64(), s.w.rng.Uint64())
}

func (s seededRandom) NewKey() string {
	s.w.made++
	return clusterKeys()[s.w.made%len(clusterKeys())]
}

func (s seededRandom) NewSeed() string { return fmt.Sprintf("seed%x", s.w.rng.Uint64()) }

func (s seededRandom) Jitter(d time.Duration) time.Duration {
	return time.Duration(s.w.rng.Int64N(int64(d) + 1))
}

func (m *machine) startMaster(w *world) {
	m.masterLife++
	life := m.masterLife
	random := seededRandom{w}
	cfg := node.Config{
		ID:             m.addr,
		Pub:            m.pub,
		Inc:            fmt.Sprintf("%s#%d", m.cert, life),
		ClusterPub:     "cluster",
		Found:          m.found && !w.exists,
		Key:            random.NewKey(),
		Seed:           "seed",
		Secret:         m.secret,
		PublishSession: time.Hour,
		Random:         random,
	}

	for _, n := range m.table.Serving() {
		if n.Address != m.addr {
			cfg.Peers = append(cfg.Peers, node.Peer{ID: n.Address})
		}
	}

	m.master = node.New(cfg)
	m.shown = m.secret
	var tick func()
	tick = func() {
		if m.masterLife == life {
			w.do(m, m.master.Tick(w.now))
			w.after(w.ms(400, 600), tick)
		}
	}

	w.after(w.ms(0, 300), tick)
}

func (m *machine) step(w *world, life int, in node.Input) {
	if m.masterLife == life && m.master != nil {
		w.do(m, m.master.Step(w.now, in))
	}
}

// mayDie is called between any two steps of the supervisor; true: it is dead.
func (m *machine) mayDie(w *world) bool {
	if !w.calm && w.chance(3) {
		m.crash(w, w.chance(30))
		return true
	}
	return false
}

// change is Keeper.Change.
func (m *machine) change(w *world, f func(*nodes.Table) error, then func(error)) {
	life := m.life
	w.after(w.ms(1, 40), func() {
		if m.life != life || m.mayDie(w) {
			return
		}
		if w.down {
			then(errDown)
			return
		}

		t := w.table.Clone()
		if err := f(&t); err != nil {
			then(err)
			return
		}

		expect := t.Version
		t.Version++
		w.after(w.ms(1, 60), func() {
			alive := m.life == life
			switch {
			case !alive && w.chance(50): // it died before the write
			case w.down && alive:
				then(errDown)
			case w.down:
			case w.table.Version != expect && alive:
				m.change(w, f, then)
			case w.table.Version != expect:
			default:
				w.commitTable(m, t)
				switch {
				case !alive || m.mayDie(w):
				case w.lost():
					then(errLost)
				default:
					m.offer(w, t)
					w.spread(m, t)
					then(nil)
				}
			}
		})
	})
}

func (m *machine) offer(w *world, t nodes.Table) {
	if t.Version > m.table.Version {
		m.table = t.Clone()
		if t.WasRemoved(m.cert) {
			m.hearRemoved(w)
		}
	}
}

func (m *machine) hearRemoved(w *world) {
	if !m.removed {
		w.tracef("%s hears that it was removed", m)
		m.removed = true
		m.stopMaster()
	}
}

func (w *world) spread(from *machine, t nodes.Table) {
	for _, n := range t.Peers(from.name) {
		if !w.lost() {
			w.after(w.ms(1, 30), func() {
				if o := w.at(n.Address); o != nil && o.cert == n.Certificate {
					o.offer(w, t)
				}
			})
		}
	}
}

// command asks the node's own master, as the control socket does.
func (m *machine) command(w *world, c node.Command, then func(error)) {
	if m.master == nil {
		then(errLost)
		return
	}

	m.commands++
	c.ID = m.commands
	life := m.life
	m.done[c.ID] = func(err error) {
		w.after(w.ms(1, 5), func() {
			if m.life == life && !m.mayDie(w) {
				then(err)
			}
		})
	}

	w.after(40*time.Second, func() {
		if f := m.done[c.ID]; f != nil {
			delete(m.done, c.ID)
			f(errLost)
		}
	})

	m.step(w, m.masterLife, c)
}

// drop is Member.Drop.
func (m *machine) drop(w *world, name string, then func(error)) {
	n, ok := m.table.Find(name)
	if !ok {
		then(errors.New("there is no such node"))
		return
	}
	if w.down || !w.exists {
		then(errDown)
		return
	}

	removal := control.Removal{ID: n.Address, Node: n.Certificate}
	record := func(then func(error)) {
		if _, in := w.rec.Member(n.Address); !in {
			then(nil)
			return
		}

		m.command(w, node.Command{Remove: removal}, func(err error) {
			if errors.Is(err, node.ErrNotMember) {
				err = nil
			}
			then(err)
		})
	}

	table := func(then func(error)) {
		m.change(w, func(t *nodes.Table) error { return t.Remove(n.Certificate) }, then)
	}
	if w.undo.order {
		record, table = table, record
	}

	record(func(err error) {
		if err != nil {
			then(err)
			return
		}

		table(func(err error) {
			if err != nil || w.undo.rest {
				then(err)
				return
			}
			m.rest(w, n.Certificate, then)
		})
	})
}

// rest is halves.rest.
func (m *machine) rest(w *world, cert string, then func(error)) {
	m.offer(w, w.table)
	for _, h := range nodes.FindHalves(m.table, view(w.rec)) {
		if h.Node.Certificate == cert {
			m.finish(w, h, func(err error) {
				if err != nil {
					then(err)
					return
				}
				m.rest(w, cert, then)
			})

			return
		}
	}

	then(nil)
}

// tick is a turn of Member.Run.
func (m *machine) tick(w *world) {
	self, ok := m.table.ByCertificate(m.cert)
	if !ok && m.table.Version == 0 || m.removed {
		return
	}

	if w.now.Sub(m.looked) >= 4*time.Second && !w.down {
		m.looked = w.now
		m.takeSecret(w)
		m.look(w)
	}

	for _, n := range m.table.Peers(m.name) { // as peers.follow
		if o := w.at(n.Address); o != nil && o.cert == n.Certificate && !w.lost() {
			if o.table.WasRemoved(m.cert) {
				m.hearRemoved(w)
			}
			m.offer(w, o.table)
		}
	}

	if m.removed {
		return
	}

	if m.master == nil && ok {
		m.startMaster(w)
	}

	if self.State == nodes.Joining { // as Member.announce
		if r, ok := w.rec.Member(m.addr); ok && r.Own {
			m.change(w, func(t *nodes.Table) error {
				if n, _ := t.ByCertificate(m.cert); n.State != nodes.Joining {
					return errors.New("not joining any more")
				}
				return t.Set(m.name, nodes.Member)
			}, func(error) {})
		}
	}
}

// takeSecret is shared.takeSecret.
func (m *machine) takeSecret(w *world) {
	secret, life := secretOf(w.rec), m.life
	w.after(w.ms(1, 60), func() {
		if m.life != life || w.down {
			return
		}
		m.offer(w, w.table)
		if !m.removed && w.exists && m.secret != secret {
			m.secret = secret
			if m.master != nil && m.master.Phase() != node.Active {
				m.stopMaster() // it is started with the new one
			}
		}
	})
}

// look is halves.look.
func (m *machine) look(w *world) {
	if w.undo.finish || m.removed {
		return
	}

	t, life := w.table.Clone(), m.life
	w.after(w.ms(1, 80), func() {
		if m.life != life || w.down || !w.exists {
			return
		}

		r := w.rec
		if !w.calm && len(w.past) > 1 && w.chance(10) {
			r = w.past[w.rng.IntN(len(w.past))]
		}

		if r.Version == 0 || r.Version < m.version {
			return
		}

		m.version = r.Version
		since := map[string]time.Time{}
		for _, h := range nodes.FindHalves(t, view(r)) {
			if h.Guess {
				since[h.Node.Certificate] = w.now
				if at, ok := m.since[h.Node.Certificate]; ok {
					since[h.Node.Certificate] = at
				}
				if w.now.Sub(since[h.Node.Certificate]) < 15*time.Second {
					continue
				}
			}

			m.finish(w, h, func(error) {})
		}

		m.since = since
	})
}

// finish is halves.finish.
func (m *machine) finish(w *world, h nodes.Half, then func(error)) {
	w.tracef("%s finishes the removal of %s: %+v", m, h.Node.Name, h.Removal)
	if h.Removal.Node == "" {
		m.change(w, func(t *nodes.Table) error {
			if n, ok := t.ByCertificate(h.Node.Certificate); !ok || n.State == nodes.Removed || t.LastServing(n) {
				return errors.New("another node was faster")
			}
			return t.Remove(h.Node.Certificate)
		}, then)
		return
	}

	m.offer(w, w.table)
	for _, n := range m.table.Present() {
		if n.Address == h.Removal.ID && h.Removal.Key != control.NoMaster {
			then(nil)
			return
		}
	}

	m.command(w, node.Command{Remove: h.Removal}, then)
}
