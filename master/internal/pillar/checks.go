package pillar

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/master/internal/queue"
	"saltern/master/value"
)

const (
	defaultCheckEach = 1000
	// checkPatience is how long a check waits until no pillar is being rendered.
	checkPatience = time.Minute
	checkPoll     = time.Second
)

// checks chooses one pillar in so many and makes it once more as Salt does: its files, and what package
// extpillar ran for it (saltern_pillar_check), to find out whether the fast way changes a value. Overflow policy: a
// pillar is not checked, but counted, if it is chosen while another one waits for its check, if
// the renderers are busy for too long, or if a minion waits for a renderer during its check.
type checks struct {
	each    uint64 // 0: check none
	pillars atomic.Uint64
	chosen  chan Request
	checked atomic.Uint64
	skipped atomic.Uint64
}

func newChecks(each int) *checks {
	c := &checks{chosen: make(chan Request, 1)}
	switch {
	case each == 0:
		c.each = defaultCheckEach
	case each > 0:
		c.each = uint64(each)
	}
	return c
}

// offer is called for each pillar that was compiled without errors.
func (c *checks) offer(req Request) {
	if c.each == 0 || c.pillars.Add(1)%c.each != 0 {
		return
	}
	select {
	case c.chosen <- req:
	default:
		c.skipped.Add(1)
	}
}

// RunChecks checks the chosen pillars one after the other, while no minion waits for a renderer,
// until ctx ends.
func (s *Service) RunChecks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case req := <-s.checks.chosen:
			if turn := s.turnForCheck(ctx, req.ID); turn != nil {
				s.check(ctx, req)
				turn.End(nil, errCutShort)
			} else {
				s.checks.skipped.Add(1)
			}
		}
	}
}

// turnForCheck waits until no pillar is being rendered, and returns a turn for a renderer. It
// returns nil if that does not happen in time, or if Python does not run: a check is no reason to
// start it.
func (s *Service) turnForCheck(ctx context.Context, minion string) *queue.Turn[*value.Map] {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	tick := time.NewTicker(checkPoll)
	defer tick.Stop()

	for {
		if renderers := s.cfg.Compiler.cfg.Renderers; renderers == nil || !renderers.Stats().Running {
			return nil
		}

		now := s.renderTurns.Stats()
		if now.Working == 0 && now.Waiting == 0 {
			if turn, ok := s.renderTurns.Try(queue.Question{Minion: minion}); ok {
				return turn
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// check checks one pillar, until a minion waits for a renderer. What has a difference is made as Salt
// does from then on, and what is kept of the minion's pillar is dropped. This also applies to what was
// found before a check ended early; such a check counts as skipped.
func (s *Service) check(ctx context.Context, req Request) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	var watch sync.WaitGroup
	watch.Go(func() { s.stopWhenBusy(ctx, stop) })
	defer func() {
		stop()
		watch.Wait()
	}()

	distrusted := &s.cfg.Compiler.distrusted
	distrusted.dropMissing()
	found, err := s.cfg.Compiler.Check(ctx, req, func() bool { return s.hasGrains(req) })
	if err != nil {
		s.checks.skipped.Add(1)
		s.cfg.Log.Debug("a pillar could not be checked as a whole", "minion", req.ID, "error", err)
	} else {
		s.checks.checked.Add(1)
	}

	for _, path := range found.Files {
		s.cfg.Log.Error("a pillar file gives other values than with Salt's own rendering; it is rendered as Salt does from now on, until it changes (saltern_pillar_check)",
			"path", path, "minion", req.ID)
		if err := distrusted.add(path); err != nil {
			s.cfg.Log.Warn("a pillar file could not be set aside", "path", path, "error", err)
		}
	}

	for _, entry := range found.Entries {
		s.cfg.Log.Error("an ext_pillar gives other values than Salt's own module; Salt's module runs it from now on, until the master restarts (saltern_pillar_check)",
			"ext_pillar", entry.Name, "entry", entry.Number, "minion", req.ID)
		distrusted.addEntry(entry)
	}

	if len(found.Files)+len(found.Entries) > 0 {
		s.Clear(req.ID)
	}
}

// stopWhenBusy calls stop when a minion waits for a renderer. It returns then, or when ctx ends.
func (s *Service) stopWhenBusy(ctx context.Context, stop func()) {
	for pause.For(ctx, checkPoll) == nil {
		if s.renderTurns.Stats().Waiting > 0 {
			stop()
			return
		}
	}
}

// CheckFault returns an error that names the files and entries of ext_pillar that are made as Salt does
// because of a check, or nil.
func (s *Service) CheckFault() error { return s.cfg.Compiler.distrusted.fault() }

// checkStats returns the counters of the checks.
func (s *Service) checkStats() *control.PillarChecks {
	external := s.cfg.Compiler.cfg.External.Stats()
	st := &control.PillarChecks{
		Checked:           s.checks.checked.Load(),
		Skipped:           s.checks.skipped.Load(),
		ExtPillarInGo:     external.InGo,
		ExtPillarInPython: external.InPython,
	}
	if renderers := s.cfg.Compiler.cfg.Renderers; renderers != nil {
		r := renderers.Stats()
		st.YAMLInGo, st.YAMLInPython = r.YAMLInGo, r.YAMLInPython
	}
	return st
}
