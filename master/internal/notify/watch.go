package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/presence"
)

// Surroundings is the part of the master that a Service sees and uses.
type Surroundings interface {
	// Accepted returns the ids of the minions with an accepted key.
	Accepted() []string
	// Known reports whether a minion has an accepted key.
	Known(id string) bool
	// IsSyndic reports whether a minion is a syndic, which answers no jobs itself.
	IsSyndic(id string) bool
	// Pending returns the fingerprints of the keys that wait to be accepted, by minion.
	Pending() map[string]string
	// Presence returns what this master knows of connections.
	Presence() *presence.View
	// Problems returns the problems that this node reports.
	Problems(ctx context.Context) ([]alert.Problem, error)
	// Select returns the minions that a target of a type selects.
	Select(target any, targetType string) ([]string, error)
	// Ping sends test.ping to minions.
	Ping(ctx context.Context, minions []string) error
}

const (
	// settleFor is how long a condition is remembered after this node has last seen it. A condition
	// that comes back sooner is still the same.
	settleFor = 5 * time.Minute
	// answerWithin is how long a minion may take to answer a ping. It includes the time until this
	// master learns of an answer that another master got.
	answerWithin = 3 * rules.LookEvery
	maxRaised    = 500 // alerts of one look; further ones follow at the next
	maxPinged    = 1000
	maxToldFile  = 16 << 20
	lookTimeout  = 10 * time.Second
)

// told is a condition of which an alert was recorded here or at another master.
type told struct {
	Kind   rules.Kind `json:"kind"`
	Minion string     `json:"minion,omitempty"`
	After  int64      `json:"after,omitempty"`
	At     time.Time  `json:"at"` // when the condition was last seen
}

// openJob is a job that a minion has not answered.
type openJob struct {
	jid    string
	at     time.Time
	pinged time.Time // zero: not yet
}

// watch looks for conditions that last: minions that are gone or deaf, keys that wait, problems of
// nodes. It raises one alert for each while it lasts. Every master of a cluster watches, so that a
// new owner knows what was raised. Only the owner raises alerts, except those about problems, which
// each node that reports the problem raises.
type watch struct {
	rules rules.Rules
	near  Surroundings
	seen  *sightings
	path  string // file of told
	log   *slog.Logger
	start time.Time

	mu      sync.Mutex
	told    map[string]told // by the key of the alert
	changed bool            // told differs from the file
	jobs    map[string]openJob
	// returned is when minions that are absent returned a job last.
	returned map[string]time.Time

	// Used by look only:
	absent   map[string]*absence // minions that are not known to be connected
	lastLook time.Time
	failed   bool   // the last question for problems got no answer
	pingless bool   // the last ping could not be sent
	unheard  string // peer that does not tell its subscriptions, as the log says
}

// openWatch returns a watch that knows the conditions in the file at path, of which alerts were
// recorded before. After an error it knows none.
func openWatch(all rules.Rules, near Surroundings, path string, now time.Time, log *slog.Logger) (*watch, error) {
	w := &watch{
		rules:  all,
		near:   near,
		seen:   newSightings(),
		path:   path,
		log:    log,
		start:  now,
		told:   map[string]told{},
		jobs:   map[string]openJob{},
		absent: map[string]*absence{},

		returned: map[string]time.Time{},
	}

	content, err := durable.Read(path, maxToldFile)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &w.told)
	}
	if err != nil {
		w.told = map[string]told{}
		return w, fmt.Errorf("read which conditions have been notified: %w", err)
	}

	// A minion that was gone before the restart has been gone all the time.
	for key, t := range w.told {
		if t.Kind == rules.Gone {
			w.absent[t.Minion] = &absence{since: notAfter(t.At, now).Round(0).Add(-time.Duration(t.After) * time.Second)}
		}
		t.At = now
		w.told[key] = t
	}
	return w, nil
}

// notAfter returns at, or now if at is after now.
func notAfter(at, now time.Time) time.Time {
	if at.After(now) {
		return now
	}
	return at
}

// note records that an alert about a condition was recorded.
func (w *watch) note(a *alert.Alert, now time.Time) {
	if !a.Standing() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) < maxEntries {
		w.told[a.Key] = told{Kind: a.Kind, Minion: a.Minion, After: a.After, At: now}
		w.changed = true
	}
}

// jobBegan records that minions were sent a job.
func (w *watch) jobBegan(jid string, minions []string, now time.Time) {
	if !w.rules.Has(rules.Deaf) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range minions {
		if _, waits := w.jobs[id]; !waits {
			w.jobs[id] = openJob{jid: jid, at: now}
		}
	}
}

// answered records that a minion has returned a job.
func (w *watch) answered(minion string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, minion)
	if w.rules.Has(rules.Gone) && len(w.returned) < maxSubscribed {
		w.returned[minion] = now
	}
}

