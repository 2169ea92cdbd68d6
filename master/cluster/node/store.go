package node

import (
	"slices"
	"time"

	"saltern/internal/control"
)

// intent is a change of the record that the node wants. The node may apply the change several
// times, to different records, until the shared folder has stored one of the results.
type intent struct {
	name  string    // identifies the change, so that it is not queued twice
	until time.Time // time at which the node abandons the change
	// apply changes r, which is a copy. It returns false when there is nothing to change.
	apply func(r *Record) (changed bool, err error)
	// The node calls done once. If err is nil, the record contains the change.
	done func(now time.Time, err error)
	// lease marks an attempt to take or renew the lease. The term of the lease counts from the
	// start of the attempt.
	lease bool
}

// inflight is the store in progress.
type inflight struct {
	id  uint64
	in  *intent
	rec Record
}

// leaseTry is a store that would make this master the owner, either in progress or with an unknown
// result.
type leaseTry struct {
	token, beat uint64
	start       time.Time
}

// queueIntent queues a change. It returns false when too many changes wait already.
func (n *Node) queueIntent(now time.Time, in *intent) bool {
	if in.until.IsZero() {
		// After this time the node abandons the change.
		in.until = now.Add(30 * time.Second)
	}
	if len(n.queue) >= maxIntents {
		return false
	}
	n.queue = append(n.queue, in)
	return true
}

// wanted reports whether a change of this name is queued or in progress.
func (n *Node) wanted(name string) bool {
	return n.inflight != nil && n.inflight.in.name == name ||
		slices.ContainsFunc(n.queue, func(i *intent) bool { return i.name == name })
}

// startNextIntent applies the next queued change and outputs a Store, unless one is in progress.
func (n *Node) startNextIntent(now time.Time) {
	for n.inflight == nil && len(n.queue) > 0 && !now.Before(n.retryAt) {
		in := n.queue[0]
		n.queue = n.queue[1:]
		if !now.Before(in.until) {
			n.finish(now, in, errTimeout)
			continue
		}

		r := n.rec.clone()
		changed, err := in.apply(&r)
		if err != nil || !changed {
			n.finish(now, in, err)
			continue
		}

		expect := n.rec.Version
		r.Version = expect + 1
		if n.lowerVersion != nil {
			expect = *n.lowerVersion
		}

		n.opID++
		n.inflight = &inflight{id: n.opID, in: in, rec: r}
		if in.lease {
			n.leaseTries = append(n.leaseTries, leaseTry{r.Owner.Token, r.Owner.Beat, now})
			if len(n.leaseTries) > 16 {
				n.leaseTries = slices.Delete(n.leaseTries, 0, len(n.leaseTries)-16)
			}
		}

		n.addOutput(Store{ID: n.opID, Expect: expect, Record: r.clone()})
	}
}

func (n *Node) finish(now time.Time, in *intent, err error) {
	if in.done != nil {
		in.done(now, err)
	}
}

// failIntents reports err as the result of the change in progress and of all queued changes.
func (n *Node) failIntents(err error) {
	queue := n.queue
	n.queue = nil
	if n.inflight != nil {
		queue = append(queue, n.inflight.in)
		n.inflight = nil
	}
	for _, in := range queue {
		n.finish(time.Time{}, in, err)
	}
}

// stored handles the result of a Store.
func (n *Node) stored(now time.Time, s Stored) {
	f := n.inflight
	if f == nil || f.id != s.ID {
		return
	}

	n.inflight = nil
	switch {
	case s.Err != nil:
		n.retryAt = now.Add(storeRetry + n.cfg.Random.Jitter(storeRetry))
		n.queue = slices.Insert(n.queue, 0, f.in)
		return
	case s.Conflict:
		if s.Current.Version < n.rec.Version {
			// The folder has lost newer records: store the record of this master again.
			v := s.Current.Version
			n.lowerVersion = &v
		} else if s.Current.Check() == nil {
			n.adoptRecord(now, s.Current)
		}

		if n.phase == Removed {
			n.finish(now, f.in, ErrInactive)
			return
		}

		n.queue = slices.Insert(n.queue, 0, f.in)
		n.retryAt = now.Add(n.cfg.Random.Jitter(50 * time.Millisecond))
		return
	}

	n.adoptRecord(now, f.rec)
	for _, m := range f.rec.Members {
		if m.Own && m.ID != n.cfg.ID {
			n.addOutput(Send{To: m.ID, Pub: m.Pub, Msg: State{f.rec.clone()}})
		}
	}

	n.finish(now, f.in, nil)
}

