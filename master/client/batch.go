package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"saltern/master/event"
	"saltern/master/internal/batch"
	"saltern/master/value"
)

// BatchRequest is a job that runs on only a part of its minions at a time.
type BatchRequest struct {
	Request
	Size     string        // number of minions at a time, or a percentage
	Wait     time.Duration // how long a minion occupies its slot of the batch after its return
	Failhard bool          // stop the batch after the first failed return
	Gather   time.Duration // gather_job_timeout: how long to wait for answers about a running job
	JID      string        // job id, the same in all parts
}

// BatchOutput receives the progress of a batch: its functions are called in order. Each of them may
// be nil.
type BatchOutput struct {
	Down     func(id string)    // called with each minion that did not answer the first ping
	Start    func(ids []string) // called with the minions of each part that was published
	Returned func(r Return)
	TimedOut func(id string) // called with each minion that did not return in time
}

// Ping pings the minions of a target. It returns the sorted minions that answer test.ping (up), and
// those that do not (down).
func (c *Client) Ping(ctx context.Context, r Request) (up, down []string, err error) {
	r.Fun = "test.ping"
	r.Arg = []any{}
	r.Return = ""
	var expected []string
	err = c.Run(ctx, r, func(j Job) { expected = j.Minions }, func(ret Return) bool {
		if !ret.Missing {
			up = append(up, ret.ID)
		}
		return true
	})
	if err == ErrNoMinions || err == ErrNoJob {
		return nil, nil, nil
	}

	slices.Sort(up)
	for _, id := range expected {
		if !slices.Contains(up, id) && !c.isSyndic(id) {
			down = append(down, id)
		}
	}

	slices.Sort(down)
	return up, down, err
}

// Batch pings the target and runs the job on the minions that answer, as many at a time as Size
// allows. It returns the number of these minions. The next minion starts when one has returned, or
// has reported that it no longer runs the job.
func (c *Client) Batch(ctx context.Context, q BatchRequest, output BatchOutput) (minions int, err error) {
	b, up, down, err := c.newBatch(ctx, q)
	if err != nil || len(up) == 0 {
		return len(up), err
	}

	r := batchRun{
		client:  c,
		request: q,
		state:   b,
		all:     up,
		output:  output,
		created: c.cfg.Now(),
	}

	r.fireProgress(ctx, "new")
	for _, id := range down {
		if output.Down != nil {
			output.Down(id)
		}
	}

	err = r.runParts(ctx)
	end := "complete"
	if b.Halted != "" {
		end = "halted"
	}

	r.fireProgress(context.WithoutCancel(ctx), end)
	return len(up), err
}

// HandOver starts a batch that the master drives, and returns its job id and the number of its minions when the first
// of them have the job. It requires the rights of [Client.Fire]. It calls down for each minion that did not answer
// the ping. While the master is busy with other batches that begin, HandOver tries again for a minute. A minion that
// takes longer than [batch.LongestWait] counts as late, whatever the times in q.
func (c *Client) HandOver(ctx context.Context, q BatchRequest, down func(id string)) (jid string, minions int, err error) {
	ours, err := c.isOurs(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("hand the batch to the master: %w", err)
	}
	_, isOneFunction := q.Fun.(string)
	if !ours || !isOneFunction {
		return c.handOverRest(ctx, q, down)
	}

	if _, err := batchSize(q.Size, 1); err != nil {
		return "", 0, err
	}
	r := q.Request
	r.JID = ""
	r.Kwargs = batch.JobFieldsOf(q.Kwargs)
	for _, name := range batch.CallerFields() {
		if v, given := q.Kwargs.Get(name); given {
			r.Kwargs.Set(name, v)
		}
	}
	job, err := c.startInTurn(ctx, r, batch.Spec{
		Size:       validSize(q.Size),
		Wait:       q.Wait,
		Failhard:   q.Failhard,
		Timeout:    min(min(q.Timeout, batch.LongestWait)+min(q.Gather, batch.LongestWait), batch.LongestWait),
		LateGoesOn: true,
		Ping:       min(q.Timeout, batch.LongestWait),
	})
	if err == ErrNoMinions || err == ErrNoJob {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}

	for _, id := range job.Down {
		down(id)
	}
	return job.JID, len(job.Minions), nil
}

