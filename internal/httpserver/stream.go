package httpserver

import (
	"io"
	"net/http"
	"time"
)

// Stream begins an answer that may last longer than the bounds of its server. What
// is written is sent at once, and each write ends within a time. The answer's header
// must be complete. One goroutine may write, until the handler returns.
func Stream(w http.ResponseWriter, each time.Duration) io.Writer {
	s := &stream{w: w, control: http.NewResponseController(w), each: each}
	_ = s.control.SetReadDeadline(time.Time{}) // else its end would end the request's context
	w.WriteHeader(http.StatusOK)
	_, _ = s.Write(nil) // a reader that is gone is noticed by the next write
	return s
}

type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	each    time.Duration
}

// Write implements [io.Writer].
func (s *stream) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.each)); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}
