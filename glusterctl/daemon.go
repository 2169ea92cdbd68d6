package glusterctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// DaemonState is the directory of glusterd's own state.
const DaemonState = "/var/lib/glusterd"

// DaemonConfig returns the content of /etc/glusterfs/glusterd.vol. It sets ping and user timeouts.
// Without them glusterd takes minutes to notice that a peer is lost, and commands that need the
// lock of the pool hang until then. Bricks listen on ports from 49152 to lastPort, so that firewall
// rules can name these ports. If lastPort is 0, it is 60999, as in Debian.
func DaemonConfig(lastPort int) []byte {
	lastPort = cmp.Or(lastPort, 60999)
	return fmt.Appendf(nil, `# Written by the appliance: changes here are lost.
volume management
    type mgmt/glusterd
    option working-directory %s
    option transport-type socket
    option transport.socket.keepalive-time 10
    option transport.socket.keepalive-interval 2
    option transport.socket.read-fail-log off
    option transport.socket.listen-port %s
    option transport.tcp-user-timeout 10
    option ping-timeout 10
    option event-threads 1
    option base-port 49152
    option max-port %d
end-volume
`, DaemonState, Port, lastPort)
}

// UnitDropIn returns a drop-in for glusterd.service. With Debian's unit alone, a restart of
// glusterd also stops the node's bricks. brickMount is the mount point of the bricks' file system.
// glusterd starts only if the file allowed exists. Debian's unit is ordered before
// network-online.target, so this drop-in must not order it after that target.
func UnitDropIn(brickMount, allowed string) string {
	return "[Unit]\nAfter=network.target time-sync.target\nRequiresMountsFor=" + brickMount +
		"\nConditionPathExists=" + allowed + "\n\n" +
		"[Service]\nKillMode=process\nRestart=on-failure\nRestartSec=2\nTimeoutStartSec=180\n" +
		"ExecStopPost=-/bin/sh -c '" + endLeftOver + "'\n"
}

// endLeftOver is a shell command for glusterd's unit. It kills glusterds that a stop of the unit
// has left, within ten seconds. systemd kills only the main process. A glusterd that is stopped
// during its start, or takes too long to stop, may continue to run: it occupies the port, every
// later start fails, and its files may be removed while it runs. The command does not touch
// processes outside this unit, such as those of containers.
const endLeftOver = `for i in $$(seq 100); do ` +
	`l=; for p in $$(pgrep -x glusterd); do if cmp -s /proc/$$p/cgroup /proc/self/cgroup; then l="$$l $$p"; fi; done; ` +
	`[ "$$l" ] || exit 0; kill $$l; sleep 0.1; done`

// keepOnReset lists the entries of DaemonState that belong to the package, not to a pool.
var keepOnReset = [...]string{"hooks", "groups", "secure-access"}

// ResetDaemon removes the pool and the identity from the state of this node's glusterd, so that
// this node can join a pool as a new machine. Data in bricks stays. Call ResetDaemon only while
// glusterd does not run, and when no member of the pool lists this node any more, see
// [Observation].Disowned.
func ResetDaemon(state string) error {
	entries, err := os.ReadDir(state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reset glusterd: %w", err)
	}

	var faults []error
	for _, e := range entries {
		if !slices.Contains(keepOnReset[:], e.Name()) {
			faults = append(faults, os.RemoveAll(filepath.Join(state, e.Name())))
		}
	}

	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("reset glusterd: %w", err)
	}

	return nil
}

// EncryptManagement turns on TLS between glusterds, from their next start. All nodes must turn it
// on before they first connect: a node with TLS cannot communicate with a node without it.
func EncryptManagement(state string) error {
	f, err := os.OpenFile(filepath.Join(state, "secure-access"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("encrypt management connections: %w", err)
	}
	return f.Close()
}

// HostsBlock returns the lines for /etc/hosts of all members. With these lines each member resolves
// every name, including its own, to the address in the pool.
func HostsBlock(members []Member) string {
	var b strings.Builder
	for _, m := range members {
		if m.Name != m.Address {
			fmt.Fprintf(&b, "%s\t%s\n", m.Address, m.Name)
		}
	}
	return b.String()
}

// ProbeTimeout returns how long a probe of the mount may take before the mount is reported as hung.
// It is a little longer than the longest normal stall after the loss of a node, which is one and
// three quarters of the ping timeout.
func (t Timers) ProbeTimeout() time.Duration { return t.Ping*7/4 + 3*time.Second }