// look returns alerts about the conditions of now that were not told yet. owner reports whether this
// master speaks for the cluster, peers are the other masters that are alive.
func (w *watch) look(ctx context.Context, owner bool, peers []string, now time.Time) (raised []alert.Alert) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()

	var standing []alert.Alert
	if w.rules.Has(rules.Gone) || w.rules.Has(rules.Deaf) {
		accepted := w.near.Accepted()
		v := w.seen.combine(accepted, w.near.Presence(), now)
		standing = append(standing, w.gone(ctx, accepted, v, owner && w.isSettled(peers, now), now)...)
		standing = append(standing, w.deaf(ctx, v, owner, now)...)
	}
	if w.rules.Has(rules.Key) {
		for id, fingerprint := range w.near.Pending() {
			standing = append(standing, alert.NewKey(id, fingerprint, now))
		}
	}
	if w.rules.Has(rules.Node) {
		standing = append(standing, w.problems(ctx, now)...)
	}

	w.mu.Lock()
	for _, a := range standing {
		if t, known := w.told[a.Key]; known {
			t.At = now
			w.told[a.Key] = t
			continue
		}
		mine := owner || a.Kind == rules.Node
		if mine && len(raised) < maxRaised && w.rules.Matches(a.Subject()) {
			raised = append(raised, a)
		}
	}
	for key, t := range w.told {
		if t.At.After(now) { // the clock was ahead
			t.At = now
			w.told[key] = t
		}
		if now.Sub(t.At) > settleFor {
			delete(w.told, key)
			w.changed = true
		}
	}
	w.mu.Unlock()

	return raised
}

// deaf returns the alerts about minions that are connected and do not answer. A minion may be silent
// for long while it works, so the owner first sends test.ping to it, which a minion at work answers.
func (w *watch) deaf(ctx context.Context, v view, owner bool, now time.Time) (all []alert.Alert) {
	absences := w.rules.Absences(rules.Deaf)
	if len(absences) == 0 {
		return nil
	}

	var ping []string
	w.mu.Lock()
	for id, job := range w.jobs {
		if !v.connected[id] || v.heard[id].After(job.at) || w.near.IsSyndic(id) {
			delete(w.jobs, id)
			continue
		}

		silent := now.Sub(job.at)
		if silent >= absences[0] && job.pinged.IsZero() && owner && len(ping) < maxPinged {
			job.pinged = now
			w.jobs[id] = job
			ping = append(ping, id)
		}
		for _, after := range absences {
			if silent >= after && !job.pinged.IsZero() && now.Sub(job.pinged) >= answerWithin {
				all = append(all, alert.Deaf(id, job.jid, job.at, now, after))
			}
		}
	}
	w.mu.Unlock()

	if !w.ping(ctx, ping) {
		w.mu.Lock()
		for _, id := range ping {
			if job, waits := w.jobs[id]; waits {
				job.pinged = time.Time{} // the next look tries again
				w.jobs[id] = job
			}
		}
		w.mu.Unlock()
	}
	return all
}

// ping sends test.ping to minions. It reports whether it was sent.
func (w *watch) ping(ctx context.Context, minions []string) bool {
	if len(minions) == 0 {
		return true
	}
	if err := w.near.Ping(ctx, minions); err != nil {
		if !w.pingless {
			w.log.Warn("minions that do not answer cannot be pinged, and are not notified until they can",
				"minions", len(minions), "error", err)
		}
		w.pingless = true
		return false
	}
	w.pingless = false
	return true
}

// problems returns the alerts about problems that this node reports. If the node does not answer,
// the earlier problems still count.
func (w *watch) problems(ctx context.Context, now time.Time) (all []alert.Alert) {
	list, err := w.near.Problems(ctx)
	if err != nil {
		if !w.failed {
			w.log.Warn("problems of this node cannot be asked for, and are not notified until they can", "error", err)
		}
		w.failed = true
		w.mu.Lock()
		for key, t := range w.told {
			if t.Kind == rules.Node {
				t.At = now
				w.told[key] = t
			}
		}
		w.mu.Unlock()
		return nil
	}

	w.failed = false
	for _, p := range list {
		all = append(all, alert.OfProblem(p, now))
	}
	return all
}

// save writes told to its file, if it has changed.
func (w *watch) save() error {
	w.mu.Lock()
	if !w.changed {
		w.mu.Unlock()
		return nil
	}
	content, err := json.Marshal(w.told)
	w.changed = false
	w.mu.Unlock()

	if err == nil {
		err = durable.Replace(w.path, content, 0o600)
	}
	if err != nil {
		w.mu.Lock()
		w.changed = true
		w.mu.Unlock()
		return fmt.Errorf("write which conditions have been notified: %w", err)
	}
	return nil
}
