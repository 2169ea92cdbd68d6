package lbproxy

import "encoding/binary"

// ZMTP 3.x facts used here (rfc.zeromq.org/spec/23 and 37): a greeting of 64
// bytes starting ff, eight bytes, 7f, version major; then frames of a flag
// byte (1 more, 2 long, 4 command), a length of one or eight bytes, a body.
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
	trackLost // not ZMTP 3: boundaries are unknown for good
)

// tracker follows one direction of a ZMTP connection and knows whether a
// frame or a message has begun and not ended. It keeps no bytes, allocates
// nothing and accepts anything: what is not ZMTP 3 only makes it lost.
type tracker struct {
	left  uint64 // bytes of the body, or of the greeting, still to come
	msgs  uint32 // whole messages, commands not counted; wraps
	state trackState
	flags uint8
	need  uint8 // length bytes still to come
	marks mark
}

// mark is a set of things that a tracker remembers, in one byte: a session has
// two trackers, and there are tens of thousands of sessions.
type mark uint8

const (
	markMore       mark = 1 << iota // inside a message of several frames
	markFresh                       // no byte of the body has been seen
	markSeal                        // an answer was sealed, see sealedAnswer; whoever reads it resets it
	markMinorOne                    // the greeting was of version 3.1
	markMinorOther                  // or of a later one
)

func (m mark) has(x mark) bool { return m&x != 0 }

func (m *mark) set(x mark, on bool) {
	*m &^= x
	if on {
		*m |= x
	}
}

// feed takes the bytes that passed.
func (t *tracker) feed(b []byte) {
	for len(b) > 0 {
		switch t.state {
		case trackLost:
			return
		case trackGreeting:
			if t.left == 0 {
				t.left = greetingLen
			}

			at := greetingLen - int(t.left)
			for at < greetingLen && len(b) > 0 {
				if (at == 0 && b[0] != 0xff) || (at == 9 && b[0] != 0x7f) || (at == 10 && b[0] != versionMajor) {
					t.lose()
					return
				}

				if at == 11 {
					t.marks |= minor(b[0])
				}

				at++
				b = b[1:]
			}

			if t.left = uint64(greetingLen - at); t.left == 0 {
				t.state = trackFlags
			}
		case trackFlags:
			f := b[0]
			b = b[1:]
			if f&^(flagMore|flagLong|flagCommand) != 0 {
				t.lose()
				return
			}

			t.flags = f
			t.left = 0
			t.need = 1
			t.state = trackLen

			if f&flagLong != 0 {
				t.need = 8
			}
		case trackLen:
			if t.need == 8 && len(b) >= 8 {
				t.left, t.need = binary.BigEndian.Uint64(b), 0
				b = b[8:]
			} else {
				t.left = t.left<<8 | uint64(b[0])
				b = b[1:]
				t.need--
			}

			if t.need == 0 {
				if t.left > 1<<62 {
					t.lose()
					return
				}
				t.state = trackBody
				t.marks.set(markFresh, true)
				t.body(0)
			}
		case trackBody:
			if t.marks.has(markFresh) {
				t.marks.set(markFresh, false)
				if t.flags&(flagCommand|flagMore) == 0 && sealedAnswer(b, t.left) {
					t.marks.set(markSeal, true)
				}
			}

			n := uint64(len(b))
			if n > t.left {
				n = t.left
			}

			b = b[n:]
			t.body(n)
		}
	}
}

// minor is the mark of a minor version.
func minor(v byte) mark {
	switch v {
	case 0:
		return 0
	case 1:
		return markMinorOne
	}
	return markMinorOther
}

// lose gives up for good.
func (t *tracker) lose() { *t = tracker{state: trackLost, msgs: t.msgs} }

// body takes n bytes of a body, which may have moved unseen through a pipe.
func (t *tracker) body(n uint64) {
	t.left -= n
	if n > 0 {
		t.marks.set(markFresh, false)
	}

	if t.left > 0 {
		return
	}

	t.state = trackFlags
	if t.flags&flagCommand != 0 {
		return
	}

	t.marks.set(markMore, t.flags&flagMore != 0)
	if !t.marks.has(markMore) {
		t.msgs++
	}
}

// unseen says how many bytes may pass without being shown to feed.
func (t *tracker) unseen() uint64 {
	switch t.state {
	case trackLost:
		return 1 << 62
	case trackBody:
		return t.left
	}
	return 0
}

// between says that no frame and no message is in progress; lost trackers
// cannot tell and say false.
func (t *tracker) between() bool { return t.state == trackFlags && !t.marks.has(markMore) }

// known says that the direction has been ZMTP 3 so far and past its greeting.
func (t *tracker) known() bool { return t.state != trackLost && t.state != trackGreeting }
