package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/glusterctl/disk"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/probe"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Preflight checks answers against the world.
type Preflight struct {
	Facts    Facts
	Base     Base
	Identity *nodeapi.Identity
	Version  string
	// Ours are addresses that this node listens on itself already.
	Ours func(address string) bool
}

// What a machine should have.
const (
	leastMemory = 400 << 20 // under which it is not tried
	goodMemory  = 900 << 20
	leastDisk   = 512 << 20
	goodDisk    = 4 << 30
	mostSkew    = 30 * time.Second // tokens of minions and leases need clocks that agree
	goodSkew    = 2 * time.Second
)

// Run makes all checks, for complete answers. It changes nothing; met is what
// the cluster said, nil when forming or when no node proved itself.
func (p *Preflight) Run(ctx context.Context, a Answers) (checks []Check, met *nodeapi.Met) {
	s, err := p.settings(a)
	if err != nil {
		return []Check{{Name: "name", What: "read the answers", Result: Fail, Detail: err.Error(), Hint: "go back to the answers"}}, nil
	}
	checks = append(checks, p.memory(), p.disk(s), p.address(a))
	checks = append(checks, p.ports(s)...)
	checks = append(checks, p.clock(ctx))
	if a.DataDisk != "" {
		checks = append(checks, p.dataDisk(a))
	}
	if a.Mode == Form && a.Storage.Kind == settings.VolumeStorage && a.DataDisk == "" {
		checks = append(checks, p.bricks(a, s))
	}
	if a.Storage.Kind == settings.DirectoryStorage {
		checks = append(checks, p.directory(ctx, s))
	}
	if a.Mode == Form && a.Virtual != "" {
		checks = append(checks, p.virtual(ctx, a))
	}
	if a.Mode == Join {
		var more []Check
		more, met = p.cluster(ctx, a, s)
		checks = append(checks, more...)
	}
	return checks, met
}

func (p *Preflight) settings(a Answers) (*settings.Settings, error) {
	text, err := Render(a, p.Base)
	if err != nil {
		return nil, err
	}
	return settings.Parse(text, "appliance.yaml", a.Node)
}

func (p *Preflight) memory() Check {
	c := Check{Name: "memory", What: "look at the memory", Result: Pass}
	total := memTotal()
	c.Detail = status.Size(total)
	switch {
	case total == 0:
		c.Result, c.Detail = Skip, "/proc/meminfo does not say"
	case total < leastMemory:
		c.Result, c.Hint = Fail, "give the machine at least 1 GiB"
	case total < goodMemory:
		c.Result, c.Hint = Warn, "1 GiB or more is better: templates and large job returns need room"
	}
	return c
}

