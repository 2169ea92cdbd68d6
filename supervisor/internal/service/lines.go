package service

import (
	"bytes"
	"strings"
	"sync"

	"saltern/internal/printable"
)

const (
	maxLine   = 8 << 10 // bytes; a longer line is cut into pieces of this size
	tailLines = 200     // lines kept in memory for each service
)

// Lines is an io.Writer that splits a child's output into lines, makes them safe to print (no
// control characters, no terminal escapes), passes each line to its functions, and keeps the last
// lines in memory. It is safe for concurrent use. A line of more than 8 KiB is split into pieces of
// that size. At most 200 lines are kept.
type Lines struct {
	sinks []func(line string)

	mu   sync.Mutex
	part []byte
	tail []string // a ring buffer
	next int
}

// NewLines returns a writer that calls each of sinks, in order, for every line. It calls them with
// its lock held: they must not call methods of the writer.
func NewLines(sinks ...func(line string)) *Lines { return &Lines{sinks: sinks} }

// Write implements io.Writer. It never fails.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		piece := b
		if i >= 0 {
			piece = b[:i]
		}

		if room := maxLine - len(l.part); len(piece) > room {
			l.part = append(l.part, piece[:room]...)
			b = b[room:]
			l.emitLine()
			continue
		}

		l.part = append(l.part, piece...)
		if i < 0 {
			break
		}

		b = b[i+1:]
		l.emitLine()
	}

	return n, nil
}

// Flush passes the last line to the sinks even if it has no newline.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.emitLine()
	}
}

func (l *Lines) emitLine() {
	line := printable.Clean(strings.TrimRight(string(l.part), "\r"))
	l.part = l.part[:0]
	if strings.TrimSpace(line) == "" {
		return
	}

	if len(l.tail) < tailLines {
		l.tail = append(l.tail, line)
	} else {
		l.tail[l.next] = line
	}

	l.next = (l.next + 1) % tailLines
	for _, f := range l.sinks {
		f(line)
	}
}

// Tail returns the last n lines, oldest first.
func (l *Lines) Tail(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := len(l.tail)
	n = max(0, min(n, have))
	out := make([]string, 0, n)
	for i := have - n; i < have; i++ {
		at := i
		if have == tailLines {
			at = (l.next + i) % tailLines
		}
		out = append(out, l.tail[at])
	}
	return out
}
