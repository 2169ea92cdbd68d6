package httpserver

import (
	"io"
	"net/http"
	"time"
)

// Stream begins an answer that may last longer than the limits of its server. Complete the answer's
// header before the call. Each write is sent at once. A write that takes longer than writeLimit fails
// with [os.ErrDeadlineExceeded]; the time between two writes has no limit. One goroutine may write,
// until the handler returns.
func Stream(w http.ResponseWriter, writeLimit time.Duration) io.Writer {
	s := &stream{w: w, control: http.NewResponseController(w), each: writeLimit}
	_ = s.control.SetReadDeadline(time.Time{}) // otherwise the read deadline would end the request's context
	w.WriteHeader(http.StatusOK)
	_, _ = s.Write(nil) // the next write notices that the reader has gone away
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
	if err != nil {
		return n, err
	}

	// At a deadline, net/http resets a stream of HTTP/2 even if nothing is being written.
	return n, s.control.SetWriteDeadline(time.Time{})
}
