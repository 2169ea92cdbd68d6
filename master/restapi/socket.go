package restapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"saltern/internal/ratelimit"
)

// Messages of events over a WebSocket (salt/netapi/rest_cherrypy/app.py WebsocketEndpoint,
// tools/websockets.py SynchronizingWebsocket). The stream begins when the client sends socketReady,
// and salt-api answers each message of the client with socketAnswer.
const (
	socketReady  = "websocket client ready"
	socketAnswer = "server received message"
	maxMessage   = 1 << 10 // bytes of a message that a client sends
)

// messageRate returns the rate limit of the messages that a client sends.
func messageRate() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 1} }

// streamSocket sends the master's events over a WebSocket to a client with a valid token. The token
// is in the path, or where /events accepts it.
func streamSocket(s *Server, ctx context.Context, q *request) (any, error) {
	r, token := q.http, shownToken(q.http)
	if len(q.args) > 0 {
		token = q.args[0]
	}

	formats, err := formatEvents(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}

	if err := s.proveToken(ctx, token, q); err != nil {
		return nil, err
	}
	if !s.ofThisSite(r) {
		s.quiet.Warn("a page of another site asks for events; cors_origin does not name it", "origin",
			r.Header.Get("Origin"), "peer", q.from)
		return nil, &failure{http.StatusForbidden,
			"Pages of this site may not open a WebSocket here; cors_origin names those that may."}
	}

	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, &failure{http.StatusBadRequest, "This endpoint speaks WebSocket only."}
	}

	free, err := s.takeSeat(q)
	if err != nil {
		return nil, err
	}
	defer free()

	var f *formatted
	if formats {
		var done func()
		if f, done, err = s.formattedFor(ctx, q, token); err != nil {
			return nil, err
		}
		defer done()
	}

	s.sockets.Add(1)
	defer s.sockets.Done()
	c, err := websocket.Accept(q.w, r,
		&websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		q.code = http.StatusBadRequest // Accept has sent the answer already
		return nil, nil
	}

	q.code = http.StatusSwitchingProtocols
	c.SetReadLimit(maxMessage)
	s.serveSocket(context.WithoutCancel(ctx), q, c, token, f)
	return nil, nil
}

// formatEvents reports whether the query asks for formatted events. It refuses a query with another
// field.
func formatEvents(query string) (bool, error) {
	v, err := url.ParseQuery(query)
	_, asked := v["format_events"]
	if err != nil || len(v) > 1 || len(v) == 1 && !asked {
		return false, &failure{http.StatusBadRequest,
			"The /ws endpoint takes no query parameter but format_events: a token is in the path, the header X-Auth-Token or " +
				"the session cookie."}
	}
	return asked, nil
}

// ofThisSite reports whether the page that sent a request belongs to this site or to one in
// cors_origin. Browsers name the page's site, but do not withhold a WebSocket's messages from other
// sites. Other programs name no site, and ofThisSite returns true for them.
func (s *Server) ofThisSite(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.opts.Origins, origin) || slices.Contains(s.opts.Origins, "*") {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// serveSocket serves one connection until the client or the server ends it. f may be nil: the
// client gets the events unformatted.
func (s *Server) serveSocket(ctx context.Context, q *request, c *websocket.Conn, token string, f *formatted) {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan struct{})
	var hearing sync.WaitGroup
	hearing.Go(func() {
		defer cancel()
		s.answerMessages(ctx, c, ready)
	})
	defer hearing.Wait()

	defer func() { _ = c.CloseNow() }()
	defer cancel()
	if !s.awaitReady(ctx, q, token, ready) {
		return
	}

	var slow atomic.Bool
	reader := audience{token: token}
	r := s.hub.addReader(s.viewOf(reader), func() {
		slow.Store(true)
		cancel() // ends a write that hangs
		s.tooSlow(q)
	})
	if r == nil {
		return
	}
	defer s.hub.removeReader(r)

	r.awaitBus(ctx)
	if s.writeMessage(ctx, c, socketAnswer) != nil {
		return
	}

	s.passEvents(ctx, q, r, reader, func(frame string) bool {
		_, data, _ := strings.Cut(frame, "\n") // the frame without the line that carries the tag
		messages := []string{data}
		if f != nil {
			messages = f.takeEvent(strings.TrimPrefix(data, "data: "))
		}

		for _, text := range messages {
			s.sending(q, text)
			if err := s.writeMessage(ctx, c, text); err != nil {
				if slow.Load() || errors.Is(err, context.DeadlineExceeded) {
					s.count.cut.Add(1)
				}
				return false
			}
		}

		return true
	})
}

// awaitReady waits until the client has sent socketReady. It returns false when the connection must
// end before that.
func (s *Server) awaitReady(ctx context.Context, q *request, token string, ready <-chan struct{}) bool {
	check := time.NewTicker(trustFor)
	defer check.Stop()
	for {
		select {
		case <-ready:
			return true
		case <-ctx.Done():
			return false
		case <-s.ending:
			return false
		case <-check.C:
			if s.proveToken(ctx, token, q) != nil {
				return false
			}
		}
	}
}

// answerMessages answers the messages of a client until it sends too many or closes the connection.
// It closes ready when the client has sent socketReady.
func (s *Server) answerMessages(ctx context.Context, c *websocket.Conn, ready chan<- struct{}) {
	var said ratelimit.Bucket
	for {
		_, text, err := c.Read(ctx)
		if err != nil || !said.Take(s.now(), messageRate(), 1) {
			return
		}
		if ready != nil && string(text) == socketReady {
			close(ready)
			ready = nil
			continue
		}

		if s.writeMessage(ctx, c, socketAnswer) != nil {
			return
		}
	}
}

func (s *Server) writeMessage(ctx context.Context, c *websocket.Conn, text string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, []byte(text))
}

// withoutToken hides the token in the request's path, because the path goes to the log.
func withoutToken(r *http.Request, args []string) {
	if len(args) > 0 {
		r.URL.Path, r.URL.RawPath = "/ws/-", ""
	}
}
