// Package input decodes the bytes that a terminal sends into keys and pastes. It supports the
// sequences of the Linux console, the vt220, xterm and similar terminals. It drops unknown
// sequences as a whole, by the grammar of ECMA-48 (5.4 for control sequences, 5.6 for control
// strings): no letter of a sequence is mistaken for a typed letter.
package input

import (
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// How long a sequence may pause between two bytes. A serial line of 9600 baud sends a byte in a
// millisecond; networks cause longer pauses.
const (
	// sequenceWait is how long the decoder waits for the rest of a sequence.
	sequenceWait = 500 * time.Millisecond
)

// Bounds in bytes of an unfinished sequence and of a paste. Bytes beyond a bound are dropped.
const (
	maxSequence = 64
	maxPaste    = 64 << 10
	maxEscapes  = 16
)

const esc = 0x1b

// state is the decoder's state in the grammar between two bytes.
type state int

const (
	ground     state = iota
	escape           // after one or more ESCs
	designate        // after ESC and an intermediate byte, until a final byte
	csi              // in a control sequence, until its final byte
	linuxKey         // after CSI [, one more byte follows (console_codes(4))
	mouseX10         // after CSI M: three characters
	ss2              // after SS2, one byte follows
	ss3              // after SS3, digits and one byte follow
	controlStr       // in OSC, DCS, APC, PM or SOS, until ST
	stringEsc        // after an ESC in a control string
	pasting          // in a bracketed paste, until its end
)

// Decoder turns bytes into messages for a bubbletea program: tea.KeyPressMsg and tea.PasteMsg. The
// zero value is ready to use. Only one goroutine may use it.
type Decoder struct {
	state   state
	last    time.Time // time of the last byte
	escapes int       // number of ESCs in a row
	seq     []byte    // bytes of a sequence, without its introducer
	skip    int       // characters of a mouse report that are still to come
	partial []byte    // bytes of an incomplete UTF-8 character
	paste   []byte
	wasCR   bool // the last byte was a CR: a following LF or NUL belongs to it

	out []tea.Msg
}

// Feed decodes bytes that were read at now, and returns the messages that are complete.
func (d *Decoder) Feed(p []byte, now time.Time) []tea.Msg {
	d.out = nil
	d.expire(now)
	for _, b := range p {
		d.takeByte(b, now)
		d.last = now
	}
	return d.out
}

// Deadline returns the time at which the caller must call Expire unless it calls Feed before. The
// time is zero if no sequence is incomplete.
func (d *Decoder) Deadline() time.Time {
	if wait := d.pauseLeft(); wait > 0 {
		return d.last.Add(wait)
	}
	return time.Time{}
}

// Expire ends an input that has paused for too long: a single ESC becomes the key Escape, an
// incomplete sequence is dropped, and an incomplete paste is returned.
func (d *Decoder) Expire(now time.Time) []tea.Msg {
	d.out = nil
	d.expire(now)
	return d.out
}

func (d *Decoder) pauseLeft() time.Duration {
	switch {
	case d.state == escape:
		// The ESC may be the start of a sequence.
		return 300 * time.Millisecond
	case d.state == pasting:
		return 2 * time.Second
	case d.state != ground, len(d.partial) > 0:
		return sequenceWait
	}
	return 0
}

func (d *Decoder) expire(now time.Time) {
	wait := d.pauseLeft()
	if wait == 0 || now.Sub(d.last) < wait {
		return
	}
	switch d.state {
	case escape:
		d.pressEscapes()
	case pasting:
		d.endPaste()
	}
	d.enterState(ground)
	d.partial = nil
}

// enterState enters a state and discards the bytes of the previous one.
func (d *Decoder) enterState(s state) {
	d.state = s
	d.seq = d.seq[:0]
	d.escapes = 0
	d.skip = 0
}

func (d *Decoder) emitKey(k tea.KeyPressMsg) { d.out = append(d.out, k) }

func (d *Decoder) pressEscapes() {
	for range d.escapes {
		d.emitKey(tea.KeyPressMsg{Code: tea.KeyEscape})
	}
}

// takeByte decodes one byte.
func (d *Decoder) takeByte(b byte, now time.Time) {
	switch d.state {
	case pasting:
		d.takePasted(b)
		return
	case controlStr:
		d.takeString(b, now)
		return
	case escape:
		d.takeEscaped(b, now)
		return
	case stringEsc:
		d.enterState(ground)
		if b != '\\' { // not ST: the string ends, and another sequence begins
			d.state, d.escapes = escape, 1
			d.takeEscaped(b, now)
		}
		return
	case mouseX10:
		d.takeMouse(b)
		return
	case ground:
		d.takeGround(b)
		return
	}

	// A control character ends a sequence (ECMA-48 5.4 allows none inside), and is decoded as a key
	// of its own.
	if b < ' ' || b >= 0x7f {
		d.enterState(ground)
		d.takeGround(b)
		return
	}

	d.takeSequence(b)
}

// takeSequence decodes a byte from ' ' to '~' inside a sequence.
func (d *Decoder) takeSequence(b byte) {
	switch d.state {
	case designate:
		if b >= '0' {
			d.enterState(ground)
		}
	case ss2:
		d.enterState(ground)
	case ss3:
		if b >= '0' && b <= ';' {
			d.keepByte(b)
			return
		}
		d.pressKnown(keypad[b], d.seq)
		d.enterState(ground)
	case linuxKey:
		d.pressKnown(linuxKeys[b], nil)
		d.enterState(ground)
	case csi:
		switch {
		case b < '@':
			d.keepByte(b)
		case b == '[' && len(d.seq) == 0:
			d.enterState(linuxKey)
		case b == 'M' && len(d.seq) == 0:
			d.enterState(mouseX10)
			d.skip = 3
		default:
			d.endControl(b)
		}
	}
}

// keepByte stores a byte of a sequence, up to maxSequence bytes: no known sequence is that long.
func (d *Decoder) keepByte(b byte) {
	if len(d.seq) < maxSequence {
		d.seq = append(d.seq, b)
	}
}

// takeEscaped decodes the byte after one or more ESCs.
func (d *Decoder) takeEscaped(b byte, now time.Time) {
	// Alt-x sends ESC x at once. A person who types Escape, then x, is slower.
	meta := now.Sub(d.last) < 50*time.Millisecond
	switch {
	case b == esc && meta && d.escapes < maxEscapes:
		d.escapes++ // some terminals send ESC ESC [ A for Alt and a cursor key
	case b == esc:
		d.pressEscapes()
		d.escapes = 1
	case b == '[':
		d.enterState(csi)
	case b == 'O':
		d.enterState(ss3)
	case b == 'N':
		d.enterState(ss2)
	case b == 'P', b == ']', b == '_', b == '^', b == 'X':
		d.enterState(controlStr)
	case b == '\t':
		d.enterState(ground)
		// the Linux console's keymaps send this for Shift-Tab
		d.emitKey(tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift})
	case !meta, b == ctrlByte('c'):
		d.pressEscapes()
		d.enterState(ground)
		d.takeGround(b)
	case b >= ' ' && b < '0':
		d.enterState(designate)
	case b >= '0' && b < 0x7f:
		d.enterState(ground)
		d.emitKey(tea.KeyPressMsg{Code: rune(b), Mod: tea.ModAlt})
	case b == 0x7f, b == '\b':
		d.enterState(ground)
		d.emitKey(tea.KeyPressMsg{Code: tea.KeyBackspace, Mod: tea.ModAlt})
	case b >= 0x80:
		d.enterState(ss2) // Alt and a character outside ASCII: drop the character's further bytes, too
	default:
		d.enterState(ground)
	}
}

