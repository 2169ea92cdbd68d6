package launch

import (
	"errors"

	"saltern/master/event"
	"saltern/master/internal/acl"
	"saltern/master/target"
	"saltern/master/value"
)

// ErrNotPermitted means that a caller may not start a job.
var ErrNotPermitted = errors.New("not permitted")

// findJob asks minions whether they run a job. All tools do so while they wait for one.
const findJob = "saltutil.find_job"

// maxFindJob bounds the load of such a question, in bytes.
const maxFindJob = 4096

// Caller is somebody without all rights who starts a job.
type Caller struct {
	User string // as whom the job is kept
	// Account names his part of the job cache: ldap/alice, minion/web1.
	Account     string
	Minion      string // the id of a minion; "" of people and programs
	Permissions []any
	Always      []string // functions that need no permission
}

// Permit checks that a caller without all rights may start a job, limits what he has sent
// to what such callers may send ([Limits]), and makes the job go to exactly the minions for
// which it is permitted: other readers of its target may find others. e bounds the work;
// nil: that of one target. A [Refusal] has a text for the caller.
//
// A job that is permitted on all minions keeps the target * as it is, since a list
// of thousands of names would go to each of them; and any target with
// order_masters, since lower masters have minions that are not known here.
func (l *Launcher) Permit(e *target.Effort, j *Job, c Caller) error {
	// Before anything else: what else is answered may depend on the pillars.
	if err := l.MayTarget(c, j.Load); err != nil {
		return err
	}

	funs, _ := Functions(j.Load)
	r := acl.Request{Funs: funs, Args: arguments(j.Load, len(funs)), Minions: j.Minions}
	if !acl.Publish(c.Permissions, r, l.cfg.Targets.permissionResolver(e), c.Always...) {
		return ErrNotPermitted
	}

	load, err := l.cfg.Limits.limitLoad(c, j.Load)
	if err != nil {
		return err
	}

	j.Load, j.account = load, c.Account
	if j.account != "" && asksForJob(load, funs) {
		j.account = findJob + " of " + c.Account // who has used up his part goes on to follow his jobs
	}

	r.Minions = nil
	nowhere := func(string) ([]string, error) { return nil, nil }
	everybody := j.Target == "*" && TargetType(j.Load) == "glob"
	if (l.cfg.OrderMasters || everybody) && acl.Publish(c.Permissions, r, nowhere, c.Always...) {
		return nil
	}

	return j.Restrict()
}

// MayTarget refuses a load of a caller without all rights whose target is a pattern for values
// of pillars. [Launcher.Permit] does so too; before [Launcher.New] it keeps what that costs
// from telling whom the pattern selects. What an administrator wrote into a nodegroup is for
// users, not for minions: those are told nothing of the pillars of others.
func (l *Launcher) MayTarget(c Caller, load *value.Map) error {
	pattern := target.OwnPillarPattern
	if c.Minion != "" {
		pattern = target.PillarPattern
	}
	term, found := pattern(load.Value("tgt"), TargetType(load), Delimiter(load), l.cfg.Targets.Nodegroups)
	if !found {
		return nil
	}
	return refuse("%.100q is a pattern for values of pillars, which is for callers with all rights: write the value in full, or let an administrator write the term into a nodegroup",
		term)
}

// asksForJob reports whether a load only asks minions for a job.
func asksForJob(load *value.Map, funs []string) bool {
	return len(funs) == 1 && funs[0] == findJob && event.Weight(load) <= maxFindJob
}
