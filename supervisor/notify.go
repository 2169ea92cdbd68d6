package supervisor

import (
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier tells the service manager how we are (sd_notify(3)): READY=1,
// STATUS=text, WATCHDOG=1 and so on, several lines at once.
type Notifier interface{ Notify(state string) }

type silent struct{}

func (silent) Notify(string) {}

// Systemd is the Notifier of a unit with Type=notify. It does nothing when
// NOTIFY_SOCKET is not set.
type Systemd struct{ watchdog bool }

// NewSystemd reads the environment. The watchdog is fed only if the unit
// asked for it of this very process.
func NewSystemd() Systemd {
	d, err := daemon.SdWatchdogEnabled(false)
	return Systemd{watchdog: err == nil && d > 0}
}

// Notify implements [Notifier]; a notification that cannot be sent is not
// worth failing for.
func (s Systemd) Notify(state string) {
	if os.Getenv("NOTIFY_SOCKET") == "" || state == "WATCHDOG=1" && !s.watchdog {
		return
	}
	_, _ = daemon.SdNotify(false, state)
}

// extend asks systemd for more time to start; it is asked again each tick.
const extend = "EXTEND_TIMEOUT_USEC=30000000"

// readyAnyway is how long a node may take to serve before the unit counts as
// started nevertheless: what is wrong is in the status, and a restart by
// systemd would mend nothing.
const readyAnyway = time.Minute

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), 200)]
}
