package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// perform carries out the outputs of the node. It never blocks. The caller holds mu.
func (p *Pool) perform(outputs []node.Output) {
	for _, o := range outputs {
		switch o := o.(type) {
		case node.Send:
			p.sendControl(o)
		case node.Load:
			p.loadRecord()
		case node.Store:
			p.storeRecord(o)
		case node.Apply:
			p.adoptRecord(o)
		case node.PeerKey:
			v := *p.view.Load()
			sessions := map[string]crypt.Key{o.Peer: o.Key}
			for id, k := range v.sessions {
				if id != o.Peer {
					sessions[id] = k
				}
			}

			v.sessions = sessions
			p.view.Store(&v)
			p.inbox.unpark(o.Peer)
		case node.Done:
			if c := p.commands[o.ID]; c != nil {
				c <- o.Err
				delete(p.commands, o.ID)
			}
		case node.Note:
			p.logNote(o)
		case node.Install:
			// This master installs no key files, since they are on the shared folder. If the key in
			// the reply differs from the key in the folder, the two masters do not share the
			// folder.
			if string(o.Reply.ClusterPub) != "" &&
				crypt.NormalizePEM(o.Reply.ClusterPub) != crypt.NormalizePEM(p.identity.Public) {
				p.log.Error("the peers have another cluster_pki_dir", "peer", o.Reply.PeerID)
			}
		}
	}
}

func (p *Pool) logNote(o node.Note) {
	level := slog.LevelInfo
	if o.Warn {
		level = slog.LevelWarn
		if p.node.Phase() == node.Joining {
			p.refusal = strings.TrimSpace(o.Reason)
		}
	}

	attrs := []any{}
	if o.Peer != "" {
		attrs = append(attrs, "peer", o.Peer)
	}

	if o.Reason != "" {
		attrs = append(attrs, "reason", o.Reason)
	}

	p.log.Log(p.ctx, level, o.Text, attrs...)
}

// adoptRecord publishes a newer record to the connections, and adapts the links to it. The caller
// holds mu.
func (p *Pool) adoptRecord(o node.Apply) {
	old := p.view.Load()
	v := &view{rec: o.Record, phase: o.Phase, sessions: old.sessions}
	for _, text := range []string{o.Record.Key, o.Record.PrevKey} {
		if k, err := crypt.ParseKey(text); err == nil {
			v.keys = append(v.keys, k)
		}
	}

	p.view.Store(v)
	select {
	case p.viewChanged <- struct{}{}:
	default:
	}

	if old.phase != v.phase {
		close(p.phaseChanged)
		p.phaseChanged = make(chan struct{})
		for id, l := range p.strays {
			l.close()
			delete(p.strays, id)
		}
	}

	p.logOwner(v)
	p.relink(v)
	p.inbox.review()
}

// logOwner logs who owns the duties that only one master may do, once for each term of the lease.
// The caller holds mu.
func (p *Pool) logOwner(v *view) {
	owner := v.rec.Owner
	// With Salt's masters, the log has the terms of their consensus.
	if v.phase != node.Active || owner.Token == p.loggedTerm || p.cfg.PlainPeers {
		return
	}

	p.loggedTerm = owner.Token
	role := "follower"
	if owner.ID == p.cfg.ID && owner.Inc == p.inc {
		role = "leader"
	}
	p.log.Info(becoming(p.cfg.ID, role, owner.Token), "owner", owner.ID)
}

// becoming returns the line that Salt's masters log when their role in the cluster changes
// (salt/cluster/consensus/raft/node.py become_leader), for tools that look for it in the log.
func becoming(id, role string, term uint64) string {
	return fmt.Sprintf("Node %s BECOMING %s for term %d", id, strings.ToUpper(role), term)
}

