package peers

import (
	"context"
	"strings"

	"saltern/master/event"
	"saltern/master/runner"
)

// resultsDepth bounds the number of events of results that wait. Overflow policy: further results
// stay with this master.
const resultsDepth = 4096

// handOverResults passes the results that Salt's own salt-run has stored in this master's job cache
// on to the other masters, until ctx ends. salt-run stores a result before it fires its event
// (salt/client/mixins.py low). This master itself copies the results of its own runs.
func (m *Membership) handOverResults(ctx context.Context, bus *event.Bus) {
	sub := bus.Subscribe("results of salt-run", resultsDepth, func(tag string) bool { return jobOfResult(tag) != "" })
	defer sub.Close()

	eachEvent(ctx, sub, func(e event.Event) {
		if e.Lost > 0 {
			m.log.Error("results of salt-run stay with this master: too many at once", "lost", e.Lost)
		}
		if e.Origin == event.Socket && !runner.Private(e.Data.Str("fun")) {
			m.Jobs.HandOver(jobOfResult(e.Tag))
		}
	})
}

// jobOfResult returns the job id in the tag of a result of a runner or wheel function, or "" if the
// tag is another one.
func jobOfResult(tag string) string {
	for _, space := range []string{"salt/run/", "salt/wheel/"} {
		if rest, ok := strings.CutPrefix(tag, space); ok {
			jid, kind, _ := strings.Cut(rest, "/")
			if kind == "ret" {
				return jid
			}
		}
	}
	return ""
}
