package request

import (
	"errors"
	"fmt"
	"math"

	"saltern/master/crypt"
	"saltern/master/msgpack"
)

// sealed is an answer that is packed already.
type sealed struct{ bytes []byte }

const (
	// rawHead is the longest head of packed bytes.
	rawHead = 5
	// smallAnswer is the room for most answers, such as nil or a hash.
	smallAnswer = 512
	// Buffers of these sizes are kept for the next big answer.
	pooledMin, pooledMax = 64 << 10, 8 << 20
)

// sealAnswer packs an answer and encrypts it with the key that opened the request, all in one
// buffer: the head of the packed blob, the blob, and in the blob the answer.
func (s *Server) sealAnswer(key crypt.Key, nonce string, answer any) (any, error) {
	const start = rawHead
	body := start + crypt.Room(nonce)
	var buf []byte
	var err error
	if p, ok := answer.(packer); ok {
		buf = s.buffer(body + p.PackedSize() + crypt.Overhead)
		buf, err = p.AppendPacked(buf[:body], msgpack.AppendRawHead)
		err = errors.Join(err, p.Close())
	} else {
		buf, err = msgpack.Append(make([]byte, body, smallAnswer), answer, msgpack.Raw)
	}

	if err != nil {
		return nil, fmt.Errorf("pack an answer: %w", err)
	}

	buf = key.SealInPlace(buf, start, nonce)

	// The head goes right in front of the blob, without a gap.
	n := len(buf) - start
	if n > math.MaxUint32 {
		return nil, fmt.Errorf("pack an answer: %d bytes", n)
	}

	var head [rawHead]byte
	h := msgpack.AppendRawHead(head[:0], n)
	at := start - len(h)
	copy(buf[at:], h)

	return sealed{buf[at:]}, nil
}

// buffer returns an empty buffer with room for size bytes.
func (s *Server) buffer(size int) []byte {
	if size >= pooledMin {
		if b, ok := s.buffers.Get().(*[]byte); ok && cap(*b) >= size {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// Recycle takes back an answer of Handle that nobody reads any more, so that the memory of a big
// one is used for the next. Calling it is optional.
func (s *Server) Recycle(answer []byte) {
	if c := cap(answer); c >= pooledMin && c <= pooledMax {
		s.buffers.Put(&answer)
	}
}
