package jobs

import (
	"fmt"
	"sync"
	"time"
)

// jidLayout is the layout of the 20 digits of a job id, with a point before the microseconds, which
// the id lacks.
const jidLayout = "20060102150405.000000"

const jidDigits = 20

// IDs generates job ids. It may be used concurrently.
type IDs struct {
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// NewIDs returns an IDs whose clock is now.
func NewIDs(now func() time.Time) *IDs { return &IDs{now: now} }

// New returns a job id: 20 digits, the UTC time in microseconds. The ids that one IDs generates
// always increase, even when the clock stands still or goes back (salt/utils/jid.py gen_jid
// guarantees that only with unique_jid).
func (s *IDs) New() string {
	t := s.now().UTC().Truncate(time.Microsecond)
	s.mu.Lock()
	if !t.After(s.last) {
		t = s.last.Add(time.Microsecond)
	}
	s.last = t
	s.mu.Unlock()
	return FromTime(t)
}

// FromTime returns the job id of a time.
func FromTime(t time.Time) string {
	s := t.UTC().Format(jidLayout)
	return s[:14] + s[15:]
}

// Valid reports whether jid is a job id: exactly 20 ASCII digits, optionally followed by an
// underscore and 1 to 10 digits (unique_jid appends a process id). Salt's own check accepts any
// text after the underscore. Valid does not, since jid becomes part of paths and tags.
func Valid(jid string) bool {
	switch n := len(jid); {
	case n == jidDigits:
		return digits(jid)
	case n > jidDigits+1 && n <= jidDigits+11:
		return jid[jidDigits] == '_' && digits(jid[:jidDigits]) && digits(jid[jidDigits+1:])
	}
	return false
}

// Beginnings returns the shorter job ids that are prefixes of a job id. For Salt's tools an event
// of 20260102030405678901_7 also belongs to the job 20260102030405678901 (salt/client/__init__.py
// get_returns_no_block).
func Beginnings(jid string) (shorter []string) {
	for n := jidDigits; n < len(jid); n++ {
		if Valid(jid[:n]) {
			shorter = append(shorter, jid[:n])
		}
	}
	return shorter
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// Time returns the time that a job id contains.
func Time(jid string) (time.Time, error) {
	if !Valid(jid) {
		return time.Time{}, fmt.Errorf("%w: %.40q", ErrJID, jid)
	}
	t, err := time.Parse(jidLayout, jid[:14]+"."+jid[14:jidDigits])
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %s is no time", ErrJID, jid)
	}
	return t, nil
}

var months = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

// TimeText returns a time as text in the form that StartTime describes.
func TimeText(t time.Time) string { return StartTime(FromTime(t)) }

// StartTime returns the time in a job id in the form in which Salt shows it, such as "2026, Nov 21
// 08:05:09.316776", or "" for a text that is no job id (salt/utils/jid.py jid_to_time).
func StartTime(jid string) string {
	if !Valid(jid) {
		return ""
	}
	month := int(jid[4]-'0')*10 + int(jid[5]-'0')
	if month < 1 || month > 12 {
		return ""
	}
	return fmt.Sprintf("%s, %s %s %s:%s:%s.%s", jid[:4], months[month-1], jid[6:8], jid[8:10], jid[10:12],
		jid[12:14], jid[14:20])
}
