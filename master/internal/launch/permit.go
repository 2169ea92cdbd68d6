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

// findJob is the function that asks minions whether they run a job. All tools call it while they wait
// for a job.
const findJob = "saltutil.find_job"

// maxFindJob bounds the load of a findJob call, in bytes.
const maxFindJob = 4096

// Caller is a user or minion without all rights who starts a job.
type Caller struct {
	User string // name that is stored with the job
	// Account names the part of the job cache that the caller may use: ldap/alice, minion/web1.
	Account     string
	Minion      string // id of a minion; "" for people and programs
	Permissions []any
	Always      []string // functions that need no permission
}

// Permit checks that a caller without all rights may start a job, and reduces the job's load to what
// such callers may send ([Limits]). It restricts the job to the minions for which it is permitted,
// because others might resolve the target differently. e bounds the work; nil means the bound for one
// target. The text of a [Refusal] is for the caller.
//
// Permit leaves two kinds of targets unchanged: "*", if the job is permitted on all minions, because
// otherwise each minion would get a list of thousands of names; and every target with order_masters,
// because lower masters have minions that are unknown here.
func (l *Launcher) Permit(e *target.Effort, j *Job, c Caller) error {
	// Check this first: the outcome and time of later checks may depend on pillars.
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
		// a quota of its own: a caller over his quota may still follow his jobs
		j.account = findJob + " of " + c.Account
	}

	r.Minions = nil
	nowhere := func(string) ([]string, error) { return nil, nil }
	everybody := j.Target == "*" && TargetType(j.Load) == "glob"
	if (l.cfg.OrderMasters || everybody) && acl.Publish(c.Permissions, r, nowhere, c.Always...) {
		return nil
	}

	return j.Restrict()
}

// MayTarget refuses a target that matches values of pillars from a caller without all rights.
// [Launcher.Permit] calls it too. Called before [Launcher.New], it also prevents that the time of New
// reveals which minions the target matches. Users may use the administrator's nodegroups. Minions may
// not, because they must learn nothing about the pillars of others.
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

// asksForJob reports whether a load only asks minions about a job.
func asksForJob(load *value.Map, funs []string) bool {
	return len(funs) == 1 && funs[0] == findJob && event.Weight(load) <= maxFindJob
}
