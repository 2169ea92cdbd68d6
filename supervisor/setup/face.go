package setup

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// claim records which wizard leads the set-up. The zero value: no wizard leads.
type claim struct {
	token, name string
	since, seen time.Time
	draft       Draft
}

// Progress returns the progress of the set-up.
func (m *Machine) Progress() Progress {
	p := m.Where()
	if p.State == status.SetupReady {
		p.Done = m.resultPage()
	}
	return p
}

// Where returns the progress without the content of the last page. It does no I/O.
func (m *Machine) Where() Progress {
	m.mu.Lock()
	s := m.state
	doing := m.doing
	looking := m.looking
	unused := m.ignored
	m.mu.Unlock()

	p := Progress{State: s.Phase, Since: s.Since, Failure: s.Failure, Steps: []Step{}}
	if s.Phase != status.SetupReady {
		p.Unused = unused
	}

	if looking {
		p.Steps = append(p.Steps, Step{Name: "look for answers given with this machine", State: "doing"})
	}

	if s.Phase != status.SetupNew {
		under := true
		for _, st := range planSteps(s.Answers) {
			v := Step{Name: st.name, State: "todo"}
			switch {
			case slices.Contains(s.Done, st.id) || s.Phase == status.SetupReady:
				v.State = "done"
			case under && s.Failure != nil:
				v.State = "failed"
				v.Message = s.Failure.Cause
				under = false
			case under:
				v.State = "doing"
				v.Message = doing
				under = false
			}

			if st.id == stepAdmin && v.Message == "" {
				v.Message = fingerprints(s.Answers.Admin.SSHKeys)
			}

			p.Steps = append(p.Steps, v)
		}
	}

	if s.Failure != nil {
		p.State = status.SetupFailed
	}

	return p
}

// resultPage returns the content of the last page of the wizard.
func (m *Machine) resultPage() *Done {
	l := m.cfg.World.Look()
	d := &Done{
		Addresses: forMinions(l),
		Console:   l.Console,
		BackUp:    []string{"everything of the cluster, regularly: applianced backup"},
	}

	d.Finger = l.Finger
	m.mu.Lock()
	answers := m.state.Answers
	m.mu.Unlock()

	alone := answers.Storage.Kind == settings.LocalStorage
	d.Arbiter = answers.arbiter()
	d.States, d.Pillars = m.folders(answers)
	d.MinionConf = MinionConf(d.Addresses, l.Finger, m.frontPorts(answers))
	if d.Arbiter {
		d.Addresses = nil
		d.MinionConf = ""
		d.States = ""
		d.Pillars = ""
	}

	if alone { // the storage is local: no other node can join
		return d
	}

	d.JoinString, _ = m.JoinString()
	d.BackUp = slices.Insert(d.BackUp, 0, "the join string: it holds the cluster's secret")
	return d
}

// folders returns the folders in which administrators keep states and pillars. On an appliance
// these are Salt's usual folders, where the image has links; elsewhere they are below the storage's
// directory.
func (m *Machine) folders(a Answers) (states, pillars string) {
	if m.cfg.Ours {
		return "/srv/salt", "/srv/pillar"
	}
	a, err := m.completed(a)
	if err != nil {
		return "", ""
	}
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return "", ""
	}
	return filepath.Join(s.StorageDir(), "srv/salt"), filepath.Join(s.StorageDir(), "srv/pillar")
}

// frontPorts returns the ports that minions use: the ports in the answers, or the defaults. If the
// answers are not valid, both ports are zero.
func (m *Machine) frontPorts(a Answers) Ports {
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return Ports{}
	}
	return Ports{Publish: s.Front.PublishPort, Request: s.Front.RequestPort}
}

// forMinions returns the addresses that minions use, without duplicates: the virtual address, or
// else the addresses of all nodes.
func forMinions(l NodeLook) (out []string) {
	if l.Table.Virtual != "" {
		return []string{l.Table.Virtual}
	}
	for _, n := range l.Table.Present() {
		out = mergeUnique(out, n.Front)
	}
	if len(out) == 0 {
		out = mergeUnique(nil, l.Addresses)
	}
	return out
}

// MinionConf returns the lines for a minion's configuration. If there are several addresses and one
// does not answer, a minion tries the next one. finger is the fingerprint of the masters' key. It
// may be empty: then the minion trusts the first master that it meets. The lines name the ports
// only if they differ from Salt's defaults.
func MinionConf(addresses []string, finger string, ports Ports) string {
	var b strings.Builder
	if len(addresses) == 1 {
		b.WriteString("master: " + addresses[0] + "\nmaster_alive_interval: 30\n")
	} else {
		b.WriteString("master:\n")
		for _, a := range addresses {
			b.WriteString("  - " + a + "\n")
		}
		b.WriteString("master_type: failover\nmaster_alive_interval: 30\n")
	}

	if half := len(finger) / 2; half > 0 { // two lines, joined by a backslash, because a console has 80 columns
		fmt.Fprintf(&b, "master_finger: \"%s\\\n  %s\"\n", finger[:half+1], finger[half+1:])
	}

	if ports.Request != 0 && ports.Request != usualRequest {
		fmt.Fprintf(&b, "master_port: %d\n", ports.Request)
	}

	if ports.Publish != 0 && ports.Publish != usualPublish {
		fmt.Fprintf(&b, "publish_port: %d\n", ports.Publish)
	}

	return b.String()
}

// Ports holds the ports for minions. Zero: not known.
type Ports struct{ Publish, Request int }

// Salt's defaults of publish_port and master_port on a minion (salt/config/__init__.py).
const (
	usualPublish = 4505
	usualRequest = 4506
)

