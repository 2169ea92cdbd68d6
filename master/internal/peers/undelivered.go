package peers

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/value"
)

// undelivered reports jobs that minions may have missed and will not get. It fires an event for the
// user who started the job, writes to the log, and reports a fault of this master.
type undelivered struct {
	fire   func(tag string, data *value.Map)
	failed func(control.Fault, error)
	log    *slog.Logger
	jobs   atomic.Uint64
}

const (
	maxNamed  = 500 // maxNamed bounds the number of minions named in an event.
	maxLogged = 10  // maxLogged bounds the number of minions named in a log line.
)

// jobMissed reports the minions that may have missed a job, and to which no master will send it
// again.
func (u *undelivered) jobMissed(load *value.Map, minions []string, why string) {
	u.fireEvent(load,
		value.NewMap("minions", minions[:min(len(minions), maxNamed)], "count", int64(len(minions)), "reason", why))
	first := slices.Sorted(slices.Values(minions))
	first = first[:min(len(first), maxLogged)]
	u.log.Warn("job is not given again to minions that may have missed it", "jid", load.Str("jid"),
		"minions", len(minions), "first", strings.Join(first, ","), "reason", why)
}

// jobLost reports a job that never reached a peer although the peer was connected all the time.
func (u *undelivered) jobLost(peer string, load *value.Map) {
	n := u.jobs.Add(1)
	why := "it could not be sent to master " + peer + " in time"
	u.fireEvent(load, value.NewMap("peer", peer, "reason", why))
	u.log.Error("job was not delivered to the minions of another master", "jid", load.Str("jid"), "peer", peer)
	u.failed(control.DeliveryFault,
		fmt.Errorf("%d since the start of the master, the last one %s (%s) to the minions of %s, which could not be reached for so long; start it again for those that have not returned",
			n, load.Str("jid"), summary.FunctionOf(load), peer))
}

func (u *undelivered) fireEvent(load, data *value.Map) {
	jid := load.Str("jid")
	data.Set("jid", jid)
	for _, k := range []string{"fun", "tgt", "tgt_type", "user"} {
		if v, ok := load.Get(k); ok {
			data.Set(k, v)
		}
	}
	u.fire(event.Tag("job", jid, "undelivered"), data)
}
