package fleet

import (
	"time"

	"saltern/master/jobs"
)

// farthestAhead is how far ahead of a clock a job id may be: clocks of masters differ.
const farthestAhead = time.Hour

// orderOf returns the text by which the runs of a minion are ordered. It is the job id, but callers may
// choose ids: an id that is ahead of the time at which a master took the return counts as one of that time.
func orderOf(jid string, taken time.Time) string {
	if isAhead(jid, taken) {
		return jobs.FromTime(taken)
	}
	return jid
}

func (a *Answer) order() string { return orderOf(a.JID, a.Time) }

// isNewer reports whether a run displaces another one, by their orders; kept is "" if there is no other.
// A run that is ahead of this master's clock displaces none that is not, and is displaced by all: the
// clock of the master that took it was wrong.
func isNewer(order, kept string, now time.Time) bool {
	ahead, keptAhead := isAhead(order, now), isAhead(kept, now)
	if kept != "" && ahead != keptAhead {
		return keptAhead
	}
	return order > kept
}

// isAhead reports whether a job id is of a time after at.
func isAhead(jid string, at time.Time) bool { return jid > jobs.FromTime(at.Add(farthestAhead)) }