// JoinString returns the join string, with which another node joins this cluster. It is a secret.
func (m *Machine) JoinString() (string, error) {
	t := m.cfg.World.Look().Table
	secret, err := ReadSecret(m.cfg.NodeDir)
	if err != nil {
		return "", err
	}
	if t.Version == 0 || secret == "" {
		return "", fmt.Errorf("%w: this node is not part of a cluster", ErrState)
	}
	j := JoinInfo{KeyHash: t.KeyHash, Secret: secret}
	for _, n := range t.Present() {
		j.Peers = append(j.Peers, n.Address)
	}
	return j.String(), nil
}

// Validate checks answers without touching the network or the cluster.
func (m *Machine) Validate(ctx context.Context, a Answers) Validation {
	return ValidateHere(a, m.cfg.Facts(ctx), m.cfg.Base)
}

// Preflight checks answers against the machine, the network and the cluster.
func (m *Machine) Preflight(ctx context.Context, a Answers) ([]Check, error) {
	v := m.Validate(ctx, a)
	if err := Faults(v.Faults); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrState, settings.OneLine(err))
	}
	return m.preflight(ctx, v.Answers)
}

// Start begins the set-up with these answers. token is the token of the wizard that leads.
func (m *Machine) Start(ctx context.Context, token string, a Answers) error {
	if err := m.May(token); err != nil {
		return err
	}

	v := m.Validate(ctx, a)
	if err := Faults(v.Faults); err != nil {
		return fmt.Errorf("%w: %s", ErrState, settings.OneLine(err))
	}

	s := m.snapshot()
	switch {
	case s.Phase == status.SetupNew && !m.cfg.World.Configured():
	case s.Phase == status.SetupNew:
		return fmt.Errorf("%w: this node has an appliance.yaml already", ErrState)
	case s.Failure != nil && !s.Part:
	default:
		return fmt.Errorf("%w: this node is %s", ErrState, s.Phase)
	}

	return m.acceptAnswers(v.Answers, "answers given here", false)
}

// Retry repeats the step that failed. token is the token of the wizard that leads.
func (m *Machine) Retry(token string) error {
	if err := m.May(token); err != nil {
		return err
	}

	s := m.snapshot()
	if s.Failure == nil {
		return fmt.Errorf("%w: nothing has failed", ErrState)
	}

	m.mu.Lock()
	broken := m.broken
	m.mu.Unlock()

	if broken != nil {
		m.loadState()
	} else if s.Phase == status.SetupNew {
		m.amend(func(s *saved) { s.Failure = nil })
	} else {
		return m.decide(func(s *saved) { s.Failure = nil })
	}

	m.wakeRun()
	return nil
}

// Back abandons a set-up, unless this machine may already belong to a cluster with other machines.
// If the set-up formed a cluster that no other machine knows, Back starts to undo that cluster and
// does not wait for the end.
func (m *Machine) Back(token string) error {
	if err := m.May(token); err != nil {
		return err
	}

	s := m.snapshot()
	switch {
	case s.Phase == status.SetupReady:
		return fmt.Errorf("%w: this node is set up; to start over: applianced reset", ErrState)
	case s.Part && !m.isAlone(s):
		return fmt.Errorf("%w: this machine may be part of a cluster already; "+
			"try again, or start over: applianced reset",
			ErrState)
	case s.Part:
		return m.cfg.World.Undo()
	case s.Failure == nil && s.Phase != status.SetupPreflight && s.Phase != status.SetupNew:
		return fmt.Errorf("%w: the set-up is under way", ErrState)
	}

	return m.decide(func(s *saved) { *s = saved{Phase: status.SetupNew, Answers: s.Answers} })
}

// isAlone reports whether this machine forms a cluster that no other machine knows, so that the
// cluster can be undone.
func (m *Machine) isAlone(s saved) bool {
	if s.Answers.Mode != Form || s.Phase != status.SetupForming && s.Phase != status.SetupWaiting {
		return false
	}
	k, err := nodes.OpenKeeper(m.cfg.DataDir, "")
	return err == nil && len(k.Table().Nodes) <= 1
}

// Claim answers the request of a wizard. It returns which wizard leads. If the asking wizard leads,
// Claim renews its claim. If it requests to lead and may, Claim makes it the leader. A new leader
// gets the draft of the previous leader.
func (m *Machine) Claim(token string, q ClaimRequest) Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	if now.Sub(m.claim.seen) > claimLasts && m.claim.token != token {
		m.claim = claim{}
	}

	var handed Draft
	if free := m.claim.token == ""; q.Lead == Take && m.claim.token != token || q.Lead == Begin && free {
		handed = m.claim.draft
		m.claim = claim{token: token, name: q.Name[:min(len(q.Name), 64)], since: now, draft: handed}
	} else if free {
		return Claim{Mine: true}
	}

	if m.claim.token == token {
		m.claim.seen = now
		if q.Draft != nil && q.Draft.isBounded() {
			m.claim.draft = q.Draft
		}
	}

	return Claim{Mine: m.claim.token == token, Owner: m.claim.name, Since: m.claim.since, Draft: handed}
}

// May returns an error while another wizard leads the set-up. Once the set-up is over it returns
// nil, even if a wizard still has a claim.
func (m *Machine) May(token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removing {
		return fmt.Errorf("%w: what this node has made is being removed; see applianced status", ErrState)
	}
	if m.state.Phase == status.SetupReady || m.state.Phase == status.SetupRemoved {
		return nil
	}

	c := m.claim
	if c.token != "" && c.token != token && m.cfg.Now().Sub(c.seen) <= claimLasts {
		return fmt.Errorf("%w: the set-up is led by %s; leave it there (Ctrl-C), "+
			"or wait %s after that terminal is gone",
			ErrState, c.name, claimLasts)
	}

	return nil
}
