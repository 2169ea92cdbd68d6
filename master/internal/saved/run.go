package saved

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/master/history/summary"
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
		s.cfg.Audit.Note(r)
		return nil, badf("there is no saved job %.80q that %s may run: saved.jobs lists them, and may_run of a job names who may run it",
			name, who(c.by))
	}
	if o.Fault != nil {
		return nil, fmt.Errorf("this master cannot read the saved job: %w", o.Fault)
	}

	r := &jobRun{Service: s, job: o.Job, name: name, by: userOf(c.by)}
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

// noteRun records a run.
func (s *Service) noteRun(ctx context.Context, by runner.Caller, r *jobRun, err error) {
	record := s.record(ctx, by, runRunner, r.name).Ended(err)
	record.Function = r.job.Function
	record.Minions = r.minions
	if r.jid != "" {
		record.JID = r.jid
	}
	_, refused := errors.AsType[invalid](err)
	switch {
	case err == nil:
		record.Result = audit.Started
	case refused:
		record.Result = audit.Refused
	}
	s.cfg.Audit.Note(record)
}

// jobRun is one run of a saved job.
type jobRun struct {
	*Service
	job    *Job
	name   string
	by     User
	test   bool // only with test=True
	args   []any
	named  *value.Map
	target string
	kind   string // type of target

	jid     string
	minions int
}

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

	ofDirectory := r.by.Eauth == "ldap" && r.cfg.Blacklist.Refuses(username.Fold(r.by.Name), nil)
	if ofDirectory || r.cfg.Blacklist.Refuses(r.by.Name, []string{r.job.Function}) {
		return badf("publisher_acl_blacklist refuses the function %s, or the user %s", r.job.Function, r.by.Name)
	}
	if r.target, r.kind, err = objects.targetOf(r.job); err != nil {
		return err
	}
	everyGroup := func(string) bool { return true }
	if compound, named := target.SpellOut(r.target, r.kind, objects.Groups(), everyGroup); named {
		r.target, r.kind = compound, "compound" // what minions can read
	}
	return nil
}

// load returns the load of the job for a target.
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
	return value.NewMap(
		"fun", r.job.Function,
		"arg", arg,
		"tgt", r.target,
		"tgt_type", r.kind,
		"ret", "",
	)
}

// errNobody means that a job has no minions.
var errNobody = errors.New("the target of the saved job selects no minions: nothing was run")

// errTesting means that too many runs wait for minions.
var errTesting = fmt.Errorf("%d other runs of saved jobs wait for their minions: nothing was run; try again later", maxTesting)

func (r *jobRun) do(ctx context.Context) (any, error) {
	if !r.job.TestFirst && r.job.Batch == "" {
		return r.startAll(ctx)
	}

	select {
	case r.testing <- struct{}{}:
		defer func() { <-r.testing }()
	default:
		return nil, errTesting
	}
	if r.job.TestFirst && !r.test {
		if err := r.tryFirst(ctx); err != nil {
			return nil, err
		}
	}
	if r.job.Batch == "" {
		return r.startAll(ctx)
	}
	return r.startBatch(ctx)
}

// startAll starts the job on all minions.
func (r *jobRun) startAll(ctx context.Context) (any, error) {
	jid, minions, err := r.cfg.Minions.Start(ctx, r.load(r.test), r.by)
	if err != nil {
		return nil, fmt.Errorf("run the saved job %s: %w", r.name, err)
	}
	if len(minions) == 0 {
		return nil, errNobody
	}
	r.jid, r.minions = jid, len(minions)
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

// tryFirst runs the job with test=True. It returns an error if too many minions would fail, or do not
// answer.
func (r *jobRun) tryFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.job.Timeout)
	defer cancel()
	jid, answer, err := r.cfg.Minions.Ask(ctx, r.load(true), r.by, 0)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("run the saved job %s with test=True: %w", r.name, err)
	}
	if len(answer.Expected) == 0 {
		return errNobody
	}

	var failed []string
	for _, id := range answer.Expected {
		if why := failureOf(r.job.Function, answer.Returns[id]); why != "" {
			failed = append(failed, id+": "+why)
		}
	}
	if len(failed) <= r.job.mostFailures(len(answer.Expected)) {
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

// pingTimeout is how long a batch waits for the answer to its ping.
const pingTimeout = 0 // the master's own

// startBatch pings the minions and starts the job on the first of those that answer. The others count
// as failed.
func (r *jobRun) startBatch(ctx context.Context) (any, error) {
	ping := r.load(false)
	ping.Set("fun", "test.ping")
	ping.Set("arg", []any{})
	_, answer, err := r.cfg.Minions.Ask(ctx, ping, r.by, pingTimeout)
	if err != nil {
		return nil, fmt.Errorf("find the minions of the saved job %s that answer: %w", r.name, err)
	}
	if len(answer.Expected) == 0 {
		return nil, errNobody
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
	jid, err := r.cfg.Minions.Batch(ctx, batch.Own{
		User:       r.by.Name,
		Eauth:      r.by.Eauth,
		Fun:        r.job.Function,
		Arg:        load.List("arg"),
		Target:     load.Value("tgt"),
		TargetType: r.kind,
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
