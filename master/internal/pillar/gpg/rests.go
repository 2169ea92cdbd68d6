package gpg

import (
	"maps"
	"time"
)

const (
	// retryAfter is how long no gpg is run for a message after one that did not end in time.
	retryAfter = 10 * time.Second
	// hangsOfAll is the number of hangs of different messages, without an answer of gpg to any, after which
	// no gpg is run for any message.
	hangsOfAll = 2
)

// rests are the times in which no gpg is run, because it did not end in time: each run would hold a turn.
// One message on which gpg hangs does not keep it from the others.
type rests struct {
	ofMessages map[sum]time.Time // until when; those that are over go with the next hang
	ofAll      time.Time
	lastHang   sum
	hangs      int // since gpg has answered, of different messages
}

// noteHang records that gpg did not end for a message.
func (r *rests) noteHang(key sum, now time.Time) {
	maps.DeleteFunc(r.ofMessages, func(_ sum, until time.Time) bool { return !now.Before(until) })
	r.ofMessages[key] = now.Add(retryAfter)

	if r.hangs == 0 || key != r.lastHang {
		r.hangs++
	}
	r.lastHang = key
	if r.hangs >= hangsOfAll {
		r.ofAll = now.Add(retryAfter)
	}
}

// noteAnswer records that gpg has ended for a message.
func (r *rests) noteAnswer() { r.hangs = 0 }

// isResting reports whether no gpg is run for a message now.
func (r *rests) isResting(key sum, now time.Time) bool {
	return now.Before(r.ofMessages[key]) || now.Before(r.ofAll)
}
