package request

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"saltern/master/msgpack"
)

// filled packs itself as n bytes of text.
type filled struct {
	n      int
	fail   error
	closed *int
}

func (f filled) PackedSize() int { return 5 + f.n }

func (f filled) AppendPacked(dst []byte, _ func([]byte, int) []byte) ([]byte, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	dst = msgpack.AppendRawHead(dst, f.n)
	return append(dst, bytes.Repeat([]byte{'x'}, f.n)...), nil
}

func (f filled) Close() error { *f.closed++; return nil }

// Answers of all sizes are whole, those that pack themselves too, also when
// their memory served for another answer before.
func TestAnswersOfAllSizes(t *testing.T) {
	kr := twoMinions(t)
	closed, asked := 0, 0
	sizes := []int{0, 1, 31, 32, 400, 65000, 65435, 65436, 65437, 70000, 1 << 20, 66000, 3}
	var answer any
	s := newServer(kr, Table{"get": {Do: func(context.Context, *Call) (any, error) { return answer, nil }}})
	for _, n := range sizes {
		for _, answer = range []any{strings.Repeat("x", n), filled{n: n, closed: &closed}} {
			load := request("a", "token of a", "get")
			out := s.Handle(t.Context(), from, sealedRequest(t, kr.sessions["a"], "a", int64(3), load), nil)
			got := decode(t, kr, "a", out, nonce)
			if text, _ := got.(string); text != strings.Repeat("x", n) {
				t.Fatalf("%d bytes as %T: got %.40v", n, answer, got)
			}

			s.Recycle(out)
			asked++
		}
	}

	if closed != asked/2 {
		t.Errorf("%d of %d packers closed", closed, asked/2)
	}
}

// A packer that fails is closed, and the minion is told of an error.
func TestPackerFails(t *testing.T) {
	kr := twoMinions(t)
	closed := 0
	s := newServer(kr, Table{"get": {Do: func(context.Context, *Call) (any, error) {
		return filled{n: 10, fail: errors.New("disk"), closed: &closed}, nil
	}}})
	out := s.Handle(t.Context(), from,
		sealedRequest(t, kr.sessions["a"], "a", int64(3), request("a", "token of a", "get")), nil)
	v, err := msgpack.Decode(out, msgpack.DefaultLimits)
	if err != nil || v != handlerFailed {
		t.Errorf("answer %v, %v", v, err)
	}

	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}
