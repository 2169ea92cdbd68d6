package tui

import (
	"bytes"
	"os"
)

// line is a terminal on which the cursor is moved down by its own sequence. The
// renderer uses a bare line feed, which keeps the column where nobody adds a
// carriage return to it. On a serial line that ends at another terminal, such as
// that of qemu -nographic, somebody does.
type line struct {
	*os.File
	last byte
}

const cursorDown = "\x1b[B" // CUD, ECMA-48 8.3.19

// Write implements io.Writer.
func (l *line) Write(p []byte) (int, error) {
	if bytes.IndexByte(p, '\n') < 0 {
		return l.write(p, p)
	}
	var out []byte
	last := l.last
	for _, b := range p {
		if b == '\n' && last != '\r' {
			out = append(out, cursorDown...)
		} else {
			out = append(out, b)
		}
		last = b
	}
	return l.write(p, out)
}

// WriteString implements io.StringWriter, which that of the file would be else.
func (l *line) WriteString(s string) (int, error) { return l.Write([]byte(s)) }

// write writes out for p.
func (l *line) write(p, out []byte) (int, error) {
	if len(p) > 0 {
		l.last = p[len(p)-1]
	}
	if _, err := l.File.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