func memTotal() uint64 {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func (p *Preflight) disk(s *settings.Settings) Check {
	c := Check{Name: "disk", What: "look at the file system of " + s.DataDir, Result: Pass}
	dir := s.DataDir
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	d, err := probe.StatDisk(dir)
	if err != nil {
		c.Result, c.Detail, c.Hint = Fail, err.Error(), "check that the file system is mounted"
		return c
	}
	c.Detail = fmt.Sprintf("%s free of %s", status.Size(d.Free), status.Size(d.Total))
	switch {
	case d.ReadOnly:
		c.Result, c.Detail, c.Hint = Fail, "is mounted read-only", "check the disk, then mount it writable"
	case d.Free < leastDisk || d.FreePercent <= s.Limits.DiskFullPercent:
		c.Result, c.Hint = Fail, "the disk is full: make room or enlarge it"
	case d.InodesPercent <= s.Limits.DiskFullPercent:
		c.Result, c.Detail, c.Hint = Fail, fmt.Sprintf("%.1f %% of the inodes are free", d.InodesPercent), "delete files, or make the file system anew with more inodes"
	case d.Free < goodDisk:
		c.Result, c.Hint = Warn, "4 GiB or more are better: jobs and files for minions are kept there"
	}
	return c
}

func (p *Preflight) address(a Answers) Check {
	c := Check{Name: "address", What: "look for " + a.Address + " on this machine", Result: Pass}
	want, _ := netip.ParseAddr(a.Address)
	for _, i := range p.Facts.Interfaces {
		for _, s := range i.Addresses {
			if got, err := netip.ParsePrefix(s); err == nil && got.Addr() == want {
				c.Detail = "on " + i.Name
				return c
			}
		}
	}
	if want.IsLoopback() {
		c.Detail, c.Result, c.Hint = "only this machine reaches it", Warn, "other machines cannot join through a loopback address"
		return c
	}
	c.Result, c.Detail, c.Hint = Fail, "no interface has it", "check the network, or give the address that the machine has: ip addr"
	c.passing = true // by DHCP it may come later, as after a change of the network
	return c
}

// ports tries to listen where the node will.
func (p *Preflight) ports(s *settings.Settings) []Check {
	pool := net.JoinHostPort(s.Peering.Address, strconv.Itoa(s.Peering.PoolPort))
	c := Check{Name: "port", What: "look whether the ports of this node are free", Result: Pass}
	var taken []string
	c.passing = true
	for _, a := range append(append(s.FrontPublish(), s.FrontRequest()...), s.MasterPublish(), s.MasterRequest(), s.NodeAddress(), pool) {
		if p.Ours != nil && p.Ours(a) {
			continue
		}
		if err := probe.PortFree(a); err != nil {
			taken = append(taken, err.Error())
			c.passing = c.passing && errors.Is(err, syscall.EADDRNOTAVAIL)
		}
	}
	if len(taken) > 0 {
		c.Result, c.Detail = Fail, strings.Join(taken, "; ")
		c.Hint = "stop the program that has the port (an installed salt-master, perhaps), or choose other ports under settings"
	}
	return []Check{c}
}

func (p *Preflight) clock(ctx context.Context) Check {
	c := Check{Name: "clock", What: "look whether the clock is synchronised", Result: Pass}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ok, err := probe.ClockSynchronised(ctx)
	switch {
	case err != nil:
		c.Result, c.Detail = Skip, err.Error()
	case !ok:
		c.Result, c.Detail, c.Hint = Warn, "it is not", "check the time service: timedatectl, chronyc sources"
	}
	return c
}

func (p *Preflight) dataDisk(a Answers) Check {
	c := Check{Name: "disk", What: "look at " + a.DataDisk, Result: Pass}
	for _, d := range p.Facts.Disks {
		if d.Path != a.DataDisk {
			continue
		}
		c.Detail = status.Size(d.Size)
		switch {
		case !d.Empty && !a.EraseDisk:
			c.Result, c.Detail, c.Hint = Fail, d.Why, "choose an empty disk, or allow this one to be erased"
		case !d.Empty:
			c.Result, c.Detail, c.Hint = Warn, d.Why, "everything on it will be erased"
		}
		return c
	}
	c.Result, c.Detail, c.Hint = Fail, "it is not there", "attach the disk, or choose another: lsblk"
	return c
}

// bricksHint is for a machine whose disk cannot hold a copy of a shared volume.
const bricksHint = "give the machine a disk of its own for it (data_disk), or another directory under settings: storage: {bricks: DIRECTORY}"

// bricks looks where a copy of the shared volume would go without a data disk.
func (p *Preflight) bricks(a Answers, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "look for room for a copy of the shared volume", Result: Pass, Detail: s.Storage.Bricks}
	if err := disk.CheckRoot(s.Storage.Bricks); err != nil {
		c.Result, c.Detail, c.Hint = Fail, err.Error(), bricksHint
		if a.Mode == Form {
			c.Hint += "; or keep everything on this machine alone, which no other node can join then (storage: {kind: local})"
		}
	}
	return c
}

// directory tries the directory that the administrator shares.
func (p *Preflight) directory(ctx context.Context, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "write into the shared directory " + s.StorageDir(), Result: Pass}
	done := make(chan error, 1)
	go func() { // a network file system may hang
		fi, err := os.Stat(s.StorageDir())
		if err == nil && !fi.IsDir() {
			err = errors.New("is not a directory")
		}
		if err == nil {
			var f *os.File
			if f, err = os.CreateTemp(s.StorageDir(), ".setup-*"); err == nil {
				err = errors.Join(f.Close(), os.Remove(f.Name()))
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			c.Result, c.Detail, c.Hint = Fail, err.Error(), "mount the shared directory on this machine, writable for root (no_root_squash with NFS)"
		}
	case <-ctx.Done():
		c.Result, c.Detail, c.Hint = Fail, "no answer in time", "check the server of the shared directory"
	}
	return c
}

