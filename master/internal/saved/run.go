package saved

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/history/summary"
	"saltern/master/internal/acl"
	"saltern/master/internal/batch"
	"saltern/master/internal/username"
	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
)

// run runs a saved job. It returns when the minions have the job, or, with a batch, when the first of
// them have it; with test_first when the test run has ended before. It does not wait for results.
func run(ctx context.Context, s *Service, c call) (any, error) {
	name, err := c.text("name")
	if err != nil {
		return nil, err
	}
	objects := s.cfg.Store.Newest(ctx)
	o := objects.Get(KindJob, name)
	if o == nil || !mayRun(o.Job, c.by) {
		r := s.record(ctx, c.by, runRunner, name)
		r.Result = audit.Refused
		if o == nil {
			r.Detail = "there is no such saved job"
		}
		s.cfg.Audit.Note(r)
		return nil, badf("there is no saved job %.80q that %s may run: saved.jobs lists them, and may_run of a job names who may run it",
			name, who(c.by))
	}
	if o.Fault != nil {
		return nil, fmt.Errorf("this master cannot read the saved job: %w", o.Fault)
	}

	r := &jobRun{
		Service:  s,
		job:      o.Job,
		name:     name,
		revision: o.Revision,
		caller:   c.by,
		by:       userOf(c.by),
	}
	r.by.Saved = value.NewMap("job", name)
	if c.schedule != "" {
		r.by.Saved.Set("schedule", c.schedule)
	}
	var result any
	err = checkShown(o, c)
	if err == nil {
		err = r.prepare(objects, c)
	}
	if err == nil {
		result, err = r.do(ctx)
	}
	s.noteRun(ctx, c.by, r, err)
	return result, err
}

// checkShown refuses to run another job than the one that the caller has seen.
func checkShown(o *Object, c call) error {
	seen, err := c.revision()
	if err != nil {
		return err
	}
	if seen != nil && *seen != o.Revision {
		return badf("the saved job %s was changed by %s at %s: nothing was run; look at it again, and give revision=%d to run that",
			o.Name, o.By, o.Changed.UTC().Format(time.RFC3339), o.Revision)
	}
	return nil
}

// userOf returns for whom a job runs that a caller asks for.
func userOf(by runner.Caller) User {
	if by.All {
		return User{Name: by.User, Eauth: by.Eauth}
	}
	return User{Name: by.Name, Eauth: by.Eauth, Limited: true}
}

// account returns the account for which the user's slots count; "" for a user with all rights.
func (u User) account() string {
	if !u.Limited {
		return ""
	}
	return cmp.Or(u.Eauth, "host") + "/" + u.Name
}

// maxShown bounds the target in a record, in bytes.
const maxShown = 1000

// noteRun records a run.
func (s *Service) noteRun(ctx context.Context, by runner.Caller, r *jobRun, err error) {
	record := s.record(ctx, by, runRunner, r.name).Ended(err)
	record.Function = r.job.Function
	record.Minions = r.minions
	if r.jid != "" {
		record.JID = r.jid
	}
	_, refused := errors.AsType[invalid](err)
	started := err == nil || r.jid != ""
	switch {
	case started:
		record.Result = audit.Started
		record.Detail = printable.Brief("on "+r.target.expression, maxShown)
	case refused:
		record.Result = audit.Refused
	}
	s.cfg.Audit.Note(record)
}

// jobRun is one run of a saved job.
type jobRun struct {
	*Service
	job      *Job
	name     string
	revision uint64
	caller   runner.Caller
	by       User
	test     bool // only with test=True
	args     []any
	named    *value.Map
	target   reading
	tested   []string // minions of the test run; nil: there was none

	jid     string
	minions int
}

// reading is a target as minions can read it: without nodegroups.
type reading struct{ expression, kind string }

// prepare fills in the fields, and refuses what nobody may run.
func (r *jobRun) prepare(objects *Objects, c call) (err error) {
	if r.test, err = c.flag("test"); err != nil {
		return err
	}
	if r.test && !r.job.obeysTest() {
		return badf("%s would do its work with test=True, too: only these functions obey it: %s", r.job.Function,
			strings.Join(testable, ", "))
	}

	fields := c.more.Clone()
	switch given := c.args["fields"].(type) {
	case nil:
	case *value.Map:
		for k, v := range given.All() {
			if _, twice := fields.GetAny(k); twice {
				return badf("the field %.40s was given twice", value.StrMax(k, 40))
			}
			fields.Set(k, v)
		}
	default:
		return badf("fields is a map of values")
	}
	if r.args, r.named, err = r.job.Fill(fields); err != nil {
		return err
	}

	if r.blacklisted() {
		return badf("publisher_acl_blacklist refuses the function %s, or the user %s", r.job.Function,
			cmp.Or(r.caller.Name, r.by.Name))
	}
	r.target, err = objects.readingOf(r.job)
	return err
}

