package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/internal/printable"
	"saltern/master/client"
	"saltern/master/output"
	"saltern/master/value"
)

// runBatch runs the job on a few minions at a time, or with --static and without --batch on all at
// once. It shows all returns at the end (salt/cli/batch.py).
func (s *saltCall) runBatch(ctx context.Context, size string) error {
	if err := s.kwargs(ctx); err != nil {
		return err
	}
	req, err := s.chooseSubset(ctx)
	switch {
	case errors.Is(err, client.ErrNoMinions), errors.Is(err, client.ErrNoJob):
		return s.batchOfNobody()
	case err != nil:
		return s.failed(err)
	}

	s.req = req
	s.req.Timeout = time.Duration(max(s.values.Int("timeout"), 1)) * time.Second
	size = cmp.Or(size, "100%")
	q := client.BatchRequest{
		Request:  s.req,
		Size:     size,
		Failhard: s.values.Bool("failhard"),
		Wait:     secondsOf(s.values.Float("batch_wait")),
		Gather:   s.cfg.GatherJobTimeout,
		JID:      newJID(time.Now()),
	}

	if s.values.Bool("async") && s.values.Str("batch") != "" {
		return s.handOver(ctx, q)
	}

	all := value.NewMap()
	o := s.returnOptions()
	var worst int64
	out := client.BatchOutput{
		Returned: func(r client.Return) { all.Set(r.ID, r.Ret) },
		TimedOut: func(id string) { all.Set(id, value.NewMap()) },
	}

	if !s.static {
		out = s.batchOutput(o, &worst)
	}

	n, err := s.c.Batch(ctx, q, out)
	switch {
	case errors.Is(err, context.Canceled):
		return s.interrupted(q.JID)
	case err != nil:
		return s.failed(err)
	case n == 0:
		return s.batchOfNobody()
	case s.static:
		if err := s.display(all, "", 0, o); err != nil {
			return err
		}
		if all.Len() == 0 {
			return s.nothing()
		}
		return nil
	}

	return exit(int(worst))
}

// batchOfNobody shows that no minion gets the job.
func (s *saltCall) batchOfNobody() error {
	s.println(client.ErrNoMinions.Error())
	if s.static {
		return s.showEmpty()
	}
	s.println("No minions matched the target.")
	return s.nothing()
}

// secondsOf returns a duration of n seconds: at least 0, at most a year.
func secondsOf(n float64) time.Duration {
	const year = 365 * 24 * time.Hour
	switch {
	case !(n > 0):
		return 0
	case n > year.Seconds():
		return year
	}
	return time.Duration(n * float64(time.Second))
}

// handOver passes a batch to the master, which runs it after this tool has ended (salt/cli/salt.py
// _run_batch_async).
func (s *saltCall) handOver(ctx context.Context, q client.BatchRequest) error {
	jid, n, err := s.c.HandOver(ctx, q,
		func(id string) { s.println("Minion " + printable.Line(id) + " did not respond. No job will be sent.") })
	switch {
	case err != nil:
		return s.failed(err)
	case n == 0:
		s.println("No minions matched the target.")
		return exit(0)
	}
	s.println("Executed batch command with job ID: " + jid)
	return nil
}

// batchOutput returns the callbacks that print the progress of a batch (salt/utils/batch_output.py
// CLIOutput).
func (s *saltCall) batchOutput(o output.Options, worst *int64) client.BatchOutput {
	return client.BatchOutput{
		Down: func(id string) { s.println("Minion " + printable.Line(id) + " did not respond. No job will be sent.") },
		Start: func(ids []string) {
			s.println("\nExecuting run on " + value.Repr(value.List(ids)) + "\n")
		},
		Returned: func(r client.Return) {
			*worst = max(*worst, r.Code())
			m := value.NewMap()
			if r.HasRetcode {
				m.Set("retcode", r.Retcode)
			}

			m.Set("jid", r.JID)
			m.Set(r.ID, r.Ret)
			if err := s.display(m, r.Out, 0, o); err != nil {
				s.log.Error("cannot show a return", "minion", r.ID, "error", err)
			}

			if s.values.Bool("failhard") && r.Code() > 0 {
				s.log.Error("Batch run stopped due to failhard")
			}
		},
	}
}

// newJID returns the job id for a time, in UTC (salt/utils/jid.py gen_jid).
func newJID(t time.Time) string {
	t = t.UTC()
	return t.Format("20060102150405") + fmt.Sprintf("%06d", t.Nanosecond()/1000)
}
