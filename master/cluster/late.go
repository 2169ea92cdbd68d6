package cluster

import (
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/value"
)

// A job that could not be sent to a peer waits for it, and is late then: its minions may have
// been given it by another master meanwhile, or have been started anew. The peer is told so
// before the job itself, and what its minions have returned to us goes first. What the peer
// knows of minions that were started anew comes first as well.

// Late says that a job comes late. The zero value: it does not.
type Late struct {
	Age    time.Duration // since it was published
	Passed int           // other jobs that were published since
	// Retold jobs have been published by the receiver before, for minions that were elsewhere,
	// or are for a receiver that was not there: Brought, which leaves those that it has.
	// They are no event.
	Retold, Brought bool
}

// returnsFirst is how long jobs that are late wait for returns to be handled.
const returnsFirst = 3 * time.Second

// packLate writes the message before a message that is late.
func packLate(seq uint64, late Late) ([]byte, error) {
	return wire.AppendFrame(nil, wire.OwnPrefix+ownLate,
		value.NewMap("seq", seq, "age", late.Age.Milliseconds(), "passed", late.Passed,
			"retold", late.Retold, "brought", late.Brought))
}

func parseLate(data []byte) (seq uint64, late Late, err error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return 0, late, err
	}
	age := min(uintOf(m, "age"), uint64(2*jobFor/time.Millisecond))
	late.Age = time.Duration(age) * time.Millisecond
	late.Passed = int(min(uintOf(m, "passed"), maxJobsPassed))
	late.Retold, _ = m.Value("retold").(bool)
	late.Brought, _ = m.Value("brought").(bool)
	return uintOf(m, "seq"), late, nil
}

// maxJobsPassed bounds the count of jobs that have passed.
const maxJobsPassed = 1 << 16

// holdJobs reports whether jobs wait for returns, or for what the other end knows.
func (l *link) holdJobs(now, connected time.Time) bool {
	published, late := l.queues[Jobs].lateFirst(now)
	if !late {
		return false
	}
	forReturns := now.Sub(connected) < returnsFirst && !l.queues[Returns].isEmpty()
	return forReturns || l.holdForStarts(published, now, connected)
}

// announceLate writes before a job that it is late, if it is.
func (l *link) announceLate(buf []byte, i *item, now time.Time) ([]byte, error) {
	if !i.late {
		return buf, nil
	}
	late := Late{Age: max(now.Sub(i.at), time.Millisecond), Retold: i.retold, Brought: i.brought}
	if h := l.p.handler.Load(); h != nil {
		late.Passed = (*h).Passed(late.Age)
	}
	b, err := packLate(i.seq, late)
	return append(buf, b...), err
}

// sentLate gives a job again that a peer has handled late, here and at the other peers: a
// minion may have come to them from there before it did. When several are late, the last of
// them that is connected counts.
func (l *link) sentLate(i *item) {
	p := l.p
	h := p.handler.Load()
	if !i.late || i.retold || h == nil {
		return
	}
	load, err := wire.UnpackEvent(i.packed)
	if err != nil || !p.retell(l, i) {
		return
	}
	(*h).JobReachedLate(load, p.cfg.Now().Sub(i.at))
}

// retell queues a job again for the peers that have it already, unless it still waits for one.
func (p *Pool) retell(from *link, i *item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var to []*link
	for _, l := range p.links {
		if l == from || l.plain || !l.up.Load() {
			continue
		}
		if l.queues[Jobs].holdsTag(i.tag) {
			return false
		}
		to = append(to, l)
	}

	for _, l := range to {
		l.queueItem(Jobs, &item{
			at:     i.at,
			tag:    i.tag,
			maker:  i.maker,
			packed: i.packed,
			job:    true,
			again:  true,
			retold: true,
		})
	}

	return true
}

// Job is one that was published some time ago.
type Job struct {
	Load *value.Map
	Age  time.Duration
}

// maxBrought bounds the jobs that a peer is brought, the latest.
const maxBrought = 256

// Bring gives a peer that has just been connected the jobs of the last while: one that has begun
// anew does not know them, and minions may come to it that have missed them.
func (p *Pool) Bring(peer string, jobs []Job) {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	l := p.links[peer]
	if l == nil || l.plain {
		return
	}

	for _, j := range jobs[max(0, len(jobs)-maxBrought):] {
		packed, err := wire.Pack(j.Load)
		if err != nil {
			continue
		}

		i := &item{
			at:      now.Add(-j.Age),
			tag:     event.Tag("job", j.Load.Str("jid"), "publish"),
			packed:  packed,
			job:     true,
			again:   true,
			retold:  true,
			brought: true,
			keep:    keyFor + j.Age,
		}
		if !l.queues[Jobs].holdsTag(i.tag) {
			l.queueItem(Jobs, i)
		}
	}
}

// lostJobs are jobs that a peer was never sent, by its incarnation of then. One that has begun
// anew meanwhile had no minions that miss them.
type lostJobs struct {
	peer, inc string
	items     []*item
}

// findLost collects the jobs that were lost for peers that are there again; mu is held.
func (p *Pool) findLost(now time.Time) (out []lostJobs) {
	for _, m := range p.node.Status(now).Members {
		l := p.links[m.ID]
		if l == nil || l.plain {
			continue
		}

		if lost := l.queues[Jobs].takeLost(now); len(lost) > 0 {
			if l.lostJobs.inc != m.Inc {
				l.lostJobs = lostJobs{peer: m.ID, inc: m.Inc}
			}
			kept := append(l.lostJobs.items, lost...)
			l.lostJobs.items = kept[max(0, len(kept)-maxLostJobs):]
		}

		if len(l.lostJobs.items) > 0 && l.up.Load() && m.Alive {
			if l.lostJobs.inc == m.Inc {
				out = append(out, l.lostJobs)
			}
			l.lostJobs = lostJobs{}
		}
	}

	return out
}

// tellLost tells the handler of them.
func (p *Pool) tellLost(all []lostJobs) {
	h := p.handler.Load()
	if h == nil {
		return
	}
	for _, lost := range all {
		for _, i := range lost.items {
			if load, err := wire.UnpackEvent(i.packed); err == nil {
				(*h).LostJob(lost.peer, load)
			}
		}
	}
}
