package minion

import (
	"context"
	"errors"
	"fmt"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/request"
	"saltern/master/jobs"
)

// onReturn stores the return of a job (salt/master.py _return, salt/utils/job.py store_job). It
// answers the minion when the return is durable. While the return cannot be made durable, it sends
// no answer, so that the minion repeats the return. It does answer a return that it would refuse
// again (because it is too large, or was not asked for), and a return that another cache stores
// (job_cache off, ext_job_cache).
func (s *Service) onReturn(ctx context.Context, c *request.Call) (any, error) {
	load := c.Load
	if err := s.checkReturnSignature(c); err != nil {
		return false, nil
	}

	id, ok := s.returnerOf(c)
	if !ok {
		return nil, nil // answer, because a repeated return would be refused again
	}

	load.Set("id", id)
	deleteAll(load, mastersFields)
	deleteAll(load, jobMarks)
	if _, ok := load.Get("return"); !ok {
		return nil, nil
	}

	jid := load.Str("jid")
	adopted := jid == "req"
	switch {
	case adopted:
		var err error
		if jid, err = s.adoptJob(ctx, c, id); err != nil {
			s.cfg.Problem(control.JobCacheFault, err)
			return nil, unanswered(fmt.Errorf("make a job for a return: %w", err))
		}
	case !jobs.Valid(jid):
		s.cfg.Quiet.Info("return without a valid job id", "minion", c.ID, "jid", jid)
		return nil, nil
	case !s.cfg.Launch.MayReturn(ctx, jid, id):
		return nil, nil // answer, because a repeated return would be refused again
	}

	s.returns.Add(1)
	isRefused, err := s.keepReturn(ctx, c, adopted)
	if err != nil {
		return nil, err
	}

	if isRefused {
		load = load.Clone() // the job cache has the former
		load.Set(event.RefusedField, true)
	} else {
		s.cfg.Notify.Returned(load)
	}
	s.fireOf(id, event.Tag("job", jid, "ret", id), load)
	s.cfg.Bus.FireStateErrors(load)
	return nil, nil
}

// keepReturn stores a return, unless another cache does. isRefused is true for a second return of the minion for the
// job with other content, which is not kept.
func (s *Service) keepReturn(ctx context.Context, c *request.Call, adopted bool) (isRefused bool, err error) {
	if !s.cfg.Options.JobCache || s.cfg.Options.ExtJobCache != "" {
		return false, nil
	}

	kept := s.keptReturn(c.ID, s.withRevision(ctx, c, adopted))
	_, err = s.cfg.Jobs.SaveReturn(ctx, kept)
	switch {
	case errors.Is(err, jobs.ErrOtherReturn): // answer, because a repeated return would be refused again
		s.cfg.Quiet.Warn("a second return of a minion for a job is not kept", "minion", kept.ID, "jid", kept.JID, "error", err)
		return kept.Data.Value("return") != OverQuota, nil // without its value it may be the same
	case errors.Is(err, jobs.ErrTooLarge):
		s.cfg.Log.Error("return is too large to be kept", "minion", c.ID, "jid", kept.JID, "error", err)
	case err != nil:
		s.cfg.Problem(control.JobCacheFault, err)
		return false, unanswered(fmt.Errorf("keep the return of %s for job %s: %w", c.ID, kept.JID, err))
	default:
		s.cfg.Problem(control.JobCacheFault, nil)
	}
	return false, nil
}

// jobMarks are fields that this master adds to loads and returns of jobs. A return may become the load of its job.
var jobMarks = append(jobs.OwnFields(), event.EauthField, event.RefusedField)

// returnerOf returns the id for which a minion returns: its own, or that of one of its resources
// (salt/minion.py _thread_return). It returns false for a resource that is not the minion's.
func (s *Service) returnerOf(c *request.Call) (id string, ok bool) {
	named, ofResource := c.Load.Get("resource_id")
	if !ofResource {
		return c.ID, true
	}

	id, _ = named.(string)
	if s.cfg.Resources.Manager(id) == c.ID {
		return id, true
	}

	s.cfg.Quiet.Warn("return refused: the minion does not manage this resource", "minion", c.ID,
		"resource", fmt.Sprintf("%.100q", id), "jid", c.Load.Str("jid"))
	return "", false
}

// adoptJob creates a job for a return of id that belongs to no job. salt-call and scheduled functions
// send such returns, with the job id "req".
func (s *Service) adoptJob(ctx context.Context, c *request.Call, id string) (string, error) {
	load := c.Load
	jid, err := s.cfg.Jobs.Prep(ctx, "", load.Bool("nocache"))
	if err != nil {
		return "", err
	}

	if _, ok := load.Get("arg"); !ok {
		arg, _ := load.Get("fun_args")
		if arg == nil {
			arg = []any{}
		}
		load.Set("arg", arg)
	}

	load.Set("tgt_type", "glob")
	load.Set("tgt", id)
	load.Set("jid", jid)
	return jid, s.cfg.Jobs.SaveLoad(ctx, jid, load.Clone(), []string{id})
}

var errSignature = errors.New("signature of a return is missing or wrong")

// checkReturnSignature verifies the signature of a return from a minion with minion_sign_messages.
// It uses the algorithm named in the envelope. (3008.3 uses the algorithm of the master's
// configuration, and therefore loses the return.)
func (s *Service) checkReturnSignature(c *request.Call) error {
	sig, signed := c.Load.Bytes("sig")
	if !signed {
		if s.cfg.Options.RequireMinionSignMessages {
			s.cfg.Quiet.Error("return without a signature, which require_minion_sign_messages demands", "minion", c.ID)
			return errSignature
		}
		return nil
	}

	load := c.Load.Clone()
	load.Delete("sig")
	err := s.cfg.SignIn.VerifyLoad(c.ID, auth.Algorithms{Signing: c.SigAlgo}, load, sig)
	if err == nil {
		return nil
	}

	s.cfg.Quiet.Error("signature of a return is wrong", "minion", c.ID, "dropped",
		s.cfg.Options.DropMessagesSignatureFail, "error", err)
	if s.cfg.Options.DropMessagesSignatureFail {
		return errSignature
	}

	return nil
}
