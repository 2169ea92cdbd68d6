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
	// warnMost bounds the number of minions in one event. Further minions are in the next event.
	warnMost = 1000
)

// warnings collects the minions that get old files, so that one event covers many minions.
type warnings struct {
	waiting []*warning // the waiting warnings, one for each fault
	fired   time.Time  // when warnings were last fired; zero: never
	timed   bool       // a goroutine will fire the waiting warnings
}

// warning is an event that was not fired yet.
type warning struct {
	// old describes the oldest files that any of the minions gets.
	old     *Old
	minions []any
	fired   chan struct{} // closed when the event is fired
}

// addWarning adds a minion to the warning about the files in outdated. If due is true, the caller
// must call fireWarnings; otherwise a goroutine will call it. The caller holds mu.
func (s *Service) addWarning(outdated *Old, minion string) (w *warning, due bool) {
	w = s.warnings.warningFor(outdated)
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

// warningFor returns the waiting warning for a fault. If there is none, it creates one.
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
