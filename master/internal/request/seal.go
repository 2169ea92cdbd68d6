package request

import (
	"errors"
	"fmt"
	"math"

	"saltern/master/crypt"
	"saltern/master/msgpack"
)

// sealed is an answer that is already encrypted and packed.
type sealed struct{ bytes []byte }

const (
	// rawHead is the length of the longest possible head of a packed byte string.
	rawHead = 5
	// smallAnswer is a buffer size in bytes that suffices for most answers, such as nil or a hash.
	smallAnswer = 512
	// Buffers of pooledMin to pooledMax bytes are kept for the next big answer.
	pooledMin, pooledMax = 64 << 10, 8 << 20
)

// sealAnswer packs an answer and encrypts it with the key that decrypted the request. It uses one
// buffer, which holds the head of a packed byte string followed by the encrypted blob.
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

	// The blob is already in the buffer, so the head must end where the blob begins.
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

// buffer returns an empty buffer with a capacity of at least size bytes.
func (s *Server) buffer(size int) []byte {
	if size >= pooledMin {
		if b, ok := s.buffers.Get().(*[]byte); ok && cap(*b) >= size {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// Recycle takes ownership of an answer that Handle returned and that is no longer used. A later big
// answer can use its memory. Calling Recycle is optional.
func (s *Server) Recycle(answer []byte) {
	if c := cap(answer); c >= pooledMin && c <= pooledMax {
		s.buffers.Put(&answer)
	}
}