const (
	tryBatchFor   = time.Minute // while the master is busy
	tryBatchEvery = 2 * time.Second
)

// startInTurn starts a batch as StartBatch does, and tries again while the master is busy.
func (c *Client) startInTurn(ctx context.Context, r Request, spec batch.Spec) (Job, error) {
	until := time.Now().Add(tryBatchFor)
	for {
		job, err := c.StartBatch(ctx, r, spec)
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Kind != Busy || time.Now().After(until) {
			return job, err
		}
		select {
		case <-time.After(tryBatchEvery):
		case <-ctx.Done():
			return Job{}, fmt.Errorf("wait until the master is not busy: %w", ctx.Err())
		}
	}
}

// isOurs reports whether the master is one of Saltern's, which knows [batch.Command] and shows no key in an event.
func (c *Client) isOurs(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, fireFor)
	defer cancel()
	return c.sender.Ready(ctx)
}

// handOverRest starts a batch that the master drives: it publishes the first part, and passes the rest to the
// master. It is for a job of several functions, which [batch.Command] does not take, and for Salt's own master
// (salt/cli/salt.py _run_batch_async).
func (c *Client) handOverRest(ctx context.Context, q BatchRequest, down func(id string)) (jid string, minions int, err error) {
	b, up, absent, err := c.newBatch(ctx, q)
	if err != nil || len(up) == 0 {
		return "", len(up), err
	}

	for _, id := range absent {
		down(id)
	}

	now := c.cfg.Now()
	user := c.cfg.User
	if name := q.Kwargs.Str("username"); name != "" {
		user = name
	}

	ids, _ := b.Next(now)
	fields := batch.JobFieldsOf(q.Kwargs)
	expected := payload("master", b, up, q, user, now, now)
	expected.Set(event.WithheldField, fields)
	key, err := c.mayHandOver(ctx, expected) // ask before any minion has the job
	if err != nil {
		return "", len(up), fmt.Errorf("hand the batch to the master: %w", err)
	}

	job, err := c.Publish(ctx, q.partFor(ids))
	switch err {
	case nil:
	case ErrNoMinions, ErrNoJob: // somebody has removed their keys since the ping
	default:
		return "", len(up), err
	}

	for _, id := range ids {
		if !slices.Contains(job.Minions, id) && !c.cfg.LowerMasters {
			b.TimedOut(id, now)
		}
	}

	data := payload("master", b, up, q, user, now, now)
	if key != "" {
		data.Set(event.KeyField, key)
		data.Set(event.WithheldField, fields)
	}

	if err := c.Fire(ctx, "salt/batch/"+q.JID+"/new", data); err != nil {
		return "", len(up), fmt.Errorf("hand the batch to the master: %w; only the first %d minions have the job %s",
			err, len(ids), q.JID)
	}

	return q.JID, len(up), nil
}

// StartBatch starts a job that the master sends to a part of its minions at a time, with the rights
// that [Client.Publish] takes. It returns when the first minions have the job. The minions of the
// answer are those that have answered a ping.
func (c *Client) StartBatch(ctx context.Context, r Request, spec batch.Spec) (Job, error) {
	return c.publish(ctx, r, batchPingWithin, batch.Command, spec.Map())
}

// batchPingWithin is a third of the time that the master may take to start a batch.
const batchPingWithin = 40 * time.Second

