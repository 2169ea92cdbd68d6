package restapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"saltern/master/client"
	"saltern/master/internal/batch"
	"saltern/master/jobs"
	"saltern/master/value"
)

// job is a command for minions as read from low data.
type job struct {
	client.Request
	full bool // return everything about each return: full_return
}

// jobOf reads a command for minions from low data. A name that is an argument of LocalClient.cmd
// has the meaning of that argument; all other names, except those in exclude, become fields of the
// job (salt/client/__init__.py).
func (s *Server) jobOf(low *value.Map, exclude ...string) (job, error) {
	rest := low.Clone()
	take := func(name string) any {
		v := rest.Value(name)
		rest.Delete(name)
		return v
	}

	j := job{full: value.Truth(take("full_return"))}
	for _, name := range exclude {
		rest.Delete(name)
	}

	for _, name := range []string{"tgt", "fun"} {
		if _, ok := rest.Get(name); !ok {
			return j, invalid("The command has no %s.", name)
		}
	}

	j.Target = take("tgt")
	j.Fun = take("fun")
	j.TargetType = "glob"
	if s, ok := take("tgt_type").(string); ok && s != "" {
		j.TargetType = s
	}

	j.Return, _ = take("ret").(string)
	if v := take("jid"); value.Truth(v) {
		if j.JID = value.StrMax(v, 100); !jobs.Valid(j.JID) {
			return j, invalid("jid must be a job id: 20 digits, the time in UTC to the microsecond.")
		}
	}

	arg, _ := take("arg").([]any)
	kwarg, _ := take("kwarg").(*value.Map)
	j.Arg = condition(arg, kwarg)

	n, _ := numberOf(take("timeout")) // as in Salt, a value that is no number means the default
	gather, _ := numberOf(rest.Value("gather_job_timeout"))
	for name, n := range map[string]float64{"timeout": n, "gather_job_timeout": gather} {
		if err := s.mayWait(name, n); err != nil {
			return j, err
		}
	}

	j.Timeout = seconds(n)
	j.Kwargs = rest
	return j, nil
}

// mayWait returns an error if n, the seconds to wait that the request names, exceeds max_timeout. A
// shorter wait is no substitute: minions that answer later would be reported as silent.
func (s *Server) mayWait(name string, n float64) error {
	if limit := s.opts.MaxTimeout; n > float64(limit) {
		return invalid("%s may be %d seconds at most here (rest_cherrypy: max_timeout): start the job by local_async or runner_async, and look for its end at /jobs or /events.",
			name, limit)
	}
	return nil
}

// invalid returns a refusal with a text about the caller's mistake.
func invalid(format string, args ...any) error {
	return &failure{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// seconds returns a duration of n seconds, between 0 and a day.
func seconds(n float64) time.Duration {
	return time.Duration(min(max(n, 0), maxWait) * float64(time.Second))
}

// condition joins positional and named arguments to one list (salt/utils/args.py condition_input).
func condition(arg []any, kwarg *value.Map) []any {
	out := []any{}
	for _, a := range arg {
		if n, ok := a.(uint64); ok && n >= 1e19 {
			a = value.Str(n) // a number of 20 digits is a job id
		}
		out = append(out, a)
	}
	if kwarg.Len() > 0 {
		m := value.NewMap("__kwarg__", true)
		m.Update(kwarg)
		out = append(out, m)
	}
	return out
}

// refuseBatch returns an error for a command with the field batch. Salt ignores it and runs the command on all
// minions at once.
func refuseBatch(client string, low *value.Map) error {
	if v, ok := low.Get("batch"); !ok || !value.Truth(v) {
		return nil
	}
	return invalid("%s does not obey batch; nothing was run: use local_batch, or local_async with batch.", client)
}

// runLocal runs a command on minions and waits for their returns.
func (s *Server) runLocal(ctx context.Context, in call) (any, error) {
	if err := refuseBatch("local", in.low); err != nil {
		return nil, err
	}
	j, err := s.jobOf(in.low)
	if err != nil {
		return nil, err
	}
	c := s.clientFor(in)
	defer c.Close()
	return gather(ctx, c, j)
}

func gather(ctx context.Context, c *client.Client, j job) (any, error) {
	all := value.NewMap()
	err := c.Run(ctx, j.Request, nil, func(r client.Return) bool {
		all.Set(r.ID, shownReturn(r, j.full))
		return true
	})
	if errors.Is(err, client.ErrNoMinions) || errors.Is(err, client.ErrNoJob) {
		return value.NewMap(), nil
	}
	return all, err
}

// shownReturn returns the value that a minion returned. If full is set, it returns a map with all
// fields of the return.
func shownReturn(r client.Return, full bool) any {
	if !full {
		return r.Ret
	}

	m := value.NewMap("ret", r.Ret)
	if r.Out != "" {
		m.Set("out", r.Out)
	}

	if r.HasRetcode {
		m.Set("retcode", r.Retcode)
	}

	if r.JID != "" && !r.Missing {
		m.Set("jid", r.JID)
	}

	return m
}

// startLocal starts a command on minions and returns the job's id without waiting.
func (s *Server) startLocal(ctx context.Context, in call) (any, error) {
	if _, ok := in.low.Get("batch"); ok {
		return s.startBatch(ctx, in)
	}
	j, err := s.jobOf(in.low, "listen")
	if err != nil {
		return nil, err
	}

	c := s.clientFor(in)
	defer c.Close()
	started, err := c.Publish(ctx, j.Request)
	return jobStarted(started, err)
}

// startBatch starts a command that the master sends to a part of its minions at a time, and returns
// the job's id when the first of them have it. Salt's local_async ignores batch.
func (s *Server) startBatch(ctx context.Context, in call) (any, error) {
	low := in.low
	spec := batch.Spec{Size: value.StrMax(low.Value("batch"), 100)}
	for name, span := range map[string]*time.Duration{"batch_wait": &spec.Wait, "timeout": &spec.Timeout} {
		v, ok := low.Get(name)
		if !ok {
			continue
		}
		var err error
		if *span, err = waitOf(name, v); err != nil {
			return nil, err
		}
	}
	if v, ok := low.Get("failhard"); ok {
		b, isBool := v.(bool)
		if !isBool {
			return nil, invalid("failhard must be true or false.")
		}
		spec.Failhard = b
	}

	j, err := s.jobOf(low, "listen", "batch", "batch_wait", "failhard", "client", "timeout")
	if err != nil {
		return nil, err
	}

	c := s.clientFor(in)
	defer c.Close()
	started, err := c.StartBatch(ctx, j.Request, spec)
	return jobStarted(started, err)
}

// jobStarted returns the answer of local_async.
func jobStarted(started client.Job, err error) (any, error) {
	switch {
	case errors.Is(err, client.ErrNoMinions), errors.Is(err, client.ErrNoJob):
		return value.NewMap(), nil
	case err != nil:
		return nil, err
	}

	return value.NewMap("jid", started.JID, "minions", value.List(started.Minions)), nil
}

// runSubset runs a command on a number of random minions that have its function.
func (s *Server) runSubset(ctx context.Context, in call) (any, error) {
	if err := refuseBatch("local_subset", in.low); err != nil {
		return nil, err
	}
	n := int64(3)
	for _, name := range []string{"subset", "sub"} {
		v, ok := in.low.Get(name)
		if !ok {
			continue
		}
		if n, ok = wholeNumber(v); !ok {
			return nil, &failure{http.StatusBadRequest, "subset must be a number"}
		}
	}

	j, err := s.jobOf(in.low, "subset", "sub", "cli", "progress")
	if err != nil {
		return nil, err
	}

	c := s.clientFor(in)
	defer c.Close()
	ids, err := c.Subset(ctx, j.Request, int(min(max(n, 0), 1<<30)), rand.Shuffle)
	switch {
	case errors.Is(err, client.ErrNoMinions), errors.Is(err, client.ErrNoJob), err == nil && len(ids) == 0:
		return value.NewMap(), nil
	case err != nil:
		return nil, err
	}

	j.Target, j.TargetType = value.List(ids), "list"
	return gather(ctx, c, j)
}

// wholeNumber returns v as an integer, and accepts a text of digits, too. It returns false for any
// other value.
func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// numberOf returns v as a number, and accepts its digits as a text, too. It returns false for any other value.
func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		if math.IsNaN(v) {
			return 0, false
		}
		return v, true
	case string:
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) {
			return 0, false
		}
		return n, true
	}
	return 0, false
}

