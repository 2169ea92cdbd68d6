package minion

import (
	"context"

	"saltern/master/cache"
	"saltern/master/internal/request"
)

func (s *Service) onMine(_ context.Context, c *request.Call) (any, error) {
	data := c.Load.Map("data")
	if data == nil {
		return false, nil
	}
	if s.cfg.Options.MinionDataCache || s.cfg.Options.EnforceMineCache {
		if err := s.cfg.Cache.Update(cache.Mine, c.ID, data, c.Load.Bool("clear")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (s *Service) onMineDelete(_ context.Context, c *request.Call) (any, error) {
	if s.cfg.Options.MinionDataCache || s.cfg.Options.EnforceMineCache {
		if _, ok := s.cfg.Cache.Get(cache.Mine, c.ID); !ok {
			return false, nil
		}
		if err := s.cfg.Cache.Remove(cache.Mine, c.ID, c.Load.Str("fun")); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func (s *Service) onMineFlush(_ context.Context, c *request.Call) (any, error) {
	if err := s.cfg.Cache.Flush(cache.Mine, c.ID); err != nil {
		return nil, err
	}
	return true, nil
}
