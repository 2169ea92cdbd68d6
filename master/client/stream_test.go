package client

import (
	"strconv"
	"testing"

	"saltern/master/event"
)

// Events wait in order, within a bound. A reader that takes one event at a time is told that more
// wait, and a writer that was refused is told when there is room again.
func TestStream(t *testing.T) {
	s := newStream(nil)
	if _, ok := s.takeFirst(); ok {
		t.Error("something waits")
	}

	for i := range streamQueue + 1 {
		if ok := s.pushEvent(event.Packed{Tag: strconv.Itoa(i)}); ok != (i < streamQueue) {
			t.Fatalf("event %d: %v", i, ok)
		}
	}

	for i := range streamQueue {
		<-s.wake
		e, ok := s.takeFirst()
		if !ok || e.Tag != strconv.Itoa(i) {
			t.Fatalf("%d: %q %v", i, e.Tag, ok)
		}

		if i == 0 {
			<-s.room
			if !s.pushEvent(event.Packed{Tag: strconv.Itoa(streamQueue)}) {
				t.Error("there is no room")
			}
		}
	}

	if e, ok := s.takeFirst(); !ok || e.Tag != strconv.Itoa(streamQueue) {
		t.Errorf("the last: %q %v", e.Tag, ok)
	}

	if _, ok := s.takeFirst(); ok || len(s.wake) > 1 {
		t.Error("more wait than came")
	}
}
