package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/muesli/cancelreader"
)

// Listen reads the keys typed at the terminal f and calls send with each message, until ctx ends.
// If the line is hung up, it returns nil. The terminal must be in raw mode. After Listen has
// returned, it reads no more bytes.
func Listen(ctx context.Context, f *os.File, send func(tea.Msg)) error {
	r, err := cancelreader.NewReader(f)
	if err != nil {
		return fmt.Errorf("read the terminal: %w", err)
	}
	defer r.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	chunks := make(chan chunk, ahead)
	ended := make(chan error, 1)
	go func() {
		ended <- readChunks(ctx, r, chunks)
		close(chunks)
	}()

	stop := context.AfterFunc(ctx, func() { r.Cancel() })
	defer stop()

	decode(chunks, send)
	switch err := <-ended; {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EIO), errors.Is(err, cancelreader.ErrCanceled), ctx.Err() != nil:
		return nil
	default:
		return fmt.Errorf("read the terminal: %w", err)
	}
}

// chunk holds the bytes of one read, and its time.
type chunk struct {
	bytes []byte
	at    time.Time
}

// ahead is how many chunks are read in advance. So each chunk gets the time of its arrival, even
// while the program is busy. Bytes beyond these chunks stay in the kernel.
const ahead = 64

// readChunks sends everything that it reads to chunks, until a read fails.
func readChunks(ctx context.Context, r io.Reader, chunks chan<- chunk) error {
	for {
		buf := make([]byte, 4096)
		n, err := r.Read(buf)
		if n > 0 {
			select {
			case chunks <- chunk{buf[:n], time.Now()}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}

		if err != nil {
			return err
		}
	}
}

// decode decodes the chunks and calls send with the messages, until chunks is closed.
func decode(chunks <-chan chunk, send func(tea.Msg)) {
	var d Decoder
	pause := time.NewTimer(0)
	defer pause.Stop()

	for {
		c, ok := nextChunk(chunks, pause.C)
		if !ok {
			return
		}

		messages := d.feedChunk(c)
		for more := len(chunks); more > 0 && ok; more-- { // chunks that came while the program was busy
			if c, ok = <-chunks; ok {
				messages = append(messages, d.feedChunk(c)...)
			}
		}

		for _, m := range together(messages) {
			send(m)
		}

		pause.Stop()
		if end := d.Deadline(); !end.IsZero() {
			pause.Reset(time.Until(end))
		}
	}
}

// feedChunk decodes a chunk. An empty chunk means that the pause after the last chunk was too long.
func (d *Decoder) feedChunk(c chunk) []tea.Msg {
	if len(c.bytes) == 0 {
		return d.Expire(time.Now())
	}
	return d.Feed(c.bytes, c.at)
}

// Text is text that arrived faster than a person types, from a terminal that does not mark pastes.
// Its characters are not handled as keys.
type Text string

// manyKeys is how many characters must arrive at once to become a Text. As single keys they would
// redraw the page for each character, which would take seconds for an SSH key.
const manyKeys = 8

// together merges many consecutive characters into a Text.
func together(messages []tea.Msg) (out []tea.Msg) {
	for len(messages) > 0 {
		var run strings.Builder
		n := 0
		for ; n < len(messages); n++ {
			key, ok := messages[n].(tea.KeyPressMsg)
			if !ok || key.Text == "" {
				break
			}
			run.WriteString(key.Text)
		}

		if n >= manyKeys {
			out = append(out, Text(run.String()))
		} else {
			n = max(n, 1)
			out = append(out, messages[:n]...)
		}

		messages = messages[n:]
	}

	return out
}

// nextChunk waits for a chunk or the end of a pause, for which it returns a chunk without bytes. ok
// is false when chunks is closed.
func nextChunk(chunks <-chan chunk, pause <-chan time.Time) (c chunk, ok bool) {
	select {
	case c, ok = <-chunks:
		return c, ok
	case <-pause:
	}
	select { // a chunk may have come at the last moment
	case c, ok = <-chunks:
		return c, ok
	default:
		return chunk{}, true
	}
}
