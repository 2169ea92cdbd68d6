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
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Preflight checks answers against the machine, the network and the cluster.
type Preflight struct {
	Facts    Facts
	Base     Base
	Identity *nodeapi.Identity
	Version  string
	// Ours reports whether this node's own programs already listen on an address. It may be nil:
	// none listens.
	Ours func(address string) bool
}

// Thresholds: a check fails below "least" and above "most", and warns outside of "good".
const (
	leastMemory = 400 << 20 // bytes of memory
	goodMemory  = 900 << 20
	leastDisk   = 512 << 20
	goodDisk    = 4 << 30
	goodArbiter = 1 << 30          // bytes: for the name of each file, an arbiter needs two inodes and up to 4 KiB
	mostSkew    = 30 * time.Second // difference between two clocks; tokens of minions and leases need clocks that agree
	goodSkew    = 2 * time.Second
)

// Run makes all checks for complete answers. It changes nothing. met is the answer of the cluster.
// It is nil if a new cluster is formed, or if no node authenticated as a member of the cluster.
func (p *Preflight) Run(ctx context.Context, a Answers) (checks []Check, met *nodeapi.Met) {
	s, err := p.settings(a)
	if err != nil {
		return []Check{{
			Name:   "name",
			What:   "the answers",
			Result: Fail,
			Detail: err.Error(),
			Hint:   "go back to the answers",
		}}, nil
	}

	address := p.checkAddress(a)
	s.Arbiter = a.arbiter()
	checks = append(checks, p.memory(), p.checkDisk(s), address, p.checkListening(s, address.Result != Fail), p.checkClock(ctx))
	if a.DataDisk != "" {
		checks = append(checks, p.dataDisk(a))
	}

	if a.Mode == Form && a.Storage.Kind == settings.VolumeStorage && a.DataDisk == "" {
		checks = append(checks, p.checkBricks(a, s))
	}

	if a.Storage.Kind == settings.DirectoryStorage {
		checks = append(checks, p.checkDirectory(ctx, s))
	}

	if a.Mode == Form && a.Virtual != "" {
		if address.Result == Fail {
			checks = append(checks,
				notLookedAt("virtual", "virtual address "+a.Virtual, "this machine does not have "+a.Address))
		} else {
			checks = append(checks, p.virtual(ctx, a))
		}
	}

	if a.Mode == Join {
		var more []Check
		more, met = p.meetCluster(ctx, a, s)
		checks = append(checks, more...)
		if met == nil {
			checks = append(checks,
				notLookedAt("cluster", "clock, version, name and ports in the cluster",
					"no node of it has proved itself"))
		}
	}

	return checks, met
}

// notLookedAt returns the result of a check that was skipped, because another failure makes it
// meaningless.
func notLookedAt(name, subject, why string) Check {
	return Check{Name: name, What: subject, Result: Skip, Detail: "not looked at: " + why}
}

func (p *Preflight) settings(a Answers) (*settings.Settings, error) {
	text, err := Render(a, p.Base)
	if err != nil {
		return nil, err
	}
	return settings.Parse(text, "appliance.yaml", a.Node)
}

