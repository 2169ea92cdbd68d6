package master

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/request"
)

// onReturn takes the return of a job (salt/master.py _return, salt/utils/
// job.py store_job). The minion is answered when the return is durable; when
// it cannot be made durable the minion gets no answer and sends it again.
func (m *Master) onReturn(ctx context.Context, c *request.Call) (any, error) {
	load := c.Load
	if err := m.checkReturnSignature(c); err != nil {
		return false, nil
	}
	// A resource's return would be stored under the name that the minion
	// chose; only the proven id counts.
	load.Delete("resource_id")
	if _, ok := load.Get("return"); !ok {
		return nil, nil
	}
	jid := load.Str("jid")
	switch {
	case jid == "req":
		var err error
		if jid, err = m.adoptJob(ctx, c); err != nil {
			m.problems.set("job cache", err)
			return nil, retryLater(fmt.Errorf("making a job for a return: %w", err))
		}
	case !jobs.Valid(jid):
		m.quiet.Info("return without a valid job id", "minion", c.ID, "jid", jid)
		return nil, nil
	case !m.mayReturn(ctx, jid, c.ID):
		m.unlisted(jid, c.ID)
		return nil, nil // for good: sent again it would be no better
	}
	m.count.returns.Add(1)
	if m.cfg.JobCache && m.cfg.ExtJobCache == "" {
		if _, err := m.jobs.SaveReturn(ctx, m.keptReturn(c.ID, load)); errors.Is(err, jobs.ErrTooLarge) {
			m.log.Error("return is too large to be kept", "minion", c.ID, "jid", jid, "error", err)
		} else if err != nil {
			m.problems.set("job cache", err)
			return nil, retryLater(fmt.Errorf("keeping the return of %s for job %s: %w", c.ID, jid, err))
		} else {
			m.problems.clear("job cache")
		}
	}
	m.fireOf(c.ID, event.Tag("job", jid, "ret", c.ID), load)
	m.bus.FireStateErrors(load)
	return nil, nil
}

// retryLater leaves a request unanswered.
func retryLater(err error) error { return fmt.Errorf("%w: %w", request.ErrSilence, err) }

// adoptJob makes a job for a return that no job of this master caused:
// salt-call and scheduled functions send the job id "req".
func (m *Master) adoptJob(ctx context.Context, c *request.Call) (string, error) {
	load := c.Load
	jid, err := m.jobs.Prep(ctx, "", load.Bool("nocache"))
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
	load.Set("tgt", c.ID)
	load.Set("jid", jid)
	return jid, m.jobs.SaveLoad(ctx, jid, load.Clone(), []string{c.ID})
}

var errSignature = errors.New("signature of a return is missing or wrong")

// checkReturnSignature verifies what a minion with minion_sign_messages
// signed: the load without nonce, tok and sig, packed with bin types in the
// order of sending. The algorithm is that of the envelope; 3008.3 asks its
// own configuration for it and loses the return.
func (m *Master) checkReturnSignature(c *request.Call) error {
	sig, signed := c.Load.Bytes("sig")
	if !signed {
		if m.cfg.RequireMinionSignMessages {
			m.quiet.Error("return without a signature, which require_minion_sign_messages demands", "minion", c.ID)
			return errSignature
		}
		return nil
	}
	load := c.Load.Clone()
	load.Delete("sig")
	packed, err := msgpack.Marshal(load, msgpack.Modern)
	if err == nil {
		err = m.verify(c.ID, c.SigAlgo, packed, sig)
	}
	if err == nil {
		return nil
	}
	m.quiet.Error("signature of a return is wrong", "minion", c.ID, "dropped", m.cfg.DropMessagesSignatureFail, "error", err)
	if m.cfg.DropMessagesSignatureFail {
		return errSignature
	}
	return nil
}

func (m *Master) verify(id, algo string, data, sig []byte) error {
	e, ok := m.keys.Lookup(id)
	if !ok {
		return fmt.Errorf("no key of %s", id)
	}
	pub, err := e.Public()
	if err != nil {
		return err
	}
	if algo == "" {
		algo = "PKCS1v15-SHA1"
	}
	return crypt.Verify(pub, algo, data, sig)
}
