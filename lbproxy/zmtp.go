package lbproxy

import "encoding/binary"

// Facts of ZMTP 3.x (rfc.zeromq.org/spec/23 and 37). A greeting has 64 bytes: ff, eight bytes, 7f,
// the major version, and more. Frames follow the greeting: a byte of flags (1 more, 2 long, 4
// command), a length of one or eight bytes, and a body.
const (
	greetingLen  = 64
	flagMore     = 1
	flagLong     = 2
	flagCommand  = 4
	versionMajor = 3
)

type trackState uint8

const (
	trackGreeting trackState = iota
	trackFlags
	trackLen
	trackBody
	trackLost // not ZMTP 3: the boundaries of frames are unknown for good
)

// tracker follows one direction of a ZMTP connection, to determine whether a frame or a message is
// incomplete. It keeps no bytes, allocates nothing and accepts any input: bytes that are not ZMTP 3
// put it into the state trackLost.
type tracker struct {
	remaining  uint64 // bytes of the body, or of the greeting, still to come
	messages   uint32 // complete messages, without commands; wraps around
	state      trackState
	flags      uint8
	lengthLeft uint8 // bytes of the length still to come
	marks      mark
}

// mark is a set of facts that a tracker remembers in one byte: a session has two trackers, and
// there are tens of thousands of sessions.
type mark uint8

const (
	markMore       mark = 1 << iota // inside a message of several frames
	markFresh                       // no byte of the body has been seen
	markSeal                        // an answer was sealed, see sealedAnswer; whoever reads the mark clears it
	markMinorOne                    // the greeting was of version 3.1
	markMinorOther                  // the greeting was of a later version
)

func (m mark) has(x mark) bool { return m&x != 0 }

func (m *mark) set(x mark, on bool) {
	*m &^= x
	if on {
		*m |= x
	}
}

// feed parses the bytes that passed.
func (t *tracker) feed(b []byte) {
	for len(b) > 0 {
		switch t.state {
		case trackLost:
			return
		case trackGreeting:
			b = t.feedGreeting(b)
		case trackFlags:
			f := b[0]
			b = b[1:]
			if f&^(flagMore|flagLong|flagCommand) != 0 {
				t.giveUp()
				return
			}

			t.flags = f
			t.remaining = 0
			t.lengthLeft = 1
			t.state = trackLen

			if f&flagLong != 0 {
				t.lengthLeft = 8
			}
		case trackLen:
			if t.lengthLeft == 8 && len(b) >= 8 {
				t.remaining, t.lengthLeft = binary.BigEndian.Uint64(b), 0
				b = b[8:]
			} else {
				t.remaining = t.remaining<<8 | uint64(b[0])
				b = b[1:]
				t.lengthLeft--
			}

			if t.lengthLeft == 0 {
				if t.remaining > 1<<62 {
					t.giveUp()
					return
				}
				t.state = trackBody
				t.marks.set(markFresh, true)
				t.passBody(0)
			}
		case trackBody:
			if t.marks.has(markFresh) {
				t.marks.set(markFresh, false)
				if t.flags&(flagCommand|flagMore) == 0 && sealedAnswer(b, t.remaining) {
					t.marks.set(markSeal, true)
				}
			}

			n := uint64(len(b))
			if n > t.remaining {
				n = t.remaining
			}

			b = b[n:]
			t.passBody(n)
		}
	}
}

// feedGreeting parses bytes of the greeting and returns those behind it.
func (t *tracker) feedGreeting(b []byte) []byte {
	if t.remaining == 0 {
		t.remaining = greetingLen
	}

	at := greetingLen - int(t.remaining)
	for at < greetingLen && len(b) > 0 {
		if (at == 0 && b[0] != 0xff) || (at == 9 && b[0] != 0x7f) || (at == 10 && b[0] != versionMajor) {
			t.giveUp()
			return nil
		}

		if at == 11 {
			t.marks |= minorMark(b[0])
		}

		at++
		b = b[1:]
	}

	t.remaining = uint64(greetingLen - at)
	if t.remaining == 0 {
		t.state = trackFlags
	}

	return b
}

// minorMark returns the mark of a minor version of ZMTP: none for 0, and one mark for all versions
// after 1.
func minorMark(v byte) mark {
	switch v {
	case 0:
		return 0
	case 1:
		return markMinorOne
	}
	return markMinorOther
}

// giveUp stops following the stream.
func (t *tracker) giveUp() { *t = tracker{state: trackLost, messages: t.messages} }

// passBody counts n bytes of a frame's body. They may have passed through a pipe, so that the proxy
// did not see them.
func (t *tracker) passBody(n uint64) {
	t.remaining -= n
	if n > 0 {
		t.marks.set(markFresh, false)
	}

	if t.remaining > 0 {
		return
	}

	t.state = trackFlags
	if t.flags&flagCommand != 0 {
		return
	}

	t.marks.set(markMore, t.flags&flagMore != 0)
	if !t.marks.has(markMore) {
		t.messages++
	}
}

// unseenBytes returns how many of the next bytes may pass without feed seeing them.
func (t *tracker) unseenBytes() uint64 {
	switch t.state {
	case trackLost:
		return 1 << 62
	case trackBody:
		return t.remaining
	}
	return 0
}

// betweenMessages reports whether no frame and no message is incomplete. It returns false if the
// tracker has lost the stream.
func (t *tracker) betweenMessages() bool { return t.state == trackFlags && !t.marks.has(markMore) }

// followsZMTP reports whether the direction is past its greeting and has been ZMTP 3 so far.
func (t *tracker) followsZMTP() bool { return t.state != trackLost && t.state != trackGreeting }
