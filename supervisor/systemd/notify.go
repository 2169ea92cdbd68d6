package systemd

import (
	"os"

	"saltern/internal/printable"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier reports the state of this process to the service manager (sd_notify(3)): READY=1,
// STATUS=text, WATCHDOG=1 and so on, as one or more lines.
type Notifier interface{ Notify(state string) }

// Nobody is a [Notifier] that does nothing.
type Nobody struct{}

// Notify implements [Notifier].
func (Nobody) Notify(string) {}

// Unit is the Notifier for a service with Type=notify. It does nothing if NOTIFY_SOCKET is not set.
type Unit struct{ watchdog bool }

// NewUnit returns the Notifier for this process's environment. The Notifier sends WATCHDOG=1 only
// if the unit requests it from this very process.
func NewUnit() Unit {
	d, err := daemon.SdWatchdogEnabled(false)
	return Unit{watchdog: err == nil && d > 0}
}

// Notify implements [Notifier]. It ignores errors, because no caller could handle them.
func (s Unit) Notify(state string) {
	if os.Getenv("NOTIFY_SOCKET") == "" || state == "WATCHDOG=1" && !s.watchdog {
		return
	}
	_, _ = daemon.SdNotify(false, state)
}

// Status returns the line that sets the unit's status text.
func Status(text string) string { return "STATUS=" + printable.Brief(text, 197) }