// relink opens and closes links so that each member that this master may dial has a link. The
// caller holds mu.
func (p *Pool) relink(v *view) {
	for id, l := range p.links {
		m, ok := v.rec.Member(id)
		if !ok || v.phase == node.Removed || m.Own == l.plain {
			delete(p.links, id)
			if v.phase == node.Active && !ok {
				l.farewell() // the link first sends that master the message that it was removed
			} else {
				l.close()
			}
		}
	}

	if v.phase != node.Active {
		return
	}

	for _, m := range v.rec.Members {
		if m.ID == p.cfg.ID || p.links[m.ID] != nil || !m.Own && !p.cfg.PlainPeers {
			continue
		}

		l := newLink(p, m.ID, m.Pub, !m.Own)
		if s := p.strays[m.ID]; s != nil {
			s.farewell()
			delete(p.strays, m.ID)
		}

		p.links[m.ID] = l
		p.wg.Go(l.keepConnected)
	}
}

// maxStrays bounds the links to masters that are not members.
const maxStrays = 32

// sendControl passes a control message to the link of its receiver. The caller holds mu.
func (p *Pool) sendControl(s node.Send) {
	if l := p.links[s.To]; l != nil && (s.Pub == "" || s.Pub == l.pub) {
		l.control(s.Msg)
		return
	}
	if !allowedToStrangers(s.Msg) {
		return
	}

	l := p.strays[s.To]
	if l != nil && (l.hasEnded() || l.pub != s.Pub) {
		l.close()
		delete(p.strays, s.To)
		l = nil
	}

	if l == nil {
		maps.DeleteFunc(p.strays, func(_ string, o *link) bool { return o.hasEnded() })
		if len(p.strays) >= maxStrays {
			p.count.dropped.Add(1)
			return
		}

		l = newLink(p, s.To, s.Pub, false)
		l.stray, l.tryPlain = true, p.cfg.PlainPeers
		p.strays[s.To] = l
		p.wg.Go(l.keepConnected)
	}

	l.control(s.Msg)
}

// allowedToStrangers reports whether a message may go to a master that is not a member.
func allowedToStrangers(msg any) bool {
	switch msg.(type) {
	case wire.Discover, wire.DiscoverReply, wire.Join, wire.JoinReply, node.Refused:
		return true
	}
	return false
}

// withFolder runs f, which uses the folder, and calls onSlow if f takes longer than five seconds.
// If the f of a previous call still hangs, withFolder calls onSlow at once and does not run f.
func (p *Pool) withFolder(f func(), onSlow func()) {
	if !p.folderBusy.CompareAndSwap(false, true) {
		p.wg.Go(onSlow)
		return
	}

	done := make(chan struct{})
	go func() { // f may hang in the kernel for ever: then withFolder does not wait for this goroutine
		defer p.folderBusy.Store(false)
		defer close(done)
		f()
		p.folderLog.result("use the cluster's folder", nil)
	}()

	p.wg.Go(func() {
		t := time.NewTimer(5 * time.Second)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			p.folderLog.result("use the cluster's folder", errFolder)
			onSlow()
		case <-p.ctx.Done():
			select { // Close waits for a moment, in case f is about to end
			case <-done:
			// Close waits at most this long for a call that has begun.
			case <-time.After(time.Second):
			}
		}
	})
}

var errFolder = errors.New("the cluster's folder does not answer")

// loadRecord reads the record and checks whether Salt's masters have rotated the AES key.
func (p *Pool) loadRecord() {
	p.withFolder(func() {
		r, exists, err := p.folder.loadRecord()
		p.folderLog.result("read the cluster's record", err)
		p.stepNode(node.Loaded{Record: r, Exists: exists, Err: err})
		if err != nil || !exists {
			return
		}

		k, err := p.folder.readKey()
		switch text := k.String(); {
		case err == nil && text == r.Key:
		case err == nil && text != r.PrevKey && p.cfg.PlainPeers:
			p.stepNode(node.KeyFile{Key: text})
		default:
			p.folderLog.result("repair the file of the cluster's AES key", p.folder.mendMissingKey(r))
		}
	}, func() {})
}

func (p *Pool) storeRecord(o node.Store) {
	var once sync.Once
	answer := func(s node.Stored) {
		once.Do(func() {
			s.ID = o.ID
			p.stepNode(s)
		})
	}
	p.withFolder(func() {
		current, conflict, err := p.folder.storeRecord(o.Expect, o.Record)
		p.folderLog.result("change the cluster's record", err)
		answer(node.Stored{Conflict: conflict, Current: current, Err: err})
	}, func() { answer(node.Stored{Err: errFolder}) })
}
