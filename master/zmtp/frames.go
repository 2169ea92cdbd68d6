package zmtp

import (
	"io"
	"time"
)

// header reads the next frame header. When the peer has closed the connection between two frames,
// it returns io.EOF unwrapped.
func (r *reader) header(p *pace) (header, error) {
	for need := 1; ; {
		b, err := r.peek(need)
		if err != nil {
			if r.buffered() > 0 {
				err = unexpected(err)
			}
			return header{}, err
		}

		h, n, err := parseHeader(b)
		if err != nil || n > 0 {
			if err == nil {
				r.skip(n)
			}
			return h, err
		}

		need = 2
		if b[0]&flagLong != 0 {
			need = maxHeader
		}

		if err := p.expectBytes(r, uint64(need), 0); err != nil {
			return header{}, err
		}
	}
}

// command reads the body of a command frame. name and body are parts of the read buffer: when the
// caller no longer needs them, it must skip h.size bytes.
func (r *reader) command(h header, p *pace) (name, body []byte, err error) {
	if h.size > maxCommand {
		return nil, nil, violation("command of %d bytes", h.size)
	}
	if h.size == 0 {
		return nil, nil, violation("empty command")
	}

	if err := p.expectBytes(r, h.size, 0); err != nil {
		return nil, nil, err
	}

	b, err := r.peek(int(h.size))
	if err != nil {
		return nil, nil, unexpected(err)
	}

	return parseCommand(b)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pace sets the deadlines of a message that is being received. The message may pause for at most
// MessageTime, and its average rate must not fall below MinRate.
type pace struct {
	limits *Limits
	start  time.Time
	set    bool
}

// expectBytes sets the deadline for the next n bytes of a message; received is how many bytes of
// the message have arrived. If the reader has the n bytes buffered, or if the pace is nil,
// expectBytes does nothing.
func (p *pace) expectBytes(r *reader, n uint64, received int) error {
	if p == nil || uint64(r.buffered()) >= n {
		return nil
	}
	return p.deadline(r, received)
}

// deadline sets the read deadline; received is how many bytes of the message have arrived. The
// first call for a message starts the message's clock.
func (p *pace) deadline(r *reader, received int) error {
	now := time.Now()
	if !p.set {
		p.start, p.set = now, true
	}
	end := p.start.Add(p.limits.MessageTime + time.Duration(received)*time.Second/time.Duration(p.limits.MinRate))
	if still := now.Add(p.limits.MessageTime); still.Before(end) {
		end = still
	}
	return r.conn.SetReadDeadline(end)
}

// endMessage removes the deadline after a message, or after a command between two messages.
func (p *pace) endMessage(r *reader) error {
	if !p.set {
		return nil
	}
	p.set = false
	return r.conn.SetReadDeadline(time.Time{})
}

// readBody appends the size bytes of a frame to dst. The buffer grows as bytes arrive: readBody
// doubles the buffer when it is full, and does not trust the size in the header. Before each growth
// readBody calls charge with the new capacity.
func (r *reader) readBody(dst *buffer, size uint64, p *pace, charge func(capacity int) error) error {
	for size > 0 {
		room := cap(dst.b) - len(dst.b)
		if room == 0 {
			capacity := len(dst.b) + int(min(size, max(smallSize, uint64(len(dst.b)))))
			if capacity > smallSize {
				capacity = max(capacity, freeSize) // at least as large as a pooled buffer
				if err := charge(capacity); err != nil {
					return err
				}
			}

			next := r.pools.buffer(capacity)
			next.b = append(next.b, dst.b...)
			dst.free()
			*dst = next
			room = cap(dst.b) - len(dst.b)
		}

		// Read in steps, so that the deadline follows the progress.
		n := int(min(uint64(room), size, freeSize))
		if err := p.expectBytes(r, uint64(n), len(dst.b)); err != nil {
			return err
		}

		at := len(dst.b)
		if err := r.readFull(dst.b[at : at+n]); err != nil {
			return unexpected(err)
		}

		dst.b = dst.b[:at+n]
		size -= uint64(n)
	}

	return nil
}
