package storage

import (
	"fmt"
	"slices"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
	"saltern/supervisor/status"
)

// State returns the newest state. It never blocks.
func (m *Manager) State() State {
	h := m.health()
	held, holder := m.lease.isHeld()
	leads, _, why := m.leadership()
	mirrorAt, _, mirrorFault := m.mirror.state()
	_, blocked := m.mayServe()
	m.mu.Lock()
	defer m.mu.Unlock()

	s := State{
		Leads:  leads,
		Leader: holder,
		Doing:  m.doing,
		Spare:  -1,
		Mount:  Mount{State: string(h.State), Text: h.Text, Writable: h.Writable, Latency: h.Latency},
		Space:  Space{Total: h.Total, Free: h.Free, Inodes: h.Inodes, InodesFree: h.InodesFree},
	}

	if held || leads {
		s.Leader = m.cfg.Self
	}

	if m.obs != nil {
		s.Done = m.plan.Done()
		if !s.Done || len(m.plan.Warnings) > 0 {
			s.Plan = planText(m.plan)
		}
	}

	d := m.desired()
	if m.obs != nil {
		s.At = m.obs.At
		m.describeObservation(&s, d)
	}

	s.Waiting = m.waiting(h, blocked, why, mirrorAt, mirrorFault)
	s.Ready = s.Waiting == ""
	s.Problems = m.findings(h, d, mirrorAt, mirrorFault)
	return s
}

// describeObservation fills in the parts of the state that come from the observation.
func (m *Manager) describeObservation(s *State, d glusterctl.Desired) {
	for _, x := range d.Members {
		y := Member{Name: x.Name, Reachable: m.obs.Reachable[x.Address]}
		if x.Name == m.cfg.Self {
			y.Reachable = m.obs.Daemon == ""
			y.InPool, y.Connected = y.Reachable, y.Reachable
		}

		for _, p := range m.obs.Pool {
			if !p.Self && (p.Hostname == x.Name || p.Hostname == x.Address ||
				slices.Contains(p.Names, x.Name) || slices.Contains(p.Names, x.Address)) {
				y.InPool, y.Connected = true, p.Connected
			}
		}

		s.Members = append(s.Members, y)
	}

	if m.obs.Volume == nil {
		return
	}

	for _, b := range m.obs.Volume.Bricks {
		y := Brick{Name: b.Name, Arbiter: b.Arbiter}
		host, _, _ := cli.SplitBrick(b.Name)
		for _, x := range d.Members {
			if x.Name == host || x.Address == host {
				y.Node = x.Name
			}
		}

		for _, p := range m.obs.Processes {
			if p.Name == b.Name {
				y.Up = p.Online
				y.Total = p.Total
				y.Free = p.Free
			}
		}

		y.Known = m.obs.Processes != nil
		s.Bricks = append(s.Bricks, y)
	}

	if q := m.obs.Quorum(); q.Known {
		s.Spare = max(q.Spare, -1)
	}

	hs := m.obs.HealState()
	s.Heal = Heal{Pending: hs.Pending.N, SplitBrain: hs.SplitBrain.N, Known: hs.Pending.Known}
}

// waiting returns a phrase that says what this node's storage waits for, or "" if the node can use
// its storage. held is the reason why glusterd may not start, or "". why is the reason why no node
// changes the pool, or "".
func (m *Manager) waiting(h mount.Health, held, why string, mirrorAt time.Time, mirrorFault string) string {
	because := func(s string) string {
		switch {
		case m.doing != "":
			s += "; under way: " + m.doing // a step under way needs no administrator
		case m.fault != "":
			s += " (" + m.fault + ")"
		case len(m.plan.Refused) > 0:
			s += " (" + m.plan.Refused[0].What + ")"
		case why != "":
			s += " (this node does not lead the storage: " + why + ")"
		}

		return s
	}

	self, known := m.table.Find(m.cfg.Self)
	switch {
	case !known:
		return "the table of nodes to list this node"
	case held != "" && (m.obs == nil || m.obs.Daemon != ""):
		return held
	case m.obs == nil || m.obs.Daemon != "":
		return because("glusterd on this node to answer")
	case m.obs.Volume == nil:
		return because("the shared volume")
	case h.State != mount.OK:
		text := "the shared volume to be mounted at " + m.cfg.Mount
		if h.State != "" && h.State != mount.Absent {
			text = fmt.Sprintf("the shared volume at %s to answer (%s)", m.cfg.Mount, h.State)
		}
		return because(text)
	case h.Layout == 0:
		return because("the directories of the shared volume to be made")
	case !slices.Contains(h.Nodes, m.cfg.Self):
		return because("this node's directories on the shared volume to be made")
	case !h.Writable:
		return because("the shared volume to take writes")
	case mirrorAt.IsZero() && !self.IsArbiter():
		text := "the first copy of the files for minions"
		if mirrorFault != "" {
			text += " (" + mirrorFault + ")"
		}
		return text
	}

	return ""
}

