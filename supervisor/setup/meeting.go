package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"saltern/internal/release"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// meetCluster connects to the first peer that answers, and makes the checks that need both sides.
// The second result is nil if no peer has answered.
func (p *Preflight) meetCluster(ctx context.Context, a Answers, s *settings.Settings) ([]Check, *nodeapi.Met) {
	var checks []Check
	var info JoinInfo
	if a.JoinString != "" {
		info, _ = ParseJoin(a.JoinString)
	}

	var met *nodeapi.Met
	var via string
	var last *Check
	for _, peer := range a.Peers {
		at := net.JoinHostPort(peer, strconv.Itoa(s.Peering.NodePort))
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		m, err := nodeapi.Meet(ctx, p.Identity, nodeapi.Ask{
			Address: at,
			Cluster: a.Cluster,
			Secret:  a.Secret,
			KeyHash: info.KeyHash,
			Version: p.Version,
			Ports:   append([]int{s.Peering.NodePort}, masterPorts(s)...),
		})

		cancel()
		c := meetCheck(peer, s.Peering.NodePort, err)
		if err == nil {
			checks = append(checks, c)
			met = m
			via = peer
			break
		}

		if len(a.Peers) > 1 && c.passing { // another peer may answer
			last = &c
			w := c
			w.Result = Warn
			checks = append(checks, w)
			continue
		}

		return append(checks, c), nil
	}

	if met == nil {
		checks[len(checks)-1] = *last
		return checks, nil
	}

	checks = append(checks, skewCheck(via, met), versionCheck(p.Version, met), nameCheck(a, p.Identity.Hash, met))
	checks = append(checks, p.checkPorts(ctx, via, s, met)...)
	if a.Virtual != "" || met.Table.Virtual != "" {
		checks = append(checks, p.joinedVirtual(a, met.Table.Virtual))
	}

	checks = append(checks, Check{Name: "mtu", What: "large packets to " + via, Result: Pass, Detail: "pass"})
	checks = append(checks, p.checkJoinedStorage(ctx, a, s, met.Storage)...)
	return checks, met
}

// meetCheck returns a check that describes the outcome of meeting a peer.
func meetCheck(peer string, port int, err error) Check {
	c := Check{Name: "cluster", What: "cluster at " + peer, Result: Fail}
	if err == nil {
		c.Result = Pass
		c.Detail = "has proved itself, and takes the secret"
		return c
	}

	c.Detail = err.Error()
	switch {
	case errors.Is(err, nodeapi.ErrSecret):
		c.Detail = "the secret is not that of the cluster"
		c.Hint = "copy the join string again: applianced join-string on a node of the cluster"
	case errors.Is(err, nodeapi.ErrProof):
		c.Hint = "the join string is of another cluster, or a machine in between pretends to be the cluster: " +
			"check the peer's address"
	case errors.Is(err, nodeapi.ErrUnproven):
		c.Hint = "check the address of the peer and the network to it (small packets may pass and large ones " +
			"not: the MTU), then: applianced setup retry; " +
			"this is not tried again by itself, since each try lets a false machine there guess the secret once"
	case errors.Is(err, nodeapi.ErrCluster):
		c.Hint = "check the name of the cluster (cluster_id), or leave it empty: " + peer +
			" belongs to another cluster"
	case errors.Is(err, nodeapi.ErrRemoved):
		c.Hint = "a removed machine joins again only after it was set up again: applianced reset"
	case errors.Is(err, nodeapi.ErrRole):
		c.Hint = "look at the nodes there: applianced nodes; " +
			"or join as a node that serves minions: leave storage.role (--arbiter) out"
	case errors.Is(err, nodeapi.ErrProtocol):
		c.Name, c.What = "version", "version, compared with "+peer
		c.Hint = "only joining asks for this; nodes that are members already may differ while they are upgraded in turn"
	case errors.Is(err, nodeapi.ErrBusy):
		c.passing, c.Hint = true, "wait a minute; nodes let a machine try only so often"
	case errors.Is(err, nodeapi.ErrStorage):
		c.passing = true
		c.Hint = "the cluster is starting, or its storage is away: applianced status there"
	default:
		c.Name, c.passing = "port", true
		c.What = fmt.Sprintf("port %d/tcp of %s", port, peer)
		c.Hint = fmt.Sprintf("check that the node runs (applianced status there), the address, "+
			"and that firewalls between let %d/tcp through",
			port)
		if errors.Is(err, context.DeadlineExceeded) {
			c.Hint += "; if small packets pass and large ones do not, check the MTU"
		}
	}

	return c
}

