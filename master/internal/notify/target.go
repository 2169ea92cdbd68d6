package notify

import (
	"log/slog"
	"sync"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// targetFor is how long the minions that a target selects are remembered.
const targetFor = time.Minute

// targets remember which minions the targets of rules select.
type targets struct {
	near Surroundings
	log  *slog.Logger

	mu    sync.Mutex
	known map[string]selection // by the name of the rule
}

type selection struct {
	at      time.Time
	minions map[string]bool
	failed  bool
}

// refresh asks which minions the target of a rule selects, when the last answer is old. It may take
// long. A target that cannot be read selects all, so that nobody misses a message because of it.
func (t *targets) refresh(rule *rules.Rule, now time.Time) {
	if rule.Target == nil {
		return
	}

	t.mu.Lock()
	before, known := t.known[rule.Name]
	t.mu.Unlock()
	if known && now.Sub(before.at) < targetFor {
		return
	}

	list, err := t.near.Select(rule.Target, rule.TargetType)
	if err != nil && !before.failed {
		t.log.Error("the target of a rule for notifications cannot be read and selects all minions",
			"rule", rule.Name, "error", err)
	}
	next := selection{at: now, minions: make(map[string]bool, len(list)), failed: err != nil}
	for _, id := range list {
		next.minions[id] = true
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[rule.Name] = next
}

// selects reports whether a minion is in the target of a rule, as refresh has learned last.
func (t *targets) selects(rule *rules.Rule, minion string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, known := t.known[rule.Name]
	return !known || s.failed || s.minions[minion]
}

// silenced implements judge.
func (s *Service) silenced(rule string, a *alert.Alert, now time.Time) bool {
	return s.silences.covers(rule, a, now)
}

// selects implements judge.
func (s *Service) selects(rule *rules.Rule, minion string) bool {
	return s.targets.selects(rule, minion)
}
