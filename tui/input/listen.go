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

// Listen reads what is typed at the terminal f and tells send of it, one message after
// the other, until ctx ends or the line is hung up, which is no error. The terminal has
// to be in raw mode. Nothing is read any more when it has returned.
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

// chunk is what one read has brought, and when.
type chunk struct {
	bytes []byte
	at    time.Time
}

// ahead is how many chunks are read before they are used, so that pauses are measured
// where they are made and not in a busy program. Further ones stay with the kernel.
const ahead = 64

// readChunks passes on what comes, until an error.
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

// decode tells send what the chunks mean, until there are no more of them.
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
		for more := len(chunks); more > 0 && ok; more-- { // what came while the program was busy
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

// feedChunk feeds a chunk, or ends what has paused for too long if it has no bytes.
func (d *Decoder) feedChunk(c chunk) []tea.Msg {
	if len(c.bytes) == 0 {
		return d.Expire(time.Now())
	}
	return d.Feed(c.bytes, c.at)
}

// Text is text that came faster than a person types, where the terminal does not say that it
// was pasted. Nothing in it is a key of its own.
type Text string

// manyKeys is how many characters have to come at once to be a Text. A page is drawn for
// each key; for each character of an SSH key that would take seconds.
const manyKeys = 8

// together makes a Text of many characters in a row.
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

// nextChunk waits for a chunk or the end of a pause, which is a chunk without bytes. It
// reports false when there are no more chunks.
func nextChunk(chunks <-chan chunk, pause <-chan time.Time) (c chunk, ok bool) {
	select {
	case c, ok = <-chunks:
		return c, ok
	case <-pause:
	}
	select { // what came within the pause is no pause
	case c, ok = <-chunks:
		return c, ok
	default:
		return chunk{}, true
	}
}
