package node

import "time"

// renewLease queues a change of the lease: it renews the lease if this master holds it, or takes
// the lease when it has expired.
func (n *Node) renewLease(now time.Time) {
	o := n.rec.Owner
	if n.leaving || n.wanted("lease") {
		return
	}

	if n.isMine(o) {
		if now.Before(n.renewAt) {
			return
		}

		n.renewAt = now.Add(leaseRenew)
		n.queueIntent(now,
			&intent{name: "lease", lease: true, until: now.Add(leaseTTL), apply: func(r *Record) (bool, error) {
				if r.Owner.ID != o.ID || r.Owner.Inc != o.Inc || r.Owner.Token != o.Token {
					return false, nil
				}
				r.Owner.Beat++
				r.Owner.Seconds = uint64(leaseTTL / time.Second)
				return true, nil
			}})

		return
	}

	// If the owner is an earlier process of this master, that process has ended, so this process
	// takes the lease at once. Any other owner keeps the lease for its full term, even after the
	// owner's removal. A lease that was given back is free at once.
	wait := o.term() + time.Duration(n.rankAmongAlive(now))*leaseStep
	if o.ID == "" {
		wait = time.Duration(n.rankAmongAlive(now)) * leaseStep
	}

	if o.ID != n.cfg.ID && now.Sub(n.leaseSeen) < wait {
		return
	}

	n.queueIntent(now,
		&intent{name: "lease", lease: true, until: now.Add(leaseStep), apply: func(r *Record) (bool, error) {
			if r.Owner != o {
				return false, nil
			}
			r.Owner = Lease{
				ID:      n.cfg.ID,
				Inc:     n.cfg.Inc,
				Token:   o.Token + 1,
				Seconds: uint64(leaseTTL / time.Second),
			}
			return true, nil
		}})
}

// seeLease determines until when this master holds the lease that the record names. The term of the
// lease begins when this master started to write the lease.
func (n *Node) seeLease() {
	n.ownUntil = time.Time{}
	o := n.rec.Owner
	if !n.isMine(o) {
		return
	}
	for _, t := range n.leaseTries {
		if t.token == o.Token && t.beat == o.Beat {
			n.ownUntil = t.start.Add(leaseTTL - leaseMargin)
			n.renewAt = t.start.Add(leaseRenew)
			return // two attempts wrote the same beat: the start of the earlier attempt applies
		}
	}
}

func (n *Node) holdsLease(now time.Time) bool {
	return n.phase == Active && !n.leaving && now.Before(n.ownUntil)
}

// isMine reports whether this process of this master is the owner that the lease names.
func (n *Node) isMine(o Lease) bool { return o.ID == n.cfg.ID && o.Inc == n.cfg.Inc }

// leave ends this master's ownership for good, and queues a change that gives the lease back if this
// master may be its owner. The record then names no owner, as before the first one: any version of
// Saltern takes such a lease at once. The token stays, so that the tokens of later owners are greater.
func (n *Node) leave(now time.Time, command uint64) {
	n.leaving = true
	ok := n.queueIntent(now, &intent{name: "leave", apply: func(r *Record) (bool, error) {
		if !n.isMine(r.Owner) {
			return false, nil
		}
		r.Owner = Lease{Token: r.Owner.Token, Left: n.cfg.ID}
		return true, nil
	}, done: n.answer(command)})
	if !ok {
		n.answer(command)(now, errBusy)
	}
}
