package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// Dissolution removes the shared volume's configuration from this machine, so that the machine can
// join a cluster as a new machine. The copies of the data stay. If glusterd also serves other
// machines, it keeps their configuration.
type Dissolution struct {
	s          *settings.Settings
	executable string
	state      string // glusterd's state directory
	table      nodes.Table
	log        *slog.Logger
}

// NewDissolution returns a dissolution for a node on a volume. It changes nothing yet. The table
// names the machines of the pool that belong to the cluster.
func NewDissolution(s *settings.Settings, executable string, t nodes.Table, log *slog.Logger) *Dissolution {
	return &Dissolution{s, executable, glusterctl.DaemonState, t, log}
}

// Fault returns why the dissolution is not possible now, or nil.
func (d *Dissolution) Fault() error {
	others, err := d.outsiders()
	if err != nil || len(others) == 0 {
		return err
	}

	hosts, err := d.copies()
	if err != nil {
		return err
	}

	if i := slices.IndexFunc(hosts, func(h string) bool { return !d.isSelf(h) }); i >= 0 &&
		slices.ContainsFunc(hosts, d.isSelf) {
		return fmt.Errorf("glusterd of this machine serves others too (%s), "+
			"and the volume %s has copies here and on %s; take this node out of its cluster first: applianced leave",
			strings.Join(others, ", "), d.s.Storage.Volume, hosts[i])
	}

	return nil
}

// Do unmounts the volume and removes it from glusterd's configuration. No process of the node may
// run during the call. Do may be repeated.
func (d *Dissolution) Do(ctx context.Context) error {
	if err := d.Fault(); err != nil {
		return err
	}

	others, err := d.outsiders()
	if err != nil {
		return err
	}

	m := New(FromSettings(d.s, d.executable, layout.Account{}, d.log))
	if len(others) > 0 {
		err = errors.Join(m.mounter.Unmount(ctx, true), d.deleteVolume(ctx), setHosts(hostsPath, ""))
	} else if err = m.Forget(ctx); err == nil {
		if systemdRuns() {
			// While glusterd starts, systemd does not know which of its processes is the main one.
			// A stop then leaves these processes running (KillMode=process).
			_, _ = command.Do(ctx, command.Exec{}, "systemctl", "kill", "--signal=KILL", daemonUnit)
		}

		for _, b := range d.bricks() {
			for _, pid := range brickProcesses(b) { // brick processes outlive glusterd
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
			}
		}

		err = remove(dropIn)
	}

	if err == nil {
		err = mount.RemovePoint(d.s.Storage.Path)
	}

	if err != nil {
		return fmt.Errorf("forget the shared volume: %w", err)
	}
	if !systemdRuns() {
		return nil
	}

	if err := remove(filepath.Join("/etc/systemd/system", mountUnit(d.s.Storage.Path))); err != nil {
		return err
	}

	_, err = command.Do(ctx, command.Exec{}, "systemctl", "daemon-reload")
	return err
}

// bricks returns the directories for copies on this machine.
func (d *Dissolution) bricks() []string {
	list, _ := filepath.Glob(filepath.Join(d.s.Storage.Bricks, d.s.Storage.Volume+"-[0-9]*"))
	return list
}

// deleteVolume deletes the volume if this machine has a copy. Fault has already checked that this
// machine then has all copies. A volume without a copy here belongs to the other nodes, and stays.
func (d *Dissolution) deleteVolume(ctx context.Context) error {
	hosts, err := d.copies()
	if err != nil || !slices.ContainsFunc(hosts, d.isSelf) {
		return err
	}
	c := cli.Client{Runner: command.Exec{}}
	if err := c.Change(ctx, "volume", "stop", d.s.Storage.Volume, "force"); err != nil && cli.KindOf(err) != cli.Done {
		return err
	}
	return c.Change(ctx, "volume", "delete", d.s.Storage.Volume)
}

func (d *Dissolution) isSelf(host string) bool {
	n, ok := d.table.Find(d.s.Node)
	return host == d.s.Node || ok && host == n.Address
}

// outsiders returns the volumes and machines of glusterd's configuration that do not belong to the
// cluster. It reads glusterd's files (glusterd-store.c), which also exist while glusterd is
// stopped.
func (d *Dissolution) outsiders() (out []string, err error) {
	volumes, err := os.ReadDir(filepath.Join(d.state, "vols"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	for _, v := range volumes {
		if v.IsDir() && v.Name() != d.s.Storage.Volume {
			out = append(out, "volume "+v.Name())
		}
	}

	peers, err := filepath.Glob(filepath.Join(d.state, "peers", "*"))
	if err != nil {
		return nil, err
	}

	for _, p := range peers {
		names, err := readValues(p, "hostname")
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(names, d.belongsHere) {
			out = append(out, "machine "+strings.Join(names, " "))
		}
	}

	return out, nil
}

func (d *Dissolution) belongsHere(host string) bool {
	return slices.ContainsFunc(d.table.Nodes, func(n nodes.Node) bool { return host == n.Name || host == n.Address })
}

// copies returns the hosts of the volume's copies, from glusterd's configuration.
func (d *Dissolution) copies() ([]string, error) {
	list, err := readValues(filepath.Join(d.state, "vols", d.s.Storage.Volume, "info"), "brick-")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i := range list {
		list[i], _, _ = strings.Cut(list[i], ":")
	}
	return list, err
}

// readValues reads the values of all keys with a prefix from a file of glusterd, whose
// lines are KEY=VALUE.
func readValues(path, prefix string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if key, v, ok := strings.Cut(sc.Text(), "="); ok && strings.HasPrefix(key, prefix) && v != "" {
			out = append(out, v)
		}
	}
	return out, sc.Err()
}
