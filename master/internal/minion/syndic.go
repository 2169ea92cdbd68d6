package minion

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"saltern/master/client"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/value"
)

// onSyndicReturn stores returns that a lower master has collected. It refuses them without
// order_masters: then there are no lower masters, and a minion could forge returns of others.
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

// noteSyndic writes the file by which tools, including Salt's, recognise a syndic.
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
