package minion

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/client"
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

	if err := s.noteSyndic(c.ID); err != nil {
		s.cfg.Log.Warn("a syndic cannot be noted; tools say that it does not answer", "syndic", c.ID, "error", err)
	}

	for _, l := range c.Load.List("load") {
		load, _ := l.(*value.Map)
		ids := load.Map("return").Keys()
		slices.Sort(ids)
		if err := s.syndicReturn(ctx, c, load, ids); err != nil {
			return nil, err
		}
	}

	return nil, nil
}

// noteSyndic writes the file by which tools, including Salt's, recognise that the minion id belongs
// to a syndic.
func (s *Service) noteSyndic(id string) error {
	folder := filepath.Join(s.cfg.Options.CacheDir, client.SyndicsFolder)
	path := filepath.Join(folder, id)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o600)
}

func (s *Service) syndicReturn(ctx context.Context, c *request.Call, load *value.Map, ids []string) error {
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
		if _, err := s.onReturn(ctx, &request.Call{ID: id, Load: ret, From: c.From}); err != nil {
			return err
		}
	}

	return nil
}

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

	var ids []string
	for _, id := range fields.Texts("minions") {
		entry, known := s.cfg.Keys.Lookup(id)
		if keys.ValidID(id) == nil && (!known || entry.State != keys.Accepted) && len(ids) < maxLowerMinions {
			ids = append(ids, id)
		}
	}

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