// waitOf returns the value of the field name, a number of seconds.
func waitOf(name string, v any) (time.Duration, error) {
	n, ok := numberOf(v)
	if !ok || n < 0 || n > maxWait {
		return 0, invalid("%s must be a number of seconds, at most %d.", name, maxWait)
	}
	return seconds(n), nil
}

// heldWaitOf returns the value of the field name, a number of seconds for which the caller's request is held.
func (s *Server) heldWaitOf(name string, v any) (time.Duration, error) {
	n, ok := numberOf(v)
	if !ok || n < 0 {
		return 0, invalid("%s must be a number of seconds, at most %d.", name, s.opts.MaxTimeout)
	}
	return seconds(n), s.mayWait(name, n)
}

// runBatch runs a command on a part of the minions at a time.
func (s *Server) runBatch(ctx context.Context, in call) ([]any, error) {
	if value.Truth(in.low.Value("raw")) {
		return nil, &failure{http.StatusBadRequest,
			"raw is not supported with local_batch; use the returns as they are"}
	}

	size := "10%"
	if v, ok := in.low.Get("batch"); ok {
		size = value.Str(v)
	}

	j, err := s.jobOf(in.low, "batch", "batch_wait", "failhard", "raw", "client")
	if err != nil {
		return nil, err
	}

	if j.JID != "" {
		return nil, invalid("A batch gets its job id from the master: leave out jid.")
	}

	var wait time.Duration
	if v := in.low.Value("batch_wait"); v != nil {
		if wait, err = s.heldWaitOf("batch_wait", v); err != nil {
			return nil, err
		}
	}

	gatherTime := s.master.GatherJobTimeout
	if n, ok := numberOf(in.low.Value("gather_job_timeout")); ok && n > 0 {
		gatherTime = seconds(math.Ceil(n))
	}

	failhard := value.Truth(in.low.Value("failhard"))
	if _, ok := in.low.Get("failhard"); !ok {
		failhard = s.master.Raw.Bool("failhard")
	}

	if j.Timeout == 0 {
		j.Timeout = s.master.Timeout
	}

	out := []any{}
	add := func(id string, v any) { out = append(out, value.NewMap(id, v)) }
	c := s.clientFor(in)
	defer c.Close()

	q := client.BatchRequest{
		Request:  j.Request,
		Size:     size,
		Wait:     wait,
		Failhard: failhard,
		Gather:   gatherTime,
		JID:      newJID(s.now()),
	}

	_, err = c.Batch(ctx, q,
		client.BatchOutput{
			Returned: func(r client.Return) { add(r.ID, shownReturn(r, j.full)) },
			TimedOut: func(id string) { add(id, value.NewMap()) },
		})

	return out, err
}

// newJID returns a job id made of a time in UTC (salt/utils/jid.py gen_jid).
func newJID(t time.Time) string {
	t = t.UTC()
	return t.Format("20060102150405") + fmt.Sprintf("%06d", t.Nanosecond()/1000)
}
