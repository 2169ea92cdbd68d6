//go:build nspawn

package image

import (
	"strings"
	"testing"

	"saltern/glusterctl"
)

// restartsDaemon: a glusterd that is stopped in the middle of its start leaves none
// behind that holds its port. One without a pool, for in one it may forget what it was
// just being told. Without the line in the unit every second pair of restarts left one.
func (m *machine) restartsDaemon(t *testing.T) {
	t.Helper()
	m.put(t, "/etc/systemd/system/glusterd.service.d/saltern.conf", glusterctl.UnitDropIn("/var/lib", "/run"))
	m.run(t, "systemctl", "daemon-reload")

	// Systemd may say that a job was canceled for the next one, which is no fault.
	const twice = `{ systemctl restart --no-block glusterd; sleep "$0"; systemctl restart glusterd; } >/dev/null 2>&1; echo $? $(systemctl is-active glusterd) $(pgrep -cx glusterd)`
	// A stop that it calls canceled goes on as well, also when systemd warns before that somebody has
	// written a unit since it read them; any other complaint is printed.
	const stopped = `{ systemctl stop glusterd; systemctl start --no-block glusterd; } >/dev/null 2>&1; sleep "$0"; said=$(systemctl stop glusterd 2>&1) || case $said in *"Job for glusterd.service canceled.") ;; *) echo "failed: $said";; esac; echo $(systemctl is-active --quiet glusterd && echo active) $(pgrep -cx glusterd)`
	for _, pause := range []string{"0.01", "0.02", "0.03", "0.04", "0.05", "0.06", "0.08", "0.1"} {
		if got := strings.TrimSpace(m.run(t, "sh", "-c", twice, pause)); got != "0 active 1" {
			t.Errorf("restarted twice, %s s apart: %s\n%s", pause, got,
				m.run(t, "journalctl", "-u", "glusterd", "-n", "20", "--no-pager"))
		}

		if got := strings.TrimSpace(m.run(t, "sh", "-c", stopped, pause)); got != "0" {
			t.Errorf("stopped %s s after its start: %s", pause, got)
		}

		m.run(t, "systemctl", "reset-failed", "glusterd") // it may be started six times an hour
	}

	m.run(t, "systemctl", "stop", "glusterd")
	m.run(t, "rm", "-r", "/etc/systemd/system/glusterd.service.d")
	m.run(t, "systemctl", "daemon-reload")
}