func skewCheck(via string, m *nodeapi.Met) Check {
	c := Check{Name: "clock", What: "clock, compared with " + via, Result: Pass}
	skew := m.Skew.Abs() - m.Round
	shown := m.Skew.Abs().Round(time.Millisecond)
	if shown > time.Second { // a busy network makes the measured skew inexact
		shown = shown.Round(time.Second)
	}

	c.Detail = fmt.Sprintf("%s %s", shown, map[bool]string{true: "behind", false: "ahead"}[m.Skew > 0])
	switch {
	case skew > mostSkew:
		c.Result = Fail
		c.Hint = "set the clock (chronyc makestep) and check the time service on both machines"
	case skew > goodSkew:
		c.Result, c.Hint = Warn, "check the time service on both machines"
	}

	return c
}

func versionCheck(own string, m *nodeapi.Met) Check {
	c := Check{Name: "version", What: "version", Result: Pass, Detail: m.Version}
	switch {
	case m.Version == release.Unknown || own == release.Unknown:
		c.Result = Skip
		c.Detail = fmt.Sprintf("the cluster runs %s, this machine %s: a build without a version cannot be compared",
			m.Version, own)
	case m.Version != own:
		c.Result = Warn
		c.Detail = fmt.Sprintf("the cluster runs %s, this machine %s", m.Version, own)
		c.Hint = "upgrade so that all nodes run the same version"
	}
	return c
}

func nameCheck(a Answers, hash string, m *nodeapi.Met) Check {
	c := Check{
		Name:   "name",
		What:   "name " + a.Node + " and address " + a.Address,
		Result: Pass,
		Detail: "free in the cluster",
	}

	t := m.Table.Clone()
	n := nodes.Node{
		Name:        a.Node,
		Address:     a.Address,
		State:       nodes.Joining,
		Certificate: hash,
		Storage:     a.Storage.Role,
	}

	err := nodes.Admit(&t, n)
	switch {
	case err == nil:
	case errors.Is(err, nodes.ErrArbiter):
		c.What = "role of this machine"
		c.fail(err.Error(), "or join as a node that serves minions: leave storage.role (--arbiter) out")
	case errors.Is(err, nodes.ErrCopied):
		c.fail(err.Error(), "applianced reset --yes erases the keys and data of this machine, and makes it a new one with a key of its own")
	case errors.Is(err, nodes.ErrRemoved):
		c.fail(err.Error(), "applianced reset --yes erases the keys and data of this machine, and makes it a new one")
	default:
		c.fail(err.Error(), fmt.Sprintf("choose another name (%s is free) or address; "+
			"to put this machine in a dead one's place: applianced replace there", freeName(m.Table)))
	}

	return c
}

// masterPorts returns the ports that the masters of two nodes use for each other.
func masterPorts(s *settings.Settings) []int {
	if s.Arbiter {
		return nil
	}
	return []int{s.Peering.PoolPort, s.Master.PublishPort, s.Master.RequestPort}
}

// glusterPort is the management port of glusterd. Bricks choose their own ports.
const glusterPort = 24007

// checkPorts tries ports in both directions. The node port of this machine must be open now. The
// firewalls of the nodes open the other ports once this machine is admitted. [Machine.triesPorts]
// tries those ports later.
func (p *Preflight) checkPorts(ctx context.Context, via string, s *settings.Settings, m *nodeapi.Met) []Check {
	node := Check{
		Name:   "port",
		What:   fmt.Sprintf("port %d/tcp of this machine, from %s", s.Peering.NodePort, via),
		Result: Pass,
		Detail: "can be reached",
	}

	later := Check{Name: "port", What: "ports between the nodes", Result: Pass, Detail: "can be reached"}

	ports := masterPorts(s)
	if m.Storage.Kind == settings.VolumeStorage {
		ports = append(ports, glusterPort)
	}

	shut := closedPorts(via, nodeapi.TryPorts(ctx, via, ports))
	for _, r := range m.Reach {
		switch {
		case r.Error == "":
		case r.Port == s.Peering.NodePort:
			node.Result, node.passing = Fail, true
			node.Detail, node.Hint = r.Error, "let this port through to this machine"
		default:
			shut = append(shut, closedPorts("this machine", []nodeapi.Reach{r})...)
		}
	}

	if len(shut) > 0 {
		later.Result = Later
		later.Detail = "opened by the firewalls of the nodes when this machine is admitted, and tried again then; " +
			"a firewall between the nodes has to let them through"
	}

	return []Check{node, later}
}

// closedPorts returns a phrase for each unreachable port of a machine.
func closedPorts(machine string, tried []nodeapi.Reach) (out []string) {
	for _, r := range tried {
		if r.Error != "" {
			out = append(out, fmt.Sprintf("%d/tcp of %s (%s)", r.Port, machine, r.Error))
		}
	}
	return out
}