// takeString skips a byte of a control string. The string may contain the bytes that ECMA-48 5.6
// allows. Any other control character ends the string, so that a user who started a string by
// accident need not wait for its end.
func (d *Decoder) takeString(b byte, now time.Time) {
	switch {
	case b == esc:
		d.state = stringEsc
	case b == '\a', b == 0x9c: // xterm ends OSC with BEL; 0x9c is ST as one byte
		d.enterState(ground)
	case b < ' ' && (b < '\b' || b > '\r'):
		d.enterState(ground)
		d.takeGround(b)
	}
}

// takeMouse drops a character of a mouse report (xterm, X10 and 1005: a byte each, or a character
// in UTF-8).
func (d *Decoder) takeMouse(b byte) {
	if b < ' ' {
		d.partial = nil
		d.enterState(ground)
		d.takeGround(b)
		return
	}

	if len(d.partial) > 0 {
		d.partial = append(d.partial, b)
		if !utf8.FullRune(d.partial) {
			return
		}
		d.partial = nil
	} else if b >= 0xc2 && b < 0xf5 {
		d.partial = append(d.partial, b)
		return
	}

	d.skip--
	if d.skip == 0 {
		d.enterState(ground)
	}
}

// takeGround decodes a byte outside of any sequence.
func (d *Decoder) takeGround(b byte) {
	if len(d.partial) > 0 || b >= 0xc2 {
		d.takeRune(b)
		return
	}

	wasCR := d.wasCR
	d.wasCR = b == '\r'
	switch {
	case wasCR && (b == '\n' || b == 0): // the second half of CR LF, or of telnet's CR NUL
	case b == esc:
		d.enterState(escape)
		d.escapes = 1
	case b >= 0x80:
		d.takeC1(rune(b))
	default:
		if k, ok := single(b); ok {
			d.emitKey(k)
		}
	}
}

