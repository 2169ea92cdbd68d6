package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/value"
)

// Batches runs jobs on a part of their minions at a time.
type Batches interface {
	// NewID returns an id for a job.
	NewID() string
	// Begin starts a batch. It returns when the first minions have the job, or when the batch waits for
	// others to end.
	Begin(ctx context.Context, own batch.Own, state *batch.State) error
}

// askWithin bounds how long a batch waits for answers to its ping: less than a request may take.
const askWithin = 90 * time.Second

// onPublishBatch starts a job for a tool on a part of its minions at a time. The caller needs the rights
// that he needs to start the job on all of them at once. Minions that do not answer a ping count as
// failed, and do not get the job. It answers when the first minions have the job; the master goes on
// with the others, also after a restart. A caller who leaves before the batch begins starts nothing.
func (s *Service) onPublishBatch(ctx context.Context, c *request.Call) (any, error) {
	load, o := c.Load, s.originOf(c)
	fun := load.Str("fun")
	if fun == "" {
		return invocation("fun must be one function: a batch has no list of functions"), nil
	}

	caller, refusal := s.admitPublisher(ctx, o, load, []string{fun})
	if refusal != nil {
		return refusal, nil
	}
	spec, err := batch.ReadSpec(load.Map(batch.Field))
	if err != nil {
		return invocation(err.Error()), nil
	}
	if fault := unfitForBatch(load); fault != "" {
		return invocation(fault), nil
	}
	load.Delete(batch.Field)

	record := o.jobRecord(caller, load, []string{fun})
	record.Detail = "in a batch of " + spec.Size
	j, refusal := s.prepare(ctx, caller, load, record)
	if refusal != nil {
		return refusal, nil
	}

	j.Eauth = caller.Eauth
	b := newBatch{
		job:  j,
		spec: spec,
		by:   launch.Behalf{User: j.Load.Str("user"), Eauth: caller.Eauth},
	}
	if !caller.All {
		b.by.Account = limitedCaller(caller, load).Account
	}

	err = s.begin(ctx, &b)
	s.cfg.Audit.Note(published(record, b.jid, len(b.up), err))
	if refusal, refused := errors.AsType[*launch.Refusal](err); refused {
		return (&eauth.Failure{
			Name:    "SaltInvocationError",
			Message: refusal.Text,
			Busy:    refusal.Busy,
		}).Map(), nil
	}
	if err != nil {
		return nil, err
	}
	return value.NewMap("enc", "clear", "load", value.NewMap(
		"jid", b.jid,
		"minions", b.up,
		"down", b.down,
		"missing", j.Missing,
	)), nil
}

// unfitForBatch returns what in a load a batch would not obey, or "".
func unfitForBatch(load *value.Map) string {
	if load.Str("jid") != "" {
		return "a batch gets its job id from the master: leave out jid"
	}

	var unknown []string
	for k := range load.Map("kwargs").All() {
		name := value.Str(k)
		if !slices.Contains(batch.CallerFields(), name) && !slices.Contains(batch.JobFields(), name) {
			unknown = append(unknown, fmt.Sprintf("%.40s", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return "a batch does not obey these fields, leave them out: " + strings.Join(unknown[:min(len(unknown), 5)], ", ")
	}
	return ""
}

// newBatch is a batch that is about to begin.
type newBatch struct {
	job  *launch.Job
	spec batch.Spec
	by   launch.Behalf

	up, down []string // minions that have answered the ping, and those that have not
	jid      string   // "" until it has begun
}

// begin pings the minions of a batch, and begins it with those that answer.
func (s *Service) begin(ctx context.Context, b *newBatch) error {
	release, err := s.slots.Take(ctx, b.by.Account, false)
	if err != nil {
		return &launch.Refusal{Text: err.Error(), Busy: true}
	}
	defer release()

	asked, stop := request.WhileAsked(ctx)
	defer stop()
	if err := s.ping(asked, b); err != nil {
		return err
	}
	if len(b.up)+len(b.down) == 0 {
		return &launch.Refusal{Text: "No minion was sent the ping that precedes a batch: nothing was run. Look at what the target selects"}
	}
	if len(b.up) == 0 {
		return &launch.Refusal{Text: fmt.Sprintf("None of the %d minions answers a ping, such as %.80s: nothing was run",
			len(b.down), b.down[0])}
	}

	size, err := batch.SizeOf(b.spec.Size, len(b.up))
	if err != nil {
		return err
	}
	if err := s.cfg.Launch.RoomForBatch(b.by.Account, b.job.Load, len(b.up), size); err != nil {
		return err
	}
	state := batch.New(b.up, size)
	state.Wait = b.spec.Wait
	state.Failhard = b.spec.Failhard
	for _, id := range b.down {
		state.Failed[id] = "no answer to a ping"
	}

	load := b.job.Load
	own := batch.Own{
		JID:        s.cfg.Batches.NewID(),
		User:       b.by.User,
		Eauth:      b.by.Eauth,
		Account:    b.by.Account,
		Fun:        load.Str("fun"),
		Arg:        load.List("arg"),
		Target:     b.job.Target,
		TargetType: launch.TargetType(load),
		Delimiter:  launch.Delimiter(load),
		Spec:       b.spec,
		Return:     load.Str("ret"),
		Timeout:    b.spec.Timeout,
		Fields:     batch.JobFieldsOf(load.Map("kwargs")),
	}
	err = s.cfg.Batches.Begin(asked, own, state)
	if errors.Is(err, batch.ErrStopped) {
		return &launch.Refusal{Text: err.Error(), Busy: true}
	}
	if err != nil {
		return fmt.Errorf("begin the batch: %w", err)
	}
	b.jid = own.JID
	return nil
}

// ping asks the minions of a batch whether they answer. asked ends when the caller leaves; then ping
// returns an error.
func (s *Service) ping(asked context.Context, b *newBatch) error {
	bounded, cancel := context.WithTimeout(asked, askWithin)
	defer cancel()

	load := b.job.Load.Clone()
	load.Set("fun", "test.ping")
	load.Set("arg", []any{})
	load.Set("ret", "")
	if b.job.Only() { // exactly those on which the caller may run the job
		load.Set("tgt", value.List(b.job.Minions))
		load.Set("tgt_type", "list")
	}
	load.Set("kwargs", batch.WithoutJobFields(load.Map("kwargs")))

	j, err := s.cfg.Launch.NewFor(bounded, load, b.by)
	if err != nil {
		return fmt.Errorf("find the minions of a batch: %w", err)
	}
	answer, err := s.cfg.Launch.Collect(bounded, j, b.spec.Ping, 0)
	switch {
	case asked.Err() != nil:
		return fmt.Errorf("wait for the minions of a batch: %w", context.Cause(asked))
	case err != nil && bounded.Err() == nil:
		return fmt.Errorf("find the minions of a batch that answer: %w", err)
	}

	for _, id := range answer.Expected { // with order_masters, those below syndics are among them
		if answer.Returns[id] != nil {
			b.up = append(b.up, id)
		} else {
			b.down = append(b.down, id)
		}
	}
	slices.Sort(b.up)
	return nil
}