// blacklisted reports whether publisher_acl_blacklist names the function, or the person who runs the
// job. The schedule and reactions run jobs for nobody: the account of their jobs is often on the list,
// so that people use sudo.
func (r *jobRun) blacklisted() bool {
	functions := acl.Blacklist{Modules: r.cfg.Blacklist.Modules}
	if functions.Refuses("", []string{r.job.Function}) {
		return true
	}
	if r.caller.All && !r.caller.Person {
		return false
	}
	ofDirectory := r.caller.Eauth == "ldap" && r.cfg.Blacklist.Refuses(username.Fold(r.caller.Name), nil)
	return ofDirectory || r.cfg.Blacklist.Refuses(r.caller.Name, nil)
}

// readingOf returns the target of a job.
func (s *Objects) readingOf(j *Job) (reading, error) {
	expression, kind, err := s.targetOf(j)
	if err != nil {
		return reading{}, err
	}
	everyGroup := func(string) bool { return true }
	if compound, named := target.SpellOut(expression, kind, s.Groups(), everyGroup); named {
		return reading{compound, "compound"}, nil
	}
	return reading{expression, kind}, nil
}

// checkUnchanged refuses to go on with a job that somebody has deleted, changed or withdrawn from the
// caller while its minions were asked.
func (r *jobRun) checkUnchanged(ctx context.Context) error {
	objects := r.cfg.Store.Newest(ctx)
	o := objects.Get(KindJob, r.name)
	same := o != nil && o.Job != nil && o.Revision == r.revision && mayRun(o.Job, r.caller)
	if same {
		now, err := objects.readingOf(o.Job)
		same = err == nil && now == r.target
	}
	if !same {
		return badf("the saved job %s, or its target, was changed or deleted while its minions were asked: it was not run; look at it and run it again",
			r.name)
	}
	return nil
}

// load returns the load of the job. After a test run, exactly its minions get the job.
func (r *jobRun) load(test bool) *value.Map {
	arg := slices.Clone(r.args)
	if arg == nil {
		arg = []any{}
	}
	named := r.named.Clone()
	if test {
		named.Set("test", true)
	}
	if named.Len() > 0 {
		named.Set("__kwarg__", true)
		arg = append(arg, named)
	}

	load := value.NewMap(
		"fun", r.job.Function,
		"arg", arg,
		"tgt", r.target.expression,
		"tgt_type", r.target.kind,
		"ret", "",
	)
	if r.tested != nil {
		load.Set("tgt", value.List(r.tested))
		load.Set("tgt_type", "list")
	}
	return load
}

// errNobody means that a job has no minions.
var errNobody = errors.New("the target of the saved job selects no minions: nothing was run")

func (r *jobRun) do(ctx context.Context) (any, error) {
	if !r.job.TestFirst && r.job.Batch == "" {
		return r.startAll(ctx)
	}

	release, err := r.slots.Take(ctx, r.by.account(), r.caller.All && !r.caller.Person)
	if err != nil {
		return nil, err
	}
	defer release()

	if r.job.TestFirst && !r.test {
		if err := r.tryFirst(ctx); err != nil {
			return nil, err
		}
		if err := r.checkUnchanged(ctx); err != nil {
			return nil, err
		}
	}
	if r.job.Batch == "" {
		return r.startAll(ctx)
	}
	return r.startBatch(ctx)
}

// startAll starts the job on all minions. An error with a jid means that the job has started and nobody knows who
// has it: the console finds the jid at the beginning of the text.
func (r *jobRun) startAll(ctx context.Context) (any, error) {
	jid, minions, err := r.cfg.Minions.Start(ctx, r.load(r.test), r.by)
	if err != nil {
		return nil, fmt.Errorf("run the saved job %s: %w", r.name, err)
	}
	r.jid = jid
	r.minions = len(minions)
	switch {
	case jid == "":
		return nil, errNobody
	case len(minions) == 0 && ctx.Err() != nil:
		return nil, fmt.Errorf("job %s has started, and nobody waited for its minions: %w", jid, ctx.Err())
	case len(minions) == 0:
		return nil, fmt.Errorf("job %[1]s has started; look at it before you start it again: its target selects no minions of this master, and no syndic has named any yet; salt-run jobs.lookup_jid %[1]s shows whether one has run it",
			jid)
	}
	return r.result(minions, ""), nil
}

func (r *jobRun) result(minions []string, batch string) *value.Map {
	m := value.NewMap("job", r.name, "jid", r.jid, "function", r.job.Function, "minions", value.List(minions), "test", r.test)
	if batch != "" {
		m.Set("batch", batch)
	}
	return m
}

// mostFailures returns how many of n minions may fail before a run ends.
func (l Limits) mostFailures(n int) int { return int(l.StopAbove * float64(n) / 100) }

