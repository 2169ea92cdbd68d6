// Package alert holds what a message is about. It does no input or output.
package alert

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/internal/notify/rules"
)

// Bounds of an alert. Lengths are in bytes.
const (
	maxWord  = 255
	maxTitle = 300
	maxLines = 20
	maxLine  = 300
)

// Alert is something that happened, about which a rule may send messages. All texts are of one line
// and contain no control characters.
type Alert struct {
	// ID is the same on every node that learns of the same event.
	ID string `json:"id"`
	// Key is the same for alerts of which one message within Rule.Dedupe is enough.
	Key      string     `json:"key"`
	Kind     rules.Kind `json:"kind"`
	Time     time.Time  `json:"time"`
	Node     string     `json:"node"` // the master that recorded it first
	Minion   string     `json:"minion,omitempty"`
	Function string     `json:"function,omitempty"`
	JID      string     `json:"jid,omitempty"`
	User     string     `json:"user,omitempty"`
	Code     string     `json:"code,omitempty"`
	Notice   bool       `json:"notice,omitempty"`
	// After is how many seconds a minion was gone or deaf.
	After int64    `json:"after,omitempty"`
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"`
}

// Subject returns what rules look at.
func (a *Alert) Subject() rules.Subject {
	return rules.Subject{
		Kind:     a.Kind,
		Minion:   a.Minion,
		Function: a.Function,
		Code:     a.Code,
		Notice:   a.Notice,
		After:    time.Duration(a.After) * time.Second,
	}
}

// Clean bounds the parts of an alert, and makes each text safe for one line. It reports whether the
// alert can be used.
func (a *Alert) Clean() bool {
	for _, word := range []*string{&a.Node, &a.Minion, &a.Function, &a.JID, &a.User, &a.Code} {
		*word = printable.Brief(*word, maxWord)
	}

	a.Title = cmp.Or(printable.Brief(a.Title, maxTitle), string(a.Kind))
	a.Lines = a.Lines[:min(len(a.Lines), maxLines)]
	for i := range a.Lines {
		a.Lines[i] = printable.Brief(a.Lines[i], maxLine)
	}

	a.Time = a.Time.UTC().Truncate(time.Millisecond)
	return IsDigest(a.ID) && IsDigest(a.Key) && a.Kind != "" && len(a.Kind) <= maxWord && !a.Time.IsZero() && a.After >= 0
}

const digestSize = 16 // bytes of a SHA-256 that make an id

// Digest returns an id that is made from several parts.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:digestSize])
}

// IsDigest reports whether a text of another master may be a [Digest].
func IsDigest(text string) bool {
	return len(text) == 2*digestSize && strings.Trim(text, "0123456789abcdef") == ""
}

// Gone returns the alert about a minion that has not been connected since a time.
func Gone(minion string, since, now time.Time, after time.Duration) Alert {
	return standing(Alert{
		ID:     Digest("gone", minion, strconv.FormatInt(since.Unix(), 10), after.String()),
		Key:    Digest("gone", minion, after.String()),
		Kind:   rules.Gone,
		Time:   now,
		Minion: minion,
		After:  int64(after / time.Second),
		Title:  fmt.Sprintf("%s has not been connected for %s", minion, spoken(now.Sub(since))),
		Lines:  []string{"not connected to any node since " + since.UTC().Format(time.RFC3339)},
	})
}

// Deaf returns the alert about a minion that is connected and has not answered the job jid.
func Deaf(minion, jid string, since, now time.Time, after time.Duration) Alert {
	return standing(Alert{
		ID:     Digest("deaf", minion, jid, after.String()),
		Key:    Digest("deaf", minion, after.String()),
		Kind:   rules.Deaf,
		Time:   now,
		Minion: minion,
		JID:    jid,
		After:  int64(after / time.Second),
		Title:  fmt.Sprintf("%s is connected and has not answered for %s", minion, spoken(now.Sub(since))),
		Lines:  []string{"it was sent job " + jid + " and then test.ping, and has sent nothing since"},
	})
}

// NewKey returns the alert about a key that waits to be accepted.
func NewKey(minion, fingerprint string, now time.Time) Alert {
	return standing(Alert{
		ID:     Digest("key", minion, fingerprint, strconv.FormatInt(now.Unix(), 10)), // the same key may come back
		Key:    Digest("key", minion),
		Kind:   rules.Key,
		Time:   now,
		Minion: minion,
		Title:  "the key of " + printable.Brief(minion, maxWord) + " waits to be accepted",
		Lines: []string{
			"fingerprint " + fingerprint,
			"compare it with that of the machine (salt-call --local key.finger), then: salt-key -a " + minion,
		},
	})
}

// Problem is a problem of a node.
type Problem struct {
	Node, Code, Title, Subject, Cause, Next string
	// Scope is the node on which the problem is; nodes that report the same problem of another node
	// have the same Scope.
	Scope  string
	Notice bool
	Since  time.Time
}

// OfProblem returns the alert about a problem of a node.
func OfProblem(p Problem, now time.Time) Alert {
	a := Alert{
		ID:     Digest("node", p.Node, p.Code, p.Subject, strconv.FormatInt(p.Since.Unix(), 10)),
		Key:    Digest("node", p.Scope, p.Code, p.Subject),
		Kind:   rules.Node,
		Time:   now,
		Node:   p.Node,
		Code:   p.Code,
		Notice: p.Notice,
		Title:  strings.TrimSpace(fmt.Sprintf("%s on %s: %s", p.Code, p.Node, p.Title)),
	}
	for _, line := range []string{p.Subject, p.Cause, p.Next} {
		if line != "" {
			a.Lines = append(a.Lines, line)
		}
	}
	return standing(a)
}

// Tried returns the alert of a test message, by which somebody tries a rule.
func Tried(rule, user, node string, now time.Time) Alert {
	id := Digest("test", rule, node, strconv.FormatInt(now.UnixNano(), 10))
	return standing(Alert{
		ID:    id,
		Key:   id,
		Kind:  rules.Test,
		Time:  now,
		Node:  node,
		User:  user,
		Title: "test of the rule " + rule,
		Lines: []string{"somebody has called notify.test; nothing has happened"},
	})
}

// standing returns a with its parts bounded, see Clean.
func standing(a Alert) Alert {
	a.Clean()
	return a
}

// Standing reports whether an alert is about a condition that lasts. One message is enough while it
// lasts.
func (a *Alert) Standing() bool {
	switch a.Kind {
	case rules.Gone, rules.Deaf, rules.Key, rules.Node:
		return true
	}
	return false
}

// spoken returns a duration in words.
func spoken(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return fmt.Sprintf("%d seconds", d/time.Second)
}
