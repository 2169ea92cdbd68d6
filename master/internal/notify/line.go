package notify

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// maxTogether bounds the alerts of one summary.
const maxTogether = 1000

// window is the time to which Rule.Limit refers.
const window = time.Hour

// line holds the alerts that wait for one destination, in the order in which this node learned of
// them, and the messages that were sent there.
type line struct {
	to      string    // Destination.ID
	since   time.Time // since when the destination is known; what happened earlier is not for it
	queue   []*entry
	sent    []time.Time            // when messages were sent, the oldest first
	last    map[string]lastMessage // by the key of alerts
	counts  map[Outcome]uint64
	loaded  map[Outcome]uint64 // the part of counts that the start of the master has found on the disk
	message string             // id of the last message that was counted in sent
	blocked bool               // the hours or the limit have held back the alerts in the queue
}

// lastMessage is the last message about alerts with one key.
type lastMessage struct {
	at       time.Time
	repeated int // alerts that were left out since
}

func newLine(to string, since time.Time) *line {
	return &line{to: to, since: since, last: map[string]lastMessage{}, counts: map[Outcome]uint64{}}
}

// wants reports whether an alert that goes to the destination is still to be sent there.
func (l *line) wants(e *entry) bool {
	_, settled := e.marks[l.to]
	return !settled && !e.alert.Time.Before(l.since)
}

func (l *line) push(e *entry) { l.queue = append(l.queue, e) }

// remove takes an alert out of the queue. It reports whether the alert was there.
func (l *line) remove(e *entry) bool {
	i := slices.Index(l.queue, e)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// settle takes the alert of a mark out of the queue, and counts the mark.
func (l *line) settle(m Mark) {
	i := slices.IndexFunc(l.queue, func(e *entry) bool { return e.alert.ID == m.Alert })
	if i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}

	l.counts[m.Outcome]++
	last := l.last[m.Key]
	switch m.Outcome {
	case Sent:
		if m.Message != l.message {
			l.message = m.Message
			l.sent = append(l.sent, m.At)
		}
		if m.At.After(last.at) {
			l.last[m.Key] = lastMessage{at: m.At}
		}
	case Repeated:
		last.repeated++
		l.last[m.Key] = last
	}
}

// prune forgets what was sent too long ago to matter, or by a clock that was ahead by more than window.
func (l *line) prune(now time.Time) {
	matters := func(at time.Time) bool { return now.Sub(at) <= keepFor && at.Sub(now) <= window }
	l.sent = slices.DeleteFunc(l.sent, func(at time.Time) bool { return !matters(at) })
	maps.DeleteFunc(l.last, func(_ string, last lastMessage) bool { return !matters(last.at) })
}

// sentWithin returns how many messages were sent in the window that ends at end.
func (l *line) sentWithin(end time.Time) (n int) {
	for _, at := range l.sent {
		if !at.After(end) && end.Sub(at) < window {
			n++
		}
	}
	return n
}

// judge decides about single alerts.
type judge interface {
	// silenced reports whether somebody has silenced an alert.
	silenced(rule string, a *alert.Alert, now time.Time) bool
	// selects reports whether the alert's minion is in the rule's target.
	selects(rule *rules.Rule, minion string) bool
}

// next decides what to send now. It returns marks for the alerts that will not be sent, and the
// message, or nil while nothing can be sent.
func (l *line) next(rule *rules.Rule, by judge, now time.Time) (m *alert.Message, marks []Mark) {
	quiet := rule.Quiet.Contains(now)
	full := l.sentWithin(now) >= rule.Limit
	dropped := map[*entry]Outcome{}
	var ready []*entry
	for _, e := range l.queue {
		if why := l.judgeAlert(e.alert, rule, by, now); why != "" {
			dropped[e] = why
			if len(dropped) == maxTogether {
				break // the next call decides about the rest
			}
			continue
		}

		if quiet || full {
			continue
		}

		ready = append(ready, e)
		if len(ready) == maxTogether || !l.blocked && !l.wasHeld(e.alert, rule) {
			break
		}
	}

	for e, why := range dropped {
		marks = append(marks, Mark{
			Alert:   e.alert.ID,
			To:      l.to,
			Key:     e.alert.Key,
			At:      now,
			Outcome: why,
		})
	}
	slices.SortFunc(marks, func(a, b Mark) int { return cmp.Compare(a.Alert, b.Alert) })

	waiting := len(l.queue) - len(dropped)
	if quiet || full {
		l.blocked = waiting > 0
		return nil, marks
	}

	if len(ready) == 0 {
		l.blocked = false
		return nil, marks
	}

	return l.compose(ready, waiting, rule, now), marks
}

// judgeAlert returns why an alert is not sent, or "".
func (l *line) judgeAlert(a *alert.Alert, rule *rules.Rule, by judge, now time.Time) Outcome {
	last, before := l.last[a.Key]
	switch {
	case now.Sub(a.Time) > sendFor:
		return Expired
	case rule.Target != nil && a.Minion != "" && !by.selects(rule, a.Minion):
		return Unselected
	case by.silenced(rule.Name, a, now):
		return Silenced
	case before && a.Kind != rules.Test && now.Sub(last.at).Abs() < rule.Dedupe: // the clock may have been ahead
		return Repeated
	}
	return ""
}

// wasHeld reports whether an alert came while the hours or the limit forbade messages. By it a new
// owner of the cluster sees what the last one has held back.
func (l *line) wasHeld(a *alert.Alert, rule *rules.Rule) bool {
	return rule.Quiet.Contains(a.Time.Local()) || l.sentWithin(a.Time) >= rule.Limit
}

// compose returns the message about the alerts of ready. waiting is how many alerts wait in all.
func (l *line) compose(ready []*entry, waiting int, rule *rules.Rule, now time.Time) *alert.Message {
	m := &alert.Message{Rule: rule.Name, To: l.to}
	parts := []string{l.to}
	for _, e := range ready {
		m.Alerts = append(m.Alerts, *e.alert)
		parts = append(parts, e.alert.ID)
	}

	slices.Sort(parts[1:]) // another master may have learned of them in another order
	m.ID = alert.Digest(parts...)
	if !m.Summary() {
		m.Repeated = l.last[m.Alerts[0].Key].repeated
	}
	if l.blocked {
		m.More = waiting - len(ready)
	}
	if l.sentWithin(now)+1 >= rule.Limit {
		m.Until = now.Add(window)
		if oldest := l.oldestWithin(now); !oldest.IsZero() {
			m.Until = oldest.Add(window)
		}
	}

	return m
}

// oldestWithin returns when the first message of the window that ends at end was sent, or the zero
// time.
func (l *line) oldestWithin(end time.Time) time.Time {
	for _, at := range l.sent {
		if !at.After(end) && end.Sub(at) < window {
			return at
		}
	}
	return time.Time{}
}
