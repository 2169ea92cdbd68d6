package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// version is the first byte of a packed summary.
const version = 1

// ErrFormat means that bytes are no packed summary, or one of a later version.
var ErrFormat = errors.New("summary: bytes of another format")

// Append appends the packed summary to dst. It drops states and cuts texts beyond the bounds.
//
//	version(1) result(1) test(1), function, revision,
//	ok, changed, would change, failed, duration, retcode,
//	failed states, changed states, slowest states
//
// A text is its length and its bytes, a list the number of its states, a state its texts, its duration
// and its cause; numbers are varints, durations in nanoseconds.
func Append(dst []byte, s Summary) []byte {
	dst = append(dst, version, byte(s.Result), boolByte(s.Test))
	dst = appendText(dst, s.Function)
	dst = appendText(dst, s.Revision)
	for _, n := range []int64{
		int64(s.OK), int64(s.Changed), int64(s.WouldChange), int64(s.Failed),
		int64(s.Duration), int64(s.Retcode),
	} {
		dst = binary.AppendVarint(dst, n)
	}

	dst = appendStates(dst, s.FailedStates, MaxStates)
	dst = appendStates(dst, s.ChangedStates, MaxStates)
	return appendStates(dst, s.Slowest, MaxSlowest)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), MaxText)]
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendStates(dst []byte, list []State, most int) []byte {
	list = list[:min(len(list), most)]
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		s := &list[i]
		for _, text := range []string{s.ID, s.SLS, s.Name, s.Function, s.Comment, s.Changes} {
			dst = appendText(dst, text)
		}
		dst = binary.AppendVarint(dst, int64(s.Duration))
		dst = append(dst, byte(s.Cause))
	}
	return dst
}

// Parse reads a packed summary. b must contain nothing else. The result does not share memory with
// b.
func Parse(b []byte) (Summary, error) {
	if len(b) < 3 || b[0] != version || b[1] > byte(Error) || b[2] > 1 {
		return Summary{}, ErrFormat
	}

	p := parser{rest: string(b[3:])}
	s := Summary{Result: Result(b[1]), Test: b[2] == 1}
	s.Function = p.text()
	s.Revision = p.text()
	s.OK = int(p.number())
	s.Changed = int(p.number())
	s.WouldChange = int(p.number())
	s.Failed = int(p.number())
	s.Duration = time.Duration(p.number())
	s.Retcode = int(p.number())
	s.FailedStates = p.states(MaxStates)
	s.ChangedStates = p.states(MaxStates)
	s.Slowest = p.states(MaxSlowest)

	if p.failed || p.rest != "" {
		return Summary{}, fmt.Errorf("%w: torn or damaged", ErrFormat)
	}
	return s, nil
}

// parser reads the parts of a packed summary. After a fault it returns zero values.
type parser struct {
	rest   string
	failed bool
}

func (p *parser) fail() {
	p.failed = true
	p.rest = ""
}

func (p *parser) uvarint() uint64 {
	var x uint64
	for i := range min(len(p.rest), binary.MaxVarintLen64) {
		c := p.rest[i]
		if c < 0x80 {
			p.rest = p.rest[i+1:]
			return x | uint64(c)<<(7*i)
		}
		x |= uint64(c&0x7f) << (7 * i)
	}
	p.fail()
	return 0
}

func (p *parser) number() int64 {
	u := p.uvarint()
	return int64(u>>1) ^ -int64(u&1) // as of binary.AppendVarint
}

func (p *parser) text() string {
	n := p.uvarint()
	if n > MaxText || n > uint64(len(p.rest)) {
		p.fail()
		return ""
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *parser) cause() Cause {
	n := p.uvarint()
	if n > uint64(Recurring) {
		p.fail()
	}
	return Cause(n)
}

func (p *parser) states(most uint64) []State {
	n := p.uvarint()
	if n > most {
		p.fail()
		return nil
	}

	var out []State
	for range n {
		out = append(out, State{
			ID:       p.text(),
			SLS:      p.text(),
			Name:     p.text(),
			Function: p.text(),
			Comment:  p.text(),
			Changes:  p.text(),
			Duration: time.Duration(p.number()),
			Cause:    p.cause(),
		})
	}
	return out
}