// ask starts a job and returns the answers that came within bound. The error is not nil if no minion
// has the job, or if ctx has ended: then answers that are missing say nothing about the minions.
func (r *jobRun) ask(ctx context.Context, load *value.Map, bound time.Duration) (string, runner.Answer, error) {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	jid, answer, err := r.cfg.Minions.Ask(bounded, load, r.by, 0)
	switch {
	case ctx.Err() != nil:
		return jid, answer, ctx.Err()
	case err != nil && (bounded.Err() == nil || len(answer.Expected) == 0):
		return jid, answer, err
	case len(answer.Expected) == 0:
		return jid, answer, errNobody
	}
	return jid, answer, nil
}

// tryFirst runs the job with test=True. It returns an error if too many minions would fail, or do not
// answer.
func (r *jobRun) tryFirst(ctx context.Context) error {
	jid, answer, err := r.ask(ctx, r.load(true), r.job.Timeout)
	if err != nil {
		return fmt.Errorf("run the saved job %s with test=True: %w", r.name, err)
	}

	var failed []string
	for _, id := range answer.Expected {
		if why := failureOf(r.job.Function, answer.Returns[id]); why != "" {
			failed = append(failed, id+": "+why)
		}
	}
	if len(failed) <= r.job.mostFailures(len(answer.Expected)) {
		r.tested = answer.Expected
		return nil
	}
	shown := failed[:min(len(failed), 5)]
	return fmt.Errorf("the saved job %s was not run: with test=True %d of %d minions would fail (job %s): %s", r.name,
		len(failed), len(answer.Expected), jid, strings.Join(shown, "; "))
}

// failureOf returns why the return of a minion counts as failed, or "". ret may be nil: the minion has
// not answered.
func failureOf(function string, ret *value.Map) string {
	if ret == nil {
		return "no answer"
	}
	code, _ := ret.Int("retcode")
	success := true
	if v, ok := ret.Get("success"); ok {
		success = v == true
	}
	sum := summary.Of(function, ret.Value("return"), int(code), success)
	switch {
	case sum.Failed > 0 && len(sum.FailedStates) > 0:
		return fmt.Sprintf("state %.80s", sum.FailedStates[0].ID)
	case sum.Result == summary.Failed || sum.Result == summary.Error || code > 0:
		return "an error"
	}
	return ""
}

// pingWithin bounds the ping before a batch: a minion that has not answered then counts as one that
// does not answer, although it says that it still works on the ping.
const pingWithin = 2 * time.Minute

// startBatch pings the minions and starts the job on the first of those that answer. The others count
// as failed.
func (r *jobRun) startBatch(ctx context.Context) (any, error) {
	ping := r.load(false)
	ping.Set("fun", "test.ping")
	ping.Set("arg", []any{})
	_, answer, err := r.ask(ctx, ping, pingWithin)
	if err != nil {
		return nil, fmt.Errorf("find the minions of the saved job %s that answer: %w", r.name, err)
	}
	if err := r.checkUnchanged(ctx); err != nil {
		return nil, err
	}

	var up, down []string
	for _, id := range answer.Expected {
		if answer.Returns[id] != nil {
			up = append(up, id)
		} else {
			down = append(down, id)
		}
	}
	most := r.job.mostFailures(len(answer.Expected))
	if len(up) == 0 || r.job.Stops && len(down) > most {
		return nil, fmt.Errorf("the saved job %s was not run: %d of %d minions do not answer, such as %s", r.name, len(down),
			len(answer.Expected), down[0])
	}

	slices.Sort(up)
	state := batch.New(up, batchSize(r.job.Batch, len(up)))
	state.Limited, state.MostFailures = r.job.Stops, most
	for _, id := range down {
		state.Failed[id] = "no answer to a ping"
	}
	load := r.load(r.test)
	spec := batch.Spec{Size: r.job.Batch, Timeout: r.job.Timeout}
	if r.job.Stops { // no Spec says that
		spec = batch.Spec{}
	}
	jid, err := r.cfg.Minions.Batch(ctx, batch.Own{
		User:       r.by.Name,
		Eauth:      r.by.Eauth,
		Fun:        r.job.Function,
		Arg:        load.List("arg"),
		Target:     r.target.expression,
		TargetType: r.target.kind,
		Spec:       spec,
		Timeout:    r.job.Timeout,
	}, r.by, state)
	if err != nil {
		return nil, fmt.Errorf("run the saved job %s: %w", r.name, err)
	}
	r.jid, r.minions = jid, len(up)
	result := r.result(up, r.job.Batch)
	if len(down) > 0 {
		result.Set("down", value.List(down))
	}
	return result, nil
}

// batchSize returns how many of n minions get the job at a time. spec fits batchForm.
func batchSize(spec string, n int) int {
	percent, isPercent := strings.CutSuffix(spec, "%")
	number, err := strconv.Atoi(percent)
	if err != nil {
		return 1
	}
	if isPercent {
		number = number * n / 100
	}
	return max(number, 1)
}
