package observe

import (
	"strings"
	"time"

	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// extend asks systemd for more time to start. The observer sends it in each round until the start
// is complete.
const extend = "EXTEND_TIMEOUT_USEC=30000000"

// readyAnyway is how long the unit waits for the node to serve, which needs the shared volume.
// After this time the unit counts as started nevertheless: the status shows the problem, and a
// restart by systemd would repair nothing.
const readyAnyway = time.Minute

// notify reports the state of the node to systemd.
func (o *Observer) notify(d status.Document) {
	state := "WATCHDOG=1"
	switch {
	case o.ready:
	case d.ServesItself(), o.cfg.Now().Sub(o.cfg.Started) > readyAnyway:
		state = "READY=1\nWATCHDOG=1"
		o.ready = true
	default:
		state = extend + "\nWATCHDOG=1"
	}
	o.cfg.Notify.Notify(systemd.Status(headline(d)))
	for line := range strings.SplitSeq(state, "\n") {
		o.cfg.Notify.Notify(line)
	}
}

// headline returns a summary of the status in one line.
func headline(d status.Document) string {
	if len(d.Problems) == 0 {
		return string(d.Health)
	}

	first := string(d.Problems[0].Code) + " " + d.Problems[0].Title
	if d.Health == status.Healthy {
		return string(d.Health) + "; note: " + first
	}
	return string(d.Health) + ": " + first
}
