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

// Dissolution takes away what the shared volume has left on this machine beside
// the copies themselves, so that the machine is new. A glusterd that serves
// others as well keeps all that is theirs.
type Dissolution struct {
	s          *settings.Settings
	executable string
	state      string // of glusterd
	table      nodes.Table
	log        *slog.Logger
}

// NewDissolution gives one for a node on a volume; nothing happens yet. The
// table tells which machines of the pool are the cluster's.
func NewDissolution(s *settings.Settings, executable string, t nodes.Table, log *slog.Logger) *Dissolution {
	return &Dissolution{s, executable, glusterctl.DaemonState, t, log}
}

// Fault tells why it is not possible now; nil when it is.
func (d *Dissolution) Fault() error {
	others, err := d.outsiders()
	if err != nil || len(others) == 0 {
		return err
	}

	hosts, err := d.copies()
	if err != nil {
		return err
	}

	if i := slices.IndexFunc(hosts, func(h string) bool { return !d.self(h) }); i >= 0 &&
		slices.ContainsFunc(hosts, d.self) {
		return fmt.Errorf("glusterd of this machine serves others too (%s), and the volume %s has copies here and on %s; take this node out of its cluster first: applianced leave",
			strings.Join(others, ", "), d.s.Storage.Volume, hosts[i])
	}

	return nil
}

// Do unmounts the volume and has glusterd forget it. No process of the node may
// run. It may be repeated.
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
			// Of a glusterd that was just starting systemd knows no process yet, and its
			// unit leaves alone what it does not know (KillMode=process).
			_, _ = command.Do(ctx, command.Exec{}, "systemctl", "kill", "--signal=KILL", daemonUnit)
		}

		for _, b := range d.bricks() {
			for _, pid := range servants(b) { // glusterd leaves them behind
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
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

// bricks are the directories for copies on this machine.
func (d *Dissolution) bricks() []string {
	list, _ := filepath.Glob(filepath.Join(d.s.Storage.Bricks, d.s.Storage.Volume+"-[0-9]*"))
	return list
}

// deleteVolume takes a volume whose copies are all here from a pool that has
// others; one without a copy here is the other nodes'.
func (d *Dissolution) deleteVolume(ctx context.Context) error {
	hosts, err := d.copies()
	if err != nil || !slices.ContainsFunc(hosts, d.self) {
		return err
	}
	c := cli.Client{Runner: command.Exec{}}
	if err := c.Change(ctx, "volume", "stop", d.s.Storage.Volume, "force"); err != nil && cli.KindOf(err) != cli.Done {
		return err
	}
	return c.Change(ctx, "volume", "delete", d.s.Storage.Volume)
}

func (d *Dissolution) self(host string) bool {
	n, ok := d.table.Find(d.s.Node)
	return host == d.s.Node || ok && host == n.Address
}

// outsiders are the volumes and machines that glusterd knows and that are not
// the cluster's. They are read from its files, which are there while it is
// stopped, too (glusterd-store.c).
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
		names, err := values(p, "hostname")
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

// copies gives the hosts of the copies of the volume, as glusterd knows it.
func (d *Dissolution) copies() ([]string, error) {
	list, err := values(filepath.Join(d.state, "vols", d.s.Storage.Volume, "info"), "brick-")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i := range list {
		list[i], _, _ = strings.Cut(list[i], ":")
	}
	return list, err
}

// values reads the values of all keys with a prefix from a file of glusterd's,
// which has lines KEY=VALUE.
func values(path, prefix string) ([]string, error) {
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