// foundCluster queues the change that creates the first record.
func (n *Node) foundCluster(now time.Time) {
	if n.wanted("found") {
		return
	}

	n.queueIntent(now, &intent{name: "found", apply: func(r *Record) (bool, error) {
		if r.Version > 0 {
			return false, nil
		}

		*r = Record{
			Key:     n.cfg.Key,
			KeyGen:  1,
			KeyMade: now.Unix(),
			Secrets: control.Secrets{Seed: n.cfg.Seed},
			SeedGen: 1,
		}

		for _, p := range n.cfg.Peers {
			if p.Pub != "" && p.ID != n.cfg.ID {
				r.putMember(Member{ID: p.ID, Pub: p.Pub})
			}
		}

		for _, a := range n.attempts {
			if a.admitted {
				r.putMember(Member{ID: a.peer.ID, Pub: a.peer.Pub})
			}
		}

		r.putMember(Member{ID: n.cfg.ID, Pub: n.cfg.Pub, Own: true})
		return true, nil
	}})
}

// rotate queues a change that replaces the cluster AES key, unless another master replaces it
// first.
func (n *Node) rotate(now time.Time, command uint64) {
	if command == 0 && n.wanted("rotate") {
		return
	}

	gen := n.rec.KeyGen
	ok := n.queueIntent(now, &intent{name: "rotate", apply: func(r *Record) (bool, error) {
		if r.KeyGen > gen {
			return false, nil
		}
		n.newKey(now, r)
		return true, nil
	}, done: n.answer(command)})
	if !ok {
		n.answer(command)(now, errBusy)
	}
}

func (n *Node) newKey(now time.Time, r *Record) { r.setKey(n.cfg.Random.NewKey(), now) }

// setKey makes key the current AES key; the former current key becomes the previous key.
func (r *Record) setKey(key string, now time.Time) {
	r.PrevKey = r.Key
	r.Key = key
	r.KeyMade = now.Unix()
	r.KeyGen++
}

// answer returns a function that outputs the result of a command. If command is 0, the returned
// function outputs nothing.
func (n *Node) answer(command uint64) func(time.Time, error) {
	return func(_ time.Time, err error) {
		if command != 0 {
			n.addOutput(Done{ID: command, Err: err})
		}
	}
}

// keyFile queues a change that adopts an AES key that a Salt master created.
func (n *Node) keyFile(now time.Time, key string) {
	if n.phase != Active || n.wanted("key file") {
		return
	}
	n.queueIntent(now, &intent{name: "key file", apply: func(r *Record) (bool, error) {
		if r.Key == key || r.PrevKey == key {
			return false, nil
		}
		r.setKey(key, now)
		return true, nil
	}})
}

func (n *Node) command(now time.Time, c Command) {
	switch {
	case c.Leave:
		n.leave(now, c.ID)
	case n.phase != Active:
		n.answer(c.ID)(now, ErrInactive)
	case c.Remove.ID != "":
		n.removeMember(now, c)
	case c.Rotate:
		n.rotate(now, c.ID)
	case c.Stage, c.Commit != "":
		n.changeSecret(now, c)
	}
}

// removeMember queues a change that removes a master. The same change ensures that the master's key
// is never admitted again, and replaces all secrets that the master knows.
func (n *Node) removeMember(now time.Time, c Command) {
	ok := n.queueIntent(now, &intent{name: "remove", apply: func(r *Record) (bool, error) {
		removed, change, err := r.toRemove(c.Remove)
		if !change || err != nil {
			return false, err
		}
		r.buryMember(removed, c.Remove.Node)
		n.renewSecrets(now, r)
		return true, nil
	}, done: n.answer(c.ID)})
	if !ok {
		n.answer(c.ID)(now, errBusy)
	}
}

// toRemove returns the master that a removal removes from the record. change is false if the
// removal was done before. For a machine whose master is not a member, the returned Member has no
// key.
func (r Record) toRemove(c control.Removal) (removed Member, change bool, err error) {
	m, ok := r.Member(c.ID)
	switch {
	case c.Key == control.NoMaster:
		return Member{ID: c.ID}, !slices.ContainsFunc(r.Removed,
			func(t Tombstone) bool { return t.Node == c.Node }), nil
	case c.Key != "" && (!ok || control.KeyFinger(m.Pub) != c.Key):
		return Member{}, false, nil
	case c.Key == "" && c.Node != "" && slices.ContainsFunc(r.Removed,
		func(t Tombstone) bool { return t.Node == c.Node }):
		return Member{}, false, nil // a new master has the address now
	case !ok && slices.ContainsFunc(r.Removed, func(t Tombstone) bool { return t.ID == c.ID }):
		return Member{}, false, nil
	case !ok:
		return Member{}, false, ErrNotMember
	case len(r.Members) == 1:
		return Member{}, false, ErrLast
	}

	return m, true, nil
}

// renewSecrets replaces all secrets in the record that a removed member knows.
func (n *Node) renewSecrets(now time.Time, r *Record) {
	n.newKey(now, r)
	r.PrevKey = ""
	r.Secret, r.NextSecret = n.newSecret(), ""
	r.Seed = n.cfg.Random.NewSeed()
	r.SeedGen++
}
