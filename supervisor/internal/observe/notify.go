package observe

import (
	"fmt"
	"strings"
	"time"

	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// extend asks systemd for more time to start; it is asked again each tick.
const extend = "EXTEND_TIMEOUT_USEC=30000000"

// readyAnyway is how long a node may take to serve by itself, which waits for the shared volume,
// before the unit counts as
// started nevertheless: what is wrong is in the status, and a restart by
// systemd would fix nothing.
const readyAnyway = time.Minute

// notify tells systemd how the node is.
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

// headline is the status in one line.
func headline(d status.Document) string {
	if len(d.Problems) > 0 {
		return fmt.Sprintf("%s: %s %s", d.Health, d.Problems[0].Code, d.Problems[0].Title)
	}
	return string(d.Health)
}
