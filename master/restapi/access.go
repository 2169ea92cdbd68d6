package restapi

import (
	"cmp"
	"fmt"
	"os"
	"sync"

	"saltern/internal/printable"
	"saltern/internal/ratelimit"
	"saltern/master/redact"
)

// accessLog writes the file of log_access_file. Its methods may be called concurrently.
type accessLog struct {
	file *os.File

	mu        sync.Mutex
	strangers ratelimit.Bucket // bounds the log lines that unauthenticated senders cause
}

// strangeLines returns the rate limit of the log lines that unauthenticated senders cause.
func strangeLines() ratelimit.Rate { return ratelimit.Rate{Burst: 2000, PerSecond: 20} }

func openAccessLog(path string) (*accessLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the file of rest_cherrypy: log_access_file: %w", err)
	}
	return &accessLog{file: f}, nil
}

// logAccess writes one line about an answered request, in the format of web servers. When
// unauthenticated senders exceed their rate limit, it drops the lines that they cause and reports
// that in the log of salt-api.
func (s *Server) logAccess(q *request) {
	if s.access == nil {
		return
	}

	if q.class == ratelimit.Stranger {
		s.access.mu.Lock()
		room := s.access.strangers.Take(s.now(), strangeLines(), 1)
		s.access.mu.Unlock()

		if !room {
			s.quiet.Warn("requests of strangers are left out of the access log", "path", s.opts.AccessFile,
				"so_far", s.count.unlogged.Add(1))
			return
		}
	}

	r := q.http
	_, err := fmt.Fprintf(s.access.file, "%s - - [%s] \"%s %s %s\" %d %d \"%s\" \"%s\"\n",
		q.from, s.now().Format("02/Jan/2006:15:04:05 -0700"),
		printable.Brief(r.Method, 16), printable.Brief(r.URL.EscapedPath(), 1024), r.Proto, q.code, q.sent,
		printable.Brief(redact.Text(cmp.Or(r.Referer(), "-")), 256), printable.Brief(
			redact.Text(cmp.Or(r.UserAgent(), "-")), 256))
	if err != nil {
		s.quiet.Warn("the access log cannot be written", "path", s.opts.AccessFile, "error", err)
	}
}