func (p *Preflight) memory() Check {
	c := Check{Name: "memory", What: "memory", Result: Pass}
	total := memTotal()
	c.Detail = status.Size(total)
	switch {
	case total == 0:
		c.Result, c.Detail = Skip, "/proc/meminfo does not say"
	case total < leastMemory:
		c.Result, c.Hint = Fail, "give the machine at least 1 GiB"
	case total < goodMemory:
		c.Result = Warn
		c.Hint = "1 GiB or more is better: templates and large job returns need room"
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

func (p *Preflight) checkDisk(s *settings.Settings) Check {
	c := Check{Name: "disk", What: "file system of " + s.DataDir, Result: Pass}
	d, err := probe.StatDisk(nearestExisting(s.DataDir))
	if err != nil {
		c.fail(err.Error(), "check that the file system is mounted")
		return c
	}

	c.Detail = fmt.Sprintf("%s free of %s", status.Size(d.Free), status.Size(d.Total))
	switch {
	case d.ReadOnly:
		c.Result = Fail
		c.Detail = "is mounted read-only"
		c.Hint = "check the disk, then mount it writable"
	case d.Free < leastDisk || d.FreePercent <= s.Limits.DiskFullPercent:
		c.Result, c.Hint = Fail, "the disk is full: make room or enlarge it"
	case d.InodesPercent <= s.Limits.DiskFullPercent:
		c.Result = Fail
		c.Detail = fmt.Sprintf("%.1f %% of the inodes are free", d.InodesPercent)
		c.Hint = "delete files, or create the file system again with more inodes"
	case s.Arbiter && d.Free < goodArbiter:
		c.Result = Warn
		c.Hint = "1 GiB or more is better, also for an arbiter: logs are kept there"
	case !s.Arbiter && d.Free < goodDisk:
		c.Result = Warn
		c.Hint = "4 GiB or more are better: jobs and files for minions are kept there"
	}

	return c
}

func (p *Preflight) checkAddress(a Answers) Check {
	c := Check{Name: "address", What: "address " + a.Address, Result: Pass}
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
		c.Detail = "only this machine reaches it"
		c.Result = Warn
		c.Hint = "other machines cannot join through a loopback address"
		return c
	}

	c.Result = Fail
	c.Detail = "no interface has it"
	c.Hint = "check the network, or give the address that the machine has: ip addr"
	c.passing = true // a DHCP server may assign the address later

	return c
}

// checkListening tries to listen on the ports that the node will use. hasAddress reports whether
// the machine has the address for the other nodes. Without that address nothing can listen there.
func (p *Preflight) checkListening(s *settings.Settings, hasAddress bool) Check {
	const what = "ports of this node"
	c := Check{Name: "port", What: what, Result: Pass, passing: true}
	var taken []string
	var used bool
	listen := []string{s.NodeAddress()}
	if !s.Arbiter {
		pool := net.JoinHostPort(s.Peering.Address, strconv.Itoa(s.Peering.PoolPort))
		listen = append(append(append(listen, s.FrontPublish()...), s.FrontRequest()...), s.MasterPublish(),
			s.MasterRequest(), pool)
		if s.API.Enabled {
			listen = append(listen, layout.APIAddresses(s)...)
		}
	}

	for _, a := range listen {
		if host, _, _ := net.SplitHostPort(a); p.Ours != nil && p.Ours(a) || !hasAddress && host == s.Peering.Address {
			continue
		}

		if err := probe.PortFree(a); err != nil {
			taken = append(taken, probe.ListenCause(err))
			c.passing = c.passing && errors.Is(err, syscall.EADDRNOTAVAIL)
			used = used || probe.IsTaken(err)
		}
	}

	switch {
	case len(taken) == 0 && !hasAddress:
		return notLookedAt("port", what, "this machine does not have "+s.Peering.Address)
	case len(taken) == 0:
		c.Detail = "free"
		return c
	}

	c.Result, c.Detail = Fail, strings.Join(taken, "; ")
	switch {
	case c.passing:
		c.Hint = "check the network, or give addresses that the machine has: ip addr"
	case used:
		c.Hint = "stop the program that has the port (an installed salt-master, perhaps), " +
			"or choose other ports under settings"
	default:
		c.Hint = "correct what stands against it, or choose other addresses or ports under settings"
	}

	return c
}

func (p *Preflight) checkClock(ctx context.Context) Check {
	c := Check{Name: "clock", What: "clock", Result: Pass, Detail: "synchronised"}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ok, err := probe.ClockSynchronised(ctx)
	switch {
	case err != nil:
		c.Result, c.Detail = Skip, err.Error()
	case !ok:
		c.Result = Warn
		c.Detail = "not synchronised"
		c.Hint = p.clockHint()
	}
	return c
}

// clockHint returns what to do about a clock that is not synchronised. If the set-up may change the
// network, the user may have no shell yet: the hint then names a page of the wizard and no command.
func (p *Preflight) clockHint() string {
	hint := "after a start this takes a minute or two: check again, or go on; if no time server answers, "
	if p.Facts.Managed {
		return hint + "give one that answers: page Network, fixed"
	}
	return hint + "look at the time service: timedatectl, chronyc sources"
}

func (p *Preflight) dataDisk(a Answers) Check {
	c := Check{Name: "disk", What: "disk " + a.DataDisk, Result: Pass}
	for _, d := range p.Facts.Disks {
		if d.Path != a.DataDisk {
			continue
		}

		c.Detail = status.Size(d.Size)
		switch {
		case !d.Empty && !a.EraseDisk:
			c.Result = Fail
			c.Detail = d.Why
			c.Hint = "choose an empty disk, or allow this one to be erased"
		case !d.Empty:
			c.Result = Warn
			c.Detail = d.Why
			c.Hint = "everything on it will be erased"
		}

		return c
	}

	c.Result = Fail
	c.Detail = "it is not there"
	c.Hint = "attach the disk, or choose another: lsblk"
	return c
}

// bricksHint is the hint for a machine whose disk cannot hold a copy of a shared volume.
const bricksHint = "give the machine a disk of its own for it (data_disk), " +
	"or another directory under settings: storage: {bricks: DIRECTORY}"

// nearestExisting returns dir, or its nearest parent that exists.
func nearestExisting(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// checkBricks checks the directory that holds the copy of the shared volume on a machine without a
// data disk.
func (p *Preflight) checkBricks(a Answers, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "room for a copy of the shared volume", Result: Pass, Detail: s.Storage.Bricks}
	if err := disk.CheckRoot(s.Storage.Bricks); err != nil {
		c.fail(err.Error(), bricksHint)
		if a.Mode == Form {
			c.Hint += "; or keep everything on this machine alone, which no other node can join then (storage: " +
				"{kind: local})"
		}
	}
	return c
}

// checkDirectory tries to write to the shared directory that the administrator provides.
func (p *Preflight) checkDirectory(ctx context.Context, s *settings.Settings) Check {
	c := Check{Name: "disk", What: "shared directory " + s.StorageDir(), Result: Pass, Detail: "can be written to"}
	done := make(chan error, 1)
	go func() { // in a goroutine, because a network file system may hang
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
			c.fail(err.Error(),
				"mount the shared directory on this machine, writable for root (no_root_squash with NFS)")
		}
	case <-ctx.Done():
		c.Result = Fail
		c.Detail = "no answer in time"
		c.Hint = "check the server of the shared directory"
	}

	return c
}

// failedChecks returns the failed checks. passing reports whether all of them may pass by
// themselves later.
func failedChecks(checks []Check) (failed []Check, passing bool) {
	passing = true
	for _, c := range checks {
		if c.Result == Fail {
			failed = append(failed, c)
			passing = passing && c.passing
		}
	}
	return failed, passing && len(failed) > 0
}
