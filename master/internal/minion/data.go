package minion

import (
	"context"
	"errors"
	"fmt"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/internal/auth"
	"saltern/master/internal/pillar"
	"saltern/master/internal/queue"
	"saltern/master/internal/request"
	"saltern/master/value"
)

// withNewestFiles returns a method that waits until this node's files are as new as the minion
// needs, and then calls call; see package newest. The request is parked while it waits.
func (s *Service) withNewestFiles(call request.Func) request.Func {
	return func(ctx context.Context, c *request.Call) (any, error) {
		since := s.cfg.Newest.Since(c.ID)
		if s.cfg.Newest.Due(c.ID, since) {
			leave, err := s.cfg.Newest.Enter()
			if err != nil {
				// Send no answer, so that the minion asks again.
				return nil, fmt.Errorf("%w: %w", request.ErrSilence, err)
			}

			err = c.Park(ctx, func(asked context.Context) error {
				defer leave()
				s.cfg.Newest.Serve(asked, c.ID, since)
				return asked.Err()
			})
			if err != nil {
				return nil, fmt.Errorf("%w: %w", request.ErrLeft, err)
			}
		} else {
			// returns at once, because the copy is new enough; the call only counts the minion
			s.cfg.Newest.Serve(ctx, c.ID, since)
		}

		return call(ctx, c)
	}
}

func (s *Service) onFile(cmd string) request.Func {
	if cmd == "_serve_file" {
		return func(ctx context.Context, c *request.Call) (any, error) { return s.cfg.Files.Serve(ctx, c.Load) }
	}
	return func(ctx context.Context, c *request.Call) (any, error) {
		return s.cfg.Files.Call(ctx, cmd, c.ID, c.Load)
	}
}

// onPillar compiles the pillar of the calling minion and stores the minion's grains. Faults of the
// pillar's sources are in the pillar itself (_errors), as minions expect. If the pillar cannot be
// compiled now, onPillar sends no answer: the minion keeps its old pillar and asks again
// (salt/channel/client.py crypted_transfer_decode_dictentry).
func (s *Service) onPillar(ctx context.Context, c *request.Call) (any, error) {
	r, ok := pillarRequest(c.ID, c.Load)
	if !ok {
		return false, nil
	}

	q := s.pillarQuestion(ctx, c, func(load *value.Map) pillar.Request {
		r, _ = pillarRequest(c.ID, load)
		return r
	})

	q.Request = r
	q.Clean = c.Load.Bool("clean_cache")
	data, err := s.cfg.Pillars.Serve(ctx, q)
	if err != nil {
		return nil, unanswered(err)
	}

	if s.cfg.Options.MinionDataCache {
		_, err := s.cfg.Cache.Set(cache.Grains, c.ID, r.Grains)
		s.cfg.Problem(control.MinionCacheFault, err)
		if err != nil {
			s.cfg.Log.Error("grains cannot be kept", "minion", c.ID, "error", err)
		}

		if s.cfg.Options.MinionDataCacheEvents {
			s.cfg.Fire("minion/refresh/"+c.ID, value.NewMap("Minion data cache refresh", c.ID))
		}
	}

	private, err := s.cfg.SignIn.Private(c.ID, auth.Algorithms{Encryption: c.EncAlgo, Signing: c.SigAlgo},
		c.Nonce, data)
	if err != nil {
		return nil, err
	}

	return request.Plain{Payload: private}, nil
}

// pillarQuestion returns the pillar.Question of a call. parse reads the pillar request from the
// load. While the Question waits in a queue, the load is stored packed; afterwards Park calls parse
// once more with the decoded load.
func (s *Service) pillarQuestion(
	ctx context.Context,
	c *request.Call,
	parse func(load *value.Map) pillar.Request,
) pillar.Question {
	return pillar.Question{
		Request: pillar.Request{ID: c.ID},
		Nonce:   c.Nonce,
		Bytes:   c.Size(),
		Park: func(wait func(context.Context) error) (pillar.Request, error) {
			if err := c.Park(ctx, wait); err != nil {
				return pillar.Request{}, err
			}
			return parse(c.Load), nil
		},
	}
}

// unanswered returns an error for which the server sends no answer. err is the reason.
func unanswered(err error) error {
	if errors.Is(err, queue.ErrLeft) {
		return fmt.Errorf("%w: %w", request.ErrLeft, err)
	}
	return fmt.Errorf("%w: %w", request.ErrSilence, err)
}

func (s *Service) onMasterOpts(ctx context.Context, c *request.Call) (any, error) {
	envs, err := s.cfg.Files.Call(ctx, "_file_envs", c.ID, c.Load)
	if err != nil {
		return nil, err
	}

	roots := value.NewMap()
	list, _ := envs.([]any)
	for _, e := range list {
		roots.Set(e, []any{})
	}

	raw := s.cfg.Options.Raw
	out := value.NewMap("file_roots", roots)
	names := []string{"top_file_merging_strategy", "env_order", "default_top"}
	if !value.Truth(c.Load.Value("env_only")) {
		names = append(names, "renderer", "failhard", "state_top", "state_top_saltenv", "nodegroups", "state_auto_order", "state_events",
			"state_aggregate", "jinja_env", "jinja_sls_env", "jinja_lstrip_blocks", "jinja_trim_blocks")
	}

	for _, n := range names {
		out.Set(n, raw.Value(n))
	}

	return out, nil
}

func (s *Service) onMasterTops(ctx context.Context, c *request.Call) (any, error) {
	if s.cfg.Options.MasterTops.Len() == 0 {
		return value.NewMap(), nil
	}
	q := s.pillarQuestion(ctx, c, func(*value.Map) pillar.Request { return pillar.Request{ID: c.ID} })
	tops, err := s.cfg.Pillars.Tops(ctx, q, func() *value.Map { return topsOpts(c) })
	if err != nil {
		return nil, unanswered(err)
	}
	return tops, nil
}

// topsOpts returns the options that a minion sends with a request for master_tops, with the
// authenticated id.
func topsOpts(c *request.Call) *value.Map {
	opts := c.Load.Map("opts").Clone()
	opts.Set("id", c.ID)
	if g := opts.Map("grains"); g != nil {
		g.Set("id", c.ID)
	}
	return opts
}
