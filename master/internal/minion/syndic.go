package minion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
)

// onSyndicReturn stores returns that a lower master has collected. Without order_masters it refuses
// them: then there are no lower masters, and a minion could forge the returns of other minions.
func (s *Service) onSyndicReturn(ctx context.Context, c *request.Call) (any, error) {
	if !s.cfg.Options.OrderMasters {
		s.cfg.Quiet.Warn("returns of a syndic are refused: order_masters is off", "minion", c.ID)
		return nil, nil
	}

	s.cfg.Syndics.Note(c.ID)

	for _, l := range c.Load.List("load") {
		load, _ := l.(*value.Map)
		user, err := s.keepLowerLoad(ctx, c.ID, load.Str("jid"), load.Map("load"))
		if err != nil {
			return nil, err
		}
		ids := load.Map("return").Keys()
		slices.Sort(ids)
		if err := s.syndicReturn(ctx, c, load, ids, user); err != nil {
			return nil, err
		}
	}

	return nil, nil
}

// keepLowerLoad stores the load of a job that was begun below a syndic, and its minions. A syndic
// sends the load with the first returns of the job (salt/minion.py SyndicManager._process_event,
// salt/master.py _syndic_return). The load of a job of this cluster is never replaced; a job that is
// known by a return alone has none. keepLowerLoad returns the user of the job that the cluster knows then, or "".
func (s *Service) keepLowerLoad(ctx context.Context, syndic, jid string, load *value.Map) (user string, err error) {
	if load.Len() == 0 || !jobs.Valid(jid) || !s.cfg.Options.JobCache || s.cfg.Options.ExtJobCache != "" {
		return "", nil
	}

	known, err := s.cfg.Jobs.Load(ctx, jid)
	if errors.Is(err, jobs.ErrBrokenLoad) {
		return "", nil
	}
	if err != nil {
		return "", unanswered(fmt.Errorf("read job %s of syndic %s: %w", jid, syndic, err))
	}
	if _, published := known.Get("tgt"); published {
		return known.Str("user"), nil
	}

	ids := s.lowerMinions(load.Texts("Minions"))
	kept := load.Clone()
	deleteAll(kept, mastersFields)
	deleteAll(kept, notOfLoads)
	kept.Set("jid", jid)
	if !s.quota.chargeReturn(syndic, event.Weight(load)+returnFiles, s.cfg.Now()) {
		s.cfg.Quiet.Error("a job below a syndic is not kept: it is over saltern_job_cache_quota", "syndic", syndic, "jid", jid)
		return "", nil
	}

	err = s.cfg.Jobs.SaveLoad(ctx, jid, kept, []string{})
	if err == nil && len(ids) > 0 {
		err = s.cfg.Jobs.AddMinions(ctx, jid, ids, syndic)
	}
	if errors.Is(err, jobs.ErrTooLarge) {
		s.cfg.Quiet.Error("a job below a syndic is too large to be kept", "syndic", syndic, "jid", jid, "error", err)
		return "", nil
	}
	s.cfg.Problem(control.JobCacheFault, err)
	if err != nil {
		return "", unanswered(fmt.Errorf("keep job %s of syndic %s: %w", jid, syndic, err))
	}
	return kept.Str("user"), nil
}

// notOfLoads are the fields that the load of a job below a syndic may not have: secrets, marks of
// this master's jobs, and the minions, which are stored beside the load.
var notOfLoads = append([]string{"key", "token", "password", "Minions"}, jobMarks...)

// lowerMinions returns those of the ids that may be minions below a syndic: not the accepted minions
// of this master. It returns at most maxLowerMinions.
func (s *Service) lowerMinions(ids []string) (lower []string) {
	for _, id := range ids {
		entry, known := s.cfg.Keys.Lookup(id)
		if keys.ValidID(id) == nil && (!known || entry.State != keys.Accepted) && len(lower) < maxLowerMinions {
			lower = append(lower, id)
		}
	}
	return lower
}

// syndicReturn stores returns of minions below a syndic. user is the user of the job, or "": with the return the peers
// learn it before the load.
func (s *Service) syndicReturn(ctx context.Context, c *request.Call, load *value.Map, ids []string, user string) error {
	for _, id := range ids {
		if keys.ValidID(id) != nil {
			continue
		}

		if e, known := s.cfg.Keys.Lookup(id); known && e.State == keys.Accepted {
			s.cfg.Quiet.Warn("syndic returns for a minion of this master; refused", "minion", id, "syndic", c.ID)
			continue
		}

		ret := value.NewMap("jid", load.Str("jid"), "id", id, "fun", load.Value("fun"), "fun_args", load.Value("arg"))
		v := load.Map("return").Value(id)
		if d, ok := v.(*value.Map); ok {
			ret.Update(d)
		} else {
			ret.Set("return", v)
		}

		ret.Set("id", id)
		if user != "" && len(user) <= maxUser { // each return repeats it
			ret.Set("user", user)
		}
		if _, err := s.onReturn(ctx, &request.Call{ID: id, Load: ret, From: c.From}); err != nil {
			return err
		}
	}

	return nil
}

// maxUser bounds the user that returns of minions below a syndic repeat, in bytes.
const maxUser = 255

// maxLowerMinions bounds how many minions one event of a syndic adds to a job.
const maxLowerMinions = 20_000

// lowerJob returns the job id in the tag of a syndic's event. By such an event a syndic reports to
// which minions its master has sent the job. The tag is syndic/<id>/<jid> until 3007, and
// syndic/<id>/salt/job/<jid>/new since 3008 (salt/minion.py _process_event).
func lowerJob(syndic, tag string) (jid string, ok bool) {
	jid, ok = strings.CutPrefix(tag, "syndic/"+syndic+"/")
	if !ok {
		return "", false
	}

	if job, found := strings.CutPrefix(jid, "salt/job/"); found {
		jid, ok = strings.CutSuffix(job, "/new")
	}
	return jid, ok && jobs.Valid(jid)
}

// takeLowerMinions handles the event by which a syndic reports the minions of a job, see lowerJob.
// It adds these minions to the expected minions of the job, as in salt/master.py
// _handle_minion_event, and fires the event under the tag that tools of all releases subscribe to.
// It ignores ids with an accepted key on this master, and jobs that this master does not know. It
// returns false if the event is not such a report, or without order_masters.
func (s *Service) takeLowerMinions(ctx context.Context, syndic, tag string, data any) bool {
	fields, _ := data.(*value.Map)
	jid, ok := lowerJob(syndic, tag)
	if _, named := fields.Get("minions"); !ok || !named || !s.cfg.Options.OrderMasters {
		return false
	}

	ids := s.lowerMinions(fields.Texts("minions"))
	load, err := s.cfg.Jobs.Load(ctx, jid)
	switch {
	case err != nil || load == nil:
		s.cfg.Quiet.Info("a syndic names minions of a job that is not known here", "syndic", syndic, "jid", jid)
		return true

	case len(ids) == 0:

	case !s.quota.chargeReturn(syndic, event.Weight(fields)+returnFiles, s.cfg.Now()):
		s.cfg.Quiet.Error("minions below a syndic are not noted: it is over saltern_job_cache_quota", "syndic", syndic,
			"jid", jid)

	default:
		if err := s.cfg.Jobs.AddMinions(ctx, jid, ids, syndic); err != nil {
			s.cfg.Log.Error("minions below a syndic cannot be noted", "syndic", syndic, "jid", jid, "error", err)
		}
	}

	s.fireOf(syndic, "syndic/"+syndic+"/"+jid, value.NewMap("minions", ids))
	return true
}