// mayHandOver returns the key with which the master accepts a batch from this client, or an error
// with the reason why the master would refuse the batch. A Salt master needs no key and would show
// a key to all readers of events, so mayHandOver returns "" for a Salt master.
func (c *Client) mayHandOver(ctx context.Context, data *value.Map) (key string, err error) {
	ours, err := c.isOurs(ctx)
	if err != nil {
		return "", err
	}
	if !event.Fits(data) {
		return "", errors.New("its state is too large for an event; run it without --async, or on fewer minions")
	}
	if !ours {
		return "", nil
	}

	key, err = ReadKey(c.cfg.CacheDir, c.cfg.User, c.cfg.MasterUser)
	if err != nil {
		return "", fmt.Errorf("read the key that proves it: %w", err)
	}

	return key, nil
}

// newBatch pings the target and returns the state of a batch of the minions that answer. It also
// returns the sorted minions that answered (up) and those that did not (down).
func (c *Client) newBatch(ctx context.Context, q BatchRequest) (b *batch.State, up, down []string, err error) {
	ping := q.Request
	ping.Kwargs = batch.WithoutJobFields(q.Kwargs)
	ping.Kwargs.Set("gather_job_timeout", int64(q.Gather/time.Second))
	up, down, err = c.Ping(ctx, ping)
	if err != nil || len(up) == 0 {
		return nil, nil, nil, err
	}

	size, err := batchSize(q.Size, len(up))
	if err != nil {
		return nil, up, down, err
	}

	b = batch.New(up, size)
	b.Wait, b.Failhard = q.Wait, q.Failhard
	return b, up, down, nil
}

// partFor returns the job for some of the minions of the batch.
func (q BatchRequest) partFor(ids []string) Request {
	req := q.Request
	req.Target = value.List(ids)
	req.TargetType = "list"
	req.JID = q.JID
	req.Kwargs = req.Kwargs.Clone()
	req.Kwargs.Delete("delimiter") // of the batch's target
	req.Kwargs.Set("raw", false)
	req.Kwargs.Set("gather_job_timeout", int64(q.Gather/time.Second))
	return req
}

type batchRun struct {
	client      *Client
	request     BatchRequest
	state       *batch.State
	output      BatchOutput
	all         []string
	created     time.Time
	parts       []*watch
	heldReturns []Return // returns to report after the next part is published, as Salt does
	busRefuses  bool     // the master's bus accepts no events from this client
}

func (r *batchRun) runParts(ctx context.Context) error {
	defer r.reportHeld()
	for !r.state.Over() {
		ids, opens := r.state.Next(r.client.cfg.Now())
		if len(ids) > 0 {
			if err := r.publish(ctx, ids); err != nil {
				return err
			}
			r.fireProgress(ctx, "progress")
		}

		r.reportHeld()
		before := r.parts
		parts, wake, err := r.client.advance(ctx, r.parts, r.request.Request)
		if err != nil {
			return err
		}

		r.parts = parts
		if r.releaseEnded(ctx, before) || r.state.Over() {
			continue
		}

		if wake.IsZero() || !opens.IsZero() && opens.Before(wake) {
			wake = opens
		}

		if !r.awaitReturns(ctx, wake) && r.state.Halted == "" {
			return ctx.Err()
		}
	}

	return nil
}

func (r *batchRun) publish(ctx context.Context, ids []string) error {
	if r.output.Start != nil {
		r.output.Start(ids)
	}

	req := r.request.partFor(ids)
	if err := r.client.listen(ctx); err != nil {
		return err
	}

	job, err := r.client.Publish(ctx, req)
	now := r.client.cfg.Now()
	switch err {
	case nil:
	case ErrNoMinions, ErrNoJob: // somebody has removed their keys since the ping
		for _, id := range ids {
			r.state.TimedOut(id, now)
		}
		return nil
	default:
		return err
	}

	if r.client.cfg.LowerMasters {
		job.Minions = ids // without a list from the master, expect all of them: they have answered the ping
	}

	w := newWatch(job.JID, job.Minions, r.client.timeout(req), r.request.Gather, now)
	w.strict = true
	r.parts = append(r.parts, w)
	for _, id := range ids {
		if !slices.Contains(job.Minions, id) {
			r.state.TimedOut(id, now)
		}
	}

	return nil
}