// cluster meets the cluster through the first peer that answers, and checks
// what only both sides together can tell.
func (p *Preflight) cluster(ctx context.Context, a Answers, s *settings.Settings) ([]Check, *nodeapi.Met) {
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
		m, err := nodeapi.Meet(ctx, p.Identity, nodeapi.Ask{Address: at, Cluster: a.Cluster, Secret: a.Secret, KeyHash: info.KeyHash,
			Version: p.Version, Ports: []int{s.Peering.NodePort, s.Peering.PoolPort, s.Master.PublishPort, s.Master.RequestPort}})
		cancel()
		c := meetCheck(peer, s.Peering.NodePort, err)
		if err == nil {
			checks, met, via = append(checks, c), m, peer
			break
		}
		if len(a.Peers) > 1 && c.passing { // another one may do
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
	checks = append(checks, p.reach(ctx, via, s, met)...)
	if a.Virtual != "" || met.Table.Virtual != "" {
		checks = append(checks, p.joinedVirtual(a, met.Table.Virtual))
	}
	checks = append(checks, Check{Name: "mtu", What: "exchange large packets with " + via, Result: Pass})
	switch {
	case met.Storage.Kind == settings.VolumeStorage && !p.Facts.Volume:
		checks = append(checks, Check{Name: "disk", What: "look for glusterd on this machine", Result: Fail, Detail: "it is not installed, and the cluster keeps its files on a shared volume",
			Hint: "install it: apt-get install glusterfs-server"})
	case met.Storage.Kind == settings.VolumeStorage && a.DataDisk == "":
		checks = append(checks, p.bricks(a, s))
	case met.Storage.Kind == settings.LocalStorage:
		checks = append(checks, Check{Name: "cluster", What: "look at the cluster's storage", Result: Fail, Detail: "its first node keeps everything in a local directory",
			Hint: "move the cluster to a shared volume or directory first: applianced storage --help"})
	}
	return checks, met
}

// meetCheck words what came of meeting a peer.
func meetCheck(peer string, port int, err error) Check {
	c := Check{Name: "cluster", What: fmt.Sprintf("have the cluster at %s prove itself, and prove the secret", peer), Result: Fail}
	if err == nil {
		c.Result = Pass
		return c
	}
	c.Detail = err.Error()
	switch {
	case errors.Is(err, nodeapi.ErrSecret):
		c.Detail, c.Hint = "the secret is not that of the cluster", "copy the join string anew: applianced join-string on a node of the cluster"
	case errors.Is(err, nodeapi.ErrProof):
		c.Hint = "the join string is of another cluster, or a machine in between pretends to be the cluster: check the peer's address"
	case errors.Is(err, nodeapi.ErrUnproven):
		c.Hint = "check the address of the peer and the network to it (small packets may pass and large ones not: the MTU), then: applianced setup retry; " +
			"this is not tried again by itself, since each try lets a false machine there guess the secret once"
	case errors.Is(err, nodeapi.ErrCluster):
		c.Hint = "check cluster_id, or leave it out: " + peer + " belongs to another cluster"
	case errors.Is(err, nodeapi.ErrRemoved):
		c.Hint = "a removed machine joins again only after it was set up anew: applianced reset"
	case errors.Is(err, nodeapi.ErrProtocol):
		c.Name, c.What = "version", "compare versions with "+peer
		c.Hint = "only joining asks for this; nodes that are members already may differ while they are upgraded in turn"
	case errors.Is(err, nodeapi.ErrBusy):
		c.passing, c.Hint = true, "wait a minute; nodes let a machine try only so often"
	case errors.Is(err, nodeapi.ErrStorage):
		c.passing, c.Hint = true, "the cluster is starting, or its storage is away: applianced status there"
	default:
		c.Name, c.passing = "port", true
		c.What = fmt.Sprintf("reach %s on %d/tcp", peer, port)
		c.Hint = fmt.Sprintf("check that the node runs (applianced status there), the address, and that firewalls between let %d/tcp through", port)
		if errors.Is(err, context.DeadlineExceeded) {
			c.Hint += "; if small packets pass and large ones do not, check the MTU"
		}
	}
	return c
}

func skewCheck(via string, m *nodeapi.Met) Check {
	c := Check{Name: "clock", What: "compare the clock with that of " + via, Result: Pass}
	skew := m.Skew.Abs() - m.Round
	shown := m.Skew.Abs().Round(time.Millisecond)
	if shown > time.Second { // it is not told better over a busy network
		shown = shown.Round(time.Second)
	}
	c.Detail = fmt.Sprintf("%s %s", shown, map[bool]string{true: "behind", false: "ahead"}[m.Skew > 0])
	switch {
	case skew > mostSkew:
		c.Result, c.Hint = Fail, "set the clock (chronyc makestep) and check the time service on both machines"
	case skew > goodSkew:
		c.Result, c.Hint = Warn, "check the time service on both machines"
	}
	return c
}

func versionCheck(own string, m *nodeapi.Met) Check {
	c := Check{Name: "version", What: "compare versions", Result: Pass, Detail: m.Version}
	if m.Version != own {
		c.Result, c.Detail, c.Hint = Warn, fmt.Sprintf("the cluster runs %s, this machine %s", m.Version, own), "upgrade so that all nodes run the same version"
	}
	return c
}

func nameCheck(a Answers, hash string, m *nodeapi.Met) Check {
	c := Check{Name: "name", What: "look whether the name " + a.Node + " and the address " + a.Address + " are free in the cluster", Result: Pass}
	t := m.Table.Clone()
	err := nodes.Admit(&t, nodes.Node{Name: a.Node, Address: a.Address, State: nodes.Joining, Certificate: hash})
	switch {
	case err == nil:
	case errors.Is(err, nodes.ErrRemoved):
		c.Result, c.Detail, c.Hint = Fail, err.Error(), "applianced reset makes this a new machine"
	default:
		c.Result, c.Detail, c.Hint = Fail, err.Error(), fmt.Sprintf("choose another name (%s is free) or address; to put this machine in a dead one's place: applianced replace there", freeName(m.Table))
	}
	return c
}

// reach looks at ports in both directions.
func (p *Preflight) reach(ctx context.Context, via string, s *settings.Settings, m *nodeapi.Met) []Check {
	// The node port must be open both ways. Others are opened by the appliance's
	// own firewall when this machine has been admitted, so they only warn.
	ports := []int{s.Peering.PoolPort, s.Master.PublishPort, s.Master.RequestPort}
	if m.Storage.Kind == settings.VolumeStorage {
		ports = append(ports, 24007)
	}
	one := func(what, hint string, list []nodeapi.Reach) Check {
		c := Check{Name: "port", What: what, Result: Pass}
		var bad []string
		for _, r := range list {
			if r.Error == "" {
				continue
			}
			bad = append(bad, fmt.Sprintf("%d/tcp: %s", r.Port, r.Error))
			if r.Port == s.Peering.NodePort {
				c.Result, c.passing = Fail, true
			} else if c.Result == Pass {
				c.Result = Warn
			}
		}
		if len(bad) > 0 {
			c.Detail, c.Hint = strings.Join(bad, "; "), hint
		}
		return c
	}
	return []Check{
		one("reach the other ports of "+via, "let these ports through to "+via+" (a firewall of ours does so when this machine is admitted)", nodeapi.TryPorts(ctx, via, ports)),
		one("be reached from "+via, "let these ports through to this machine (a firewall of ours does so when it is admitted)", m.Reach),
	}
}

// Stopped gives the failed checks, and whether all of them may pass by
// themselves.
func Stopped(checks []Check) (failed []Check, passing bool) {
	passing = true
	for _, c := range checks {
		if c.Result == Fail {
			failed = append(failed, c)
			passing = passing && c.passing
		}
	}
	return failed, passing && len(failed) > 0
}
