package launch

import (
	"slices"
	"time"

	"saltern/master/event"
	"saltern/master/keys"
	"saltern/master/target"
	"saltern/master/value"
)

// Syndics knows which minions are syndics.
type Syndics interface {
	// Known reports whether a minion is a syndic, which does not answer as a minion.
	Known(id string) bool
}

// noSyndics are the Syndics of a master without lower masters.
type noSyndics struct{}

func (noSyndics) Known(string) bool { return false }

// ReachesNobody reports whether no minion gets a job. With order_masters only a list of minions of this
// master can say so, because the lower masters resolve any other target themselves.
func (l *Launcher) ReachesNobody(j *Job) bool {
	return len(j.Minions) == 0 && (j.only || !l.cfg.OrderMasters)
}

// addressees returns the minions that a job is known to be for: those of this master without its syndics,
// and those that the job's target lists, which may be below a syndic.
func (l *Launcher) addressees(j *Job) []string {
	if !l.cfg.OrderMasters {
		return j.Minions
	}
	ids := slices.DeleteFunc(slices.Clone(j.Minions), l.cfg.Syndics.Known)
	if !j.only && TargetType(j.Load) == "list" {
		ids = append(ids, j.Missing...)
	}
	return ids
}

// maxBelow bounds the minions below syndics that are awaited for one job. Further ones get the job, and
// their returns are in the job cache; nobody waits for them.
const maxBelow = 100_000

// below gathers the minions of a job that are below syndics (salt/client/__init__.py get_iter_returns). Only
// syndics can tell who they are, so nobody knows all of them before syndic_wait has passed.
type below struct {
	targets      *Targets
	job          *Job
	reachesLower bool      // lower masters get the job
	toldBy       time.Time // when syndics have had their time to tell
	ids          map[string]bool
}

// newBelow returns what gathers the minions of a job below syndics. Without lower masters, and for a job for
// listed minions of this master, there are none.
func (l *Launcher) newBelow(j *Job) *below {
	return &below{
		targets:      l.cfg.Targets,
		job:          j,
		reachesLower: l.cfg.OrderMasters && !j.only,
		ids:          map[string]bool{},
	}
}

// begin begins the time that syndics have, when they have the job.
func (b *below) begin(wait time.Duration) {
	if b.reachesLower {
		b.toldBy = time.Now().Add(wait)
	}
}

// timeToTell returns how long syndics may still tell which minions have the job.
func (b *below) timeToTell() time.Duration { return max(time.Until(b.toldBy), 0) }

// wants reports whether below needs events with this tag.
func (b *below) wants(tag string) bool { return b.reachesLower && event.LowerJob(tag) != "" }

// named returns the new minions that an event names for the job. named reports whether the event names any,
// new or not: then its sender is a syndic that has the job.
func (b *below) named(e event.Event) (ids []string, named bool) {
	if !b.reachesLower || event.LowerJob(e.Tag) != b.job.JID || !event.MayOrder(e, event.SyndicReport) {
		return nil, false
	}
	ids = minionsIn(e.Data)
	return b.add(ids), len(ids) > 0
}

// minionsIn returns the minions that an event names. An event of this master has a []string there; an event
// of a peer has a decoded []any.
func minionsIn(data *value.Map) []string {
	if ids, ok := data.Value("minions").([]string); ok {
		return ids
	}
	return data.Texts("minions")
}

// add adds those of ids that may be minions of the job below a syndic, and returns the new ones. A minion of
// this master is none. Nor is one that a target by ids does not select, nor a name that a list takes for several:
// whoever names them must not get the job to others by that.
func (b *below) add(ids []string) (added []string) {
	if !b.reachesLower {
		return nil
	}

	accepted := b.targets.Accepted()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, known := slices.BinarySearch(accepted, id)
		return known || b.ids[id] || keys.ValidID(id) != nil || isSeveral(id)
	})
	slices.Sort(ids)
	switch typ := TargetType(b.job.Load); typ {
	case "list", "glob", "pcre":
		ids, _, _ = target.Resolve(ids, b.job.Target, typ, b.targets.env(nil, "")) // New has read this target
	}

	for _, id := range ids {
		if len(b.ids) == maxBelow {
			return added
		}
		b.ids[id] = true
		added = append(added, id)
	}
	return added
}
