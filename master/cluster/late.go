package cluster

import (
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/value"
)

// A job that could not be sent to a peer remains in the peer's queue, and reaches the peer late.
// Meanwhile another master may have sent the job to the peer's minions, or these minions may have
// been restarted. Therefore the sender announces that the job is late before it sends the job. It
// also sends two things ahead of the job: returns of the peer's minions that arrived at the sender,
// and the restarted minion processes that the sender knows.

// Late describes a job that arrives late. The zero value means that the job is on time.
type Late struct {
	Age    time.Duration // time since the job was published
	Passed int           // number of jobs that the sender has published since
	// Retold means that the receiver has published the job before and must publish it again, for
	// minions that were connected to another master at that time. Brought means that the receiver
	// was not connected when the job was published; the receiver skips the job if it has it
	// already. A job with Retold or Brought fires no event.
	Retold, Brought bool
}

// returnsFirst is how long late jobs may wait until the peer has handled the returns that are
// queued for it.
const returnsFirst = 3 * time.Second

// packLate packs the message that announces a late job; seq is the number of the job's message.
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

// maxJobsPassed bounds Late.Passed as a peer reports it.
const maxJobsPassed = 1 << 16

// holdJobs reports whether the jobs in the queue must wait, either until the peer has handled the
// queued returns, or until the peer has reported which minion processes it knows.
func (l *link) holdJobs(now, connected time.Time) bool {
	published, late := l.queues[Jobs].lateFirst(now)
	if !late {
		return false
	}
	forReturns := now.Sub(connected) < returnsFirst && !l.queues[Returns].isEmpty()
	return forReturns || l.holdForStarts(published, now, connected)
}

// announceLate appends the announcement of a late job to buf, if the job is late.
func (l *link) announceLate(buf []byte, i *item, now time.Time) ([]byte, error) {
	if !i.sentLate {
		return buf, nil
	}
	late := Late{Age: max(now.Sub(i.queuedAt), time.Millisecond), Retold: i.retold, Brought: i.brought}
	if h := l.pool.handler.Load(); h != nil {
		late.Passed = (*h).Passed(late.Age)
	}
	b, err := packLate(i.seq, late)
	return append(buf, b...), err
}

// sentLate publishes a job again, at this master and at the other peers, after the link's peer has
// handled the job late: a minion may have moved from that peer to another master before that peer
// sent the job to it. If several peers were late, only the last of their links does this.
func (l *link) sentLate(i *item) {
	p := l.pool
	h := p.handler.Load()
	if !i.sentLate || i.retold || h == nil {
		return
	}
	load, err := wire.UnpackEvent(i.packed)
	if err != nil || !p.retell(l, i) {
		return
	}
	(*h).JobReachedLate(load, p.cfg.Now().Sub(i.queuedAt))
}

// retell queues a job again for the peers that have received it before, and reports whether it did.
// It does nothing, and returns false, while the job still waits for another peer.
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
			queuedAt:   i.queuedAt,
			tag:        i.tag,
			maker:      i.maker,
			packed:     i.packed,
			isJob:      true,
			sentBefore: true,
			retold:     true,
		})
	}

	return true
}

// Job is a job that was published some time ago.
type Job struct {
	Load *value.Map
	Age  time.Duration
}

// maxBrought is the largest number of jobs that Bring sends to a peer. Bring sends the latest jobs.
const maxBrought = 256

// Bring sends the jobs of the last minutes to a peer that has just connected. A restarted peer does
// not know these jobs, and minions that missed them may connect to that peer.
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
			queuedAt:   now.Add(-j.Age),
			tag:        event.Tag("job", j.Load.Str("jid"), "publish"),
			packed:     packed,
			isJob:      true,
			sentBefore: true,
			retold:     true,
			brought:    true,
			keepFor:    keyFor + j.Age,
		}
		if !l.queues[Jobs].holdsTag(i.tag) {
			l.queueItem(Jobs, i)
		}
	}
}

// lostJobs lists the jobs that were never sent to a peer, with the incarnation that the peer had
// then. If the peer has restarted since, its minions connected to it after the jobs were published,
// so none of them missed a job.
type lostJobs struct {
	peer, inc string
	items     []*item
}

// findLost returns the lost jobs of all peers that are connected again and have not restarted. The
// caller holds mu.
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

// tellLost calls the handler's LostJob for each lost job.
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