// statusCodes returns the status code for each problem of glusterctl.
func statusCodes() map[string]status.Code {
	return map[string]status.Code{
		"storage.volume_full":    status.VolumeFull,
		"storage.volume_low":     status.VolumeLow,
		"storage.mount_absent":   status.VolumeAbsent,
		"storage.mount_stale":    status.VolumeAbsent,
		"storage.mount_failed":   status.VolumeAbsent,
		"storage.mount_foreign":  status.VolumeAbsent,
		"storage.mount_hung":     status.VolumeHangs,
		"storage.daemon_down":    status.StorageDaemon,
		"storage.disowned":       status.StorageRejected,
		"storage.peer_rejected":  status.StoragePeerAway,
		"storage.peer_down":      status.StoragePeerAway,
		"storage.peer_silent":    status.StoragePeerAway,
		"storage.peer_missing":   status.StoragePeerAway,
		"storage.no_volume":      status.VolumeStopped,
		"storage.volume_unknown": status.VolumeStopped,
		"storage.volume_stopped": status.VolumeStopped,
		"storage.no_quorum":      status.VolumeNoQuorum,
		"storage.brick_down":     status.BrickDown,
		"storage.healing_off":    status.HealStuck,
		"storage.brick_full":     status.BrickFull,
		"storage.brick_low":      status.VolumeLow,
		"storage.split_brain":    status.SplitBrain,
		"storage.auth_open":      status.StorageOpen,
		"storage.tls_off":        status.StorageOpen,
	}
}

// findings returns all problems of the storage as findings of the status. The caller holds mu.
func (m *Manager) findings(
	h mount.Health,
	d glusterctl.Desired,
	mirrorAt time.Time,
	mirrorFault string,
) (out []status.Finding) {
	add := func(c status.Code, subject, cause string) {
		out = append(out, status.Finding{Code: c, Subject: subject, Cause: cause})
	}
	if m.obs != nil {
		o := *m.obs
		if h.State != "" {
			o.Mount = &h
		}

		byCode := statusCodes()
		for _, p := range glusterctl.Assess(&o, d) {
			c, ok := byCode[p.Code]
			if !ok || !m.formed && (c == status.VolumeAbsent || c == status.VolumeStopped ||
				c == status.StoragePeerAway || c == status.StorageDaemon) {
				continue // the volume is still being created
			}

			subject := p.Subject
			switch c {
			case status.StorageRejected:
				subject = m.cfg.Self
			case status.VolumeStopped:
				subject = m.cfg.Volume
			}

			add(c, subject, p.What)
		}

		if hs := o.HealState(); hs.Pending.Known && hs.Pending.N > 0 {
			add(status.HealPending, "", fmt.Sprintf("%d entries wait", hs.Pending.N))
		}
	}

	if n := len(m.stuck); n > 0 {
		add(status.HealStuck, "",
			fmt.Sprintf("%d entries wait since %s or longer, the first is %s", n,
				m.stuck[0].Since.UTC().Format("15:04 UTC"), m.stuck[0].Path))
	}

	if m.fault != "" {
		add(status.StorageBlocked, "", m.fault)
	} else {
		for _, f := range m.plan.Refused {
			if f.Code != "storage.no_quorum" && m.formed {
				add(status.StorageBlocked, f.Code, f.What+"; next: "+f.Next)
			}
		}
	}

	for n, c := range m.ahead {
		if x := clockSkew(c.ahead); x != 0 && m.cfg.Now().Sub(c.at) < time.Minute {
			word := "ahead of"
			if x < 0 {
				x, word = -x, "behind"
			}
			add(status.ClockSkew, n, fmt.Sprintf("the clock of %s is %s %s ours", n, x.Round(time.Second), word))
		}
	}

	if !mirrorAt.IsZero() && m.cfg.Now().Sub(mirrorAt) > mirrorStale+mirrorMost {
		add(status.MirrorBehind, "",
			fmt.Sprintf("the copy in %s is %s old: %s", m.cfg.Mirror, status.Age(m.cfg.Now().Sub(mirrorAt)),
				mirrorFault))
	}

	slices.SortStableFunc(out,
		func(a, b status.Finding) int { return compare(string(a.Code)+a.Subject, string(b.Code)+b.Subject) })
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
