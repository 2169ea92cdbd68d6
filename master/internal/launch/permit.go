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

// findJob is the function by which tools ask minions whether they still run a job. All tools call
// it while they wait for returns.
const findJob = "saltutil.find_job"

// maxFindJob bounds the size of the load of a findJob call, in bytes.
const maxFindJob = 4096

// Caller is a user or minion without all rights who starts a job.
type Caller struct {
	User string // name that is stored with the job
	// Account identifies the caller's share of the job cache: ldap/alice, minion/web1.
	Account     string
	Minion      string // id of a minion; "" for users and programs
	Permissions []any
	Always      []string // functions for which the caller needs no permission
}

// Permit checks that a caller without all rights may start a job. It reduces the job's load to what
// such callers may send ([Limits]). It restricts the job to the minions for which it is permitted,
// because minions or other masters might resolve the target differently. e bounds the work; nil
// means the default bound for one target. If the error is a [Refusal], the caller may see its text.
//
// Permit leaves two kinds of targets unchanged. Permit keeps the target "*" if the job is permitted
// on all minions; otherwise each minion would receive a list of thousands of names. With
// order_masters it keeps every target, because this master does not know the minions of lower
// masters.
//
// For such a caller "*" is the only wildcard that selects resources: he needs permission for each
// resource and must name it.
func (l *Launcher) Permit(e *target.Effort, j *Job, c Caller) error {
	// Check this first, because results and durations of later checks may depend on pillars.
	if err := l.MayTarget(c, j.Load); err != nil {
		return err
	}

	funs, _ := Functions(j.Load)
	minions := j.Minions[:len(j.Minions)-j.implied]
	r := acl.Request{Funs: funs, Args: arguments(j.Load, len(funs)), Minions: minions}
	if !acl.Publish(c.Permissions, r, l.cfg.Targets.permissionResolver(e), c.Always...) {
		return ErrNotPermitted
	}

	load, err := l.cfg.Limits.limitLoad(c, j.Load)
	if err != nil {
		return err
	}

	j.Load, j.account = load, c.Account
	if j.account != "" && asksForJob(load, funs) {
		// find_job has a separate quota, so that a caller over his quota can still follow his jobs.
		j.account = findJob + " of " + c.Account
	}

	r.Minions = nil
	nowhere := func(string) ([]string, error) { return nil, nil }
	everybody := j.Target == "*" && TargetType(j.Load) == "glob"
	if (l.cfg.OrderMasters || everybody) && acl.Publish(c.Permissions, r, nowhere, c.Always...) {
		return nil
	}

	j.Minions = minions
	return j.Restrict()
}

// MayTarget returns an error if a caller without all rights sends a target that matches values of
// pillars. [Launcher.Permit] also calls MayTarget. A caller that calls MayTarget before
// [Launcher.New] keeps the duration of New from revealing which minions the target matches. Users
// may use the administrator's nodegroups. Minions may not, because the result would reveal the
// pillars of other minions.
func (l *Launcher) MayTarget(c Caller, load *value.Map) error {
	pattern := target.OwnPillarPattern
	if c.Minion != "" {
		pattern = target.PillarPattern
	}
	term, found := pattern(load.Value("tgt"), TargetType(load), Delimiter(load), l.cfg.Targets.groups())
	if !found {
		return nil
	}
	return refuse("%.100q is a pattern for values of pillars, which is for callers with all rights: write the value in full, or let an administrator write the term into a nodegroup",
		term)
}

// asksForJob reports whether a load does nothing but ask minions about a job (find_job).
func asksForJob(load *value.Map, funs []string) bool {
	return len(funs) == 1 && funs[0] == findJob && event.Weight(load) <= maxFindJob
}