// releaseEnded frees the slots of minions whose parts of the batch no longer wait for returns, and
// reports whether there were any.
func (r *batchRun) releaseEnded(ctx context.Context, before []*watch) bool {
	ctx, cancel := context.WithTimeout(ctx, endedWait)
	defer cancel()
	any := false
	for _, w := range before {
		if !slices.Contains(r.parts, w) {
			any = true
			r.releasePart(ctx, w)
		}
	}

	return any
}

// releasePart frees the slots of the minions of one part. Its minions that have not returned count as lost afterwards,
// so the part has a wait of its own: those before it may have used up theirs.
func (r *batchRun) releasePart(ctx context.Context, w *watch) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	lost := slices.DeleteFunc(slices.Clone(w.targets), func(id string) bool { return w.found[id] })
	r.client.layOut(ctx, w.jid, lost)
	for _, id := range lost {
		if ret, ok := r.client.cached(w.jid, id); ok { // the event of the return was lost
			r.state.Returned(id, ret.Code() > 0, r.client.cfg.Now())
			r.heldReturns = append(r.heldReturns, ret)
			continue
		}

		r.state.TimedOut(id, r.client.cfg.Now())
		if r.output.TimedOut != nil {
			r.output.TimedOut(id)
		}
	}
}

// awaitReturns handles returns that arrive until deadline. It returns false when the batch must
// end.
func (r *batchRun) awaitReturns(ctx context.Context, deadline time.Time) bool {
	ws := append(slices.Clone(r.parts), r.haltWatch())
	return r.client.awaitEvents(ctx, ws, deadline, func(w *watch, ret Return) bool {
		r.state.Returned(ret.ID, ret.Code() > 0, r.client.cfg.Now())
		r.heldReturns = append(r.heldReturns, ret)
		return r.state.Halted == ""
	})
}

func (r *batchRun) reportHeld() {
	for _, ret := range r.heldReturns {
		if r.output.Returned != nil {
			r.output.Returned(ret)
		}
	}
	r.heldReturns = nil
}

// haltWatch returns a watch that handles only the event with which the master's batch.stop halts
// this batch.
func (r *batchRun) haltWatch() *watch {
	return &watch{jid: r.request.JID, onHalt: func(reason string) { r.state.Halted = reason }}
}

// fireProgress reports the progress of the batch to the master by an event. Only batch.status uses
// these events, so the batch continues if an event cannot be fired.
func (r *batchRun) fireProgress(ctx context.Context, verb string) {
	if r.busRefuses {
		return
	}
	p := payload("cli", r.state, r.all, r.request, r.client.cfg.User, r.created, r.client.cfg.Now())
	if err := r.client.Fire(ctx, "salt/batch/"+r.request.JID+"/"+verb, p); err != nil {
		r.busRefuses = true
		r.client.cfg.Log.Debug("batch event not fired", "jid", r.request.JID, "error", err)
	}
}

// Subset returns up to n random minions of the target that have the function
// (salt/client/__init__.py cmd_subset). Programs pass rand.Shuffle as shuffle.
func (c *Client) Subset(
	ctx context.Context,
	r Request,
	n int,
	shuffle func(n int, swap func(i, j int)),
) ([]string, error) {
	fun, _ := r.Fun.(string)
	r.Fun = "sys.list_functions"
	r.Arg = []any{}
	r.Return = ""
	var able []string
	err := c.Run(ctx, r, nil, func(ret Return) bool {
		if !ret.Missing && containsFunction(ret.Ret, fun) {
			able = append(able, ret.ID)
		}
		return true
	})
	if err != nil {
		return nil, err
	}

	shuffle(len(able), func(i, j int) { able[i], able[j] = able[j], able[i] })
	return able[:min(n, len(able))], nil
}

func containsFunction(v any, fun string) bool {
	switch v := v.(type) {
	case []any:
		return slices.Contains(v, any(fun))
	case *value.Map:
		_, ok := v.Get(fun)
		return ok
	}
	return false
}