// takeC1 decodes a control character of eight bits (ECMA-48 5.3), which stands for an ESC and a
// character of seven bits.
func (d *Decoder) takeC1(r rune) {
	switch r {
	case 0x8e:
		d.enterState(ss2)
	case 0x8f:
		d.enterState(ss3)
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f:
		d.enterState(controlStr)
	case 0x9b:
		d.enterState(csi)
	}
}

// takeRune decodes a byte of a UTF-8 character. It drops invalid bytes.
func (d *Decoder) takeRune(b byte) {
	d.wasCR = false
	d.partial = append(d.partial, b)
	if !utf8.FullRune(d.partial) {
		return
	}

	all := d.partial
	d.partial = nil
	r, size := utf8.DecodeRune(all)
	switch {
	case r == utf8.RuneError && size <= 1:
		for _, rest := range all[1:] {
			d.takeGround(rest)
		}
	case r >= 0x80 && r < 0xa0:
		d.takeC1(r)
	case unicode.IsGraphic(r):
		d.emitKey(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

// single returns the key that one byte stands for. If no key sends the byte, it returns false.
func single(b byte) (tea.KeyPressMsg, bool) {
	switch {
	case b == '\t':
		return tea.KeyPressMsg{Code: tea.KeyTab}, true
	case b == '\r', b == '\n':
		return tea.KeyPressMsg{Code: tea.KeyEnter}, true
	case b == 0x7f, b == '\b':
		return tea.KeyPressMsg{Code: tea.KeyBackspace}, true
	case b > 0 && b <= ctrlByte('z'):
		return tea.KeyPressMsg{Code: rune(b) + 'a' - 1, Mod: tea.ModCtrl}, true
	case b >= ' ' && b < 0x7f:
		return tea.KeyPressMsg{Code: rune(b), Text: string(rune(b))}, true
	}
	return tea.KeyPressMsg{}, false // NUL and Ctrl with a sign have no meaning here
}

// ctrlByte returns the byte that Ctrl and a letter send.
func ctrlByte(letter byte) byte { return letter & 0x1f }
