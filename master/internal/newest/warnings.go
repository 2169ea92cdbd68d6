package newest

import (
	"slices"
	"time"

	"saltern/master/event"
)

const (
	// warnEvery is the least time between two events about the same fault, so that the number of
	// events does not grow with the number of minions. The first event is fired at once.
	warnEvery = 250 * time.Millisecond
	// warnMost bounds the minions in one event. Further ones follow in the next event.
	warnMost = 1000
)

// warnings collects the minions that get old files, so that few events cover many minions.
type warnings struct {
	waiting []*warning // one warning for each fault
	fired   time.Time  // when warnings were last fired; zero: never
	timed   bool       // a goroutine will fire the waiting warnings
}

// warning is an event that has not been fired yet.
type warning struct {
	old     *Old // the oldest files that one of the minions gets
	minions []any
	fired   chan struct{} // closed when the event was fired
}

// addWarning adds a minion to the warning about its old files. If due is true, the caller must call
// fireWarnings; otherwise a goroutine does. The caller holds mu.
func (s *Service) addWarning(old *Old, minion string) (w *warning, due bool) {
	w = s.warnings.warningFor(old)
	w.minions = append(w.minions, minion)
	if s.warnings.timed {
		return w, false
	}

	rest := warnEvery - s.cfg.Now().Sub(s.warnings.fired)
	if rest <= 0 || s.ctx.Err() != nil {
		return w, true
	}

	s.warnings.timed = true
	s.work.Go(func() {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		}
		s.fireWarnings()
	})

	return w, false
}

// warningFor returns the waiting warning about a fault, and creates it if need be.
func (ws *warnings) warningFor(old *Old) *warning {
	for _, w := range ws.waiting {
		if w.old.Why != old.Why {
			continue
		}
		if old.AsOf.Before(w.old.AsOf) {
			w.old = old
		}
		return w
	}

	w := &warning{old: old, fired: make(chan struct{})}
	ws.waiting = append(ws.waiting, w)
	return w
}

// fireWarnings fires all waiting warnings.
func (s *Service) fireWarnings() {
	s.mu.Lock()
	waiting := s.warnings.waiting
	s.warnings = warnings{fired: s.cfg.Now()}
	s.mu.Unlock()

	for _, w := range waiting {
		for some := range slices.Chunk(w.minions, warnMost) {
			first, _ := some[0].(string)
			data := s.Data(w.old, first)
			data.Set("minions", some)
			s.cfg.Fire(event.TagOldFiles, data)
		}
		close(w.fired)
	}
}
