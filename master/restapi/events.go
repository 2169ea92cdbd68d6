package restapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/httpserver"
	"saltern/internal/pause"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/value"
)

// Bounds of the events that wait for one reader.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 8 << 20
)

// firstLook is how long a new reader waits for salt-api to connect to the master's bus. After that
// time salt-api answers without the bus. Once salt-api has connected, the reader gets the events
// that are fired from then on.
const firstLook = time.Second

// hub reads the master's event bus once for all readers, and only while there are readers. It
// decides which readers get which event.
type hub struct {
	dir    string
	log    *slog.Logger
	wg     sync.WaitGroup
	owners owners // users of jobs; only the goroutine that reads the bus uses this field

	mu      sync.Mutex
	readers map[*eventReader]struct{}
	cancel  context.CancelFunc // stops the reading goroutine; nil: no such goroutine runs
	reads   chan struct{}      // closed when the reading goroutine has reached the bus
	ended   bool
}

// eventReader holds the events that wait for one reader. All readers share the text of an event, so
// a reader takes little memory while no event waits for it.
type eventReader struct {
	wake  chan struct{}   // has an element when an event waits or the hub has cut the reader
	cut   func()          // ends a write that hangs; the hub calls it to cut a slow reader
	reads <-chan struct{} // closed when the hub has reached the bus

	// The hub's lock guards the fields below.
	sees          view
	queue         []string // frames to send next
	frames, bytes int      // sizes of the queue and of the batch that is being sent, together
	gone, slow    bool
}

// view determines which events a reader may see: either all events, or the events of the reader's
// own jobs and of one further job.
type view struct {
	all bool
	own owner
	job string // id of the further job, which another user may have started; "" for none
}

// shows reports whether the view includes an event, by its tag and by the user of its job.
func (v view) shows(tag string, user jobUser) bool {
	if v.all || user.isOwnedBy(v.own) {
		return true
	}
	jid, _ := partOf(tag)
	return v.job != "" && jid == v.job
}

// newHub returns a hub. ask returns the user of a job; see owners.
func newHub(sockDir string, log *slog.Logger, ask func(context.Context, string) (jobUser, error)) *hub {
	h := &hub{dir: sockDir, log: log, readers: map[*eventReader]struct{}{}}
	h.owners = owners{users: map[string]jobUser{}, ask: ask, now: time.Now}
	return h
}

// addReader adds a reader, or returns nil when the hub has been closed. The caller must call
// removeReader when it no longer reads. sees decides which events the reader gets. The hub calls
// cut when the reader is too slow; cut must not block.
func (h *hub) addReader(sees view, cut func()) *eventReader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil
	}

	if h.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		reads := make(chan struct{})
		h.cancel, h.reads = cancel, reads
		h.wg.Go(func() { h.readBus(ctx, sync.OnceFunc(func() { close(reads) })) })
	}

	r := &eventReader{wake: make(chan struct{}, 1), cut: cut, reads: h.reads, sees: sees}
	h.readers[r] = struct{}{}
	return r
}

// awaitBus waits until the hub reads the bus, at most for firstLook. If salt-api answers the client
// only after awaitBus, the client misses no event of the jobs that it starts next.
func (r *eventReader) awaitBus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	select {
	case <-r.reads:
	case <-ctx.Done():
	}
}

// setView changes what a reader may see. If the reader may see less than before, setView drops the
// events that wait for it.
func (h *hub) setView(r *eventReader, sees view) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.sees.all && !sees.all {
		for _, frame := range r.queue {
			r.frames, r.bytes = r.frames-1, r.bytes-len(frame)
		}
		r.queue = nil
	}
	r.sees = sees
}

func (h *hub) removeReader(r *eventReader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutReader(r)
	if len(h.readers) == 0 && h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
}

func (h *hub) cutReader(r *eventReader) {
	if _, ok := h.readers[r]; ok {
		delete(h.readers, r)
		r.gone = true
		r.wakeUp()
	}
}

func (r *eventReader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is already waiting for the reader
	}
}

// takeBatch returns the frames that wait for a reader. ok is false when the hub has cut the reader;
// slow is true if it did so because the reader was too slow. The caller must call countTaken for
// each frame.
func (h *hub) takeBatch(r *eventReader) (frames []string, ok, slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	frames, r.queue = r.queue, nil
	return frames, !r.gone, r.slow
}

// countTaken counts a frame of a batch as no longer waiting.
func (h *hub) countTaken(r *eventReader, frame string) {
	h.mu.Lock()
	r.frames, r.bytes = r.frames-1, r.bytes-len(frame)
	h.mu.Unlock()
}

// cutAll cuts all readers. After that, addReader adds none.
func (h *hub) cutAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for r := range h.readers {
		h.cutReader(r)
	}
	if h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
}

// closeAndWait calls cutAll and waits for the end of the reading goroutine.
func (h *hub) closeAndWait() {
	h.cutAll()
	h.wg.Wait()
}

// readBus reads events until ctx ends, and connects again when the master closes the connection. It
// calls reads after each connect.
func (h *hub) readBus(ctx context.Context, reads func()) {
	for ctx.Err() == nil {
		l, err := event.DialPub(ctx, h.dir)
		if err != nil {
			h.log.Debug("the master's events cannot be read", "error", err)
		} else {
			reads()
		}

		for err == nil {
			var e event.Event
			if e, err = l.Next(ctx); err == nil {
				h.sendToReaders(ctx, e)
			}
		}

		if l != nil {
			l.Close()
		}

		if pause.For(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// sendToReaders queues an event for all readers that may see it.
func (h *hub) sendToReaders(ctx context.Context, e event.Event) {
	h.owners.hearEvent(e)
	var user jobUser
	if h.limited() {
		user = h.owners.userOf(ctx, e.Tag)
	}
	h.queueFrame(e.Tag, user, sync.OnceValue(func() string { return sseFrame(e) }))
}

// limited reports whether there is a reader that may not see all events.
func (h *hub) limited() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		if !r.sees.all {
			return true
		}
	}
	return false
}

// queueFrame queues a frame for all readers that may see it. Overflow policy: when too much waits
// for a reader, the hub cuts the reader. The cut connection shows the reader's client that it may
// have missed events.
func (h *hub) queueFrame(tag string, user jobUser, text func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		if !r.sees.shows(tag, user) {
			continue
		}

		frame := text()
		r.frames, r.bytes = r.frames+1, r.bytes+len(frame)
		if r.frames <= maxWaiting && (r.bytes <= maxWaitingBytes || r.frames == 1) {
			r.queue = append(r.queue, frame)
			r.wakeUp()
			continue
		}

		r.slow = true
		h.cutReader(r)
		r.cut()
	}
}

// sseFrame returns an event as a Server-Sent Event, preceded by the line with the event's tag that
// Salt adds. JSON contains no line breaks; sseFrame replaces line breaks in a tag by blanks, since
// they would end the line.
func sseFrame(e event.Event) string {
	tag := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Tag)
	return "tag: " + tag + "\ndata: " + asJSON(value.NewMap("tag", e.Tag, "data", e.Data)) + "\n\n"
}

// streamEvents streams the master's events to a client with a valid token.
func streamEvents(s *Server, ctx context.Context, q *request) (any, error) {
	if q.http.URL.RawQuery != "" {
		return nil, &failure{http.StatusBadRequest,
			"The /events endpoint takes no query parameters; in particular, tokens must not be passed " +
				"via the query string -- they end up in access logs and the Referer header. Use the 'X-Auth-Token' header (for non-browser " +
				"clients) or the session cookie set by /login (for browser EventSource clients) instead."}
	}
	token := shownToken(q.http)
	if err := s.proveToken(ctx, token, q); err != nil {
		return nil, err
	}
	return nil, s.listen(ctx, q, audience{token: token}, func(frame string) string { return frame })
}

// takeSeat reserves one of the slots for readers of events, and releases all shares that the
// request holds. The caller must call free when it no longer reads.
func (s *Server) takeSeat(q *request) (free func(), err error) {
	place := s.pools.readers.Take(q.holder, q.class, 1)
	if place == nil {
		s.count.busy.Add(1)
		return nil, &failure{http.StatusServiceUnavailable,
			"You listen to events by as many connections as there are places for you. Close other pages or programs that do."}
	}
	q.releaseAll()
	q.noteWorking()
	return place.Release, nil
}

// sending counts an event that the caller is about to send to a reader.
func (s *Server) sending(q *request, text string) {
	s.count.events.Add(1)
	q.sent += len(text)
}

func (s *Server) tooSlow(q *request) {
	s.quiet.Warn("a reader of events was too slow and is cut", "peer", q.from)
}

// audience describes a reader of events: its valid token, and the job that it follows, or "".
type audience struct{ token, job string }

// viewOf returns the view to which the owner of the token is entitled now.
func (s *Server) viewOf(a audience) view {
	user := s.guard.sessionOf(a.token).owner
	v := view{all: s.hasRight(user, conf.AllEvents), own: user}
	if a.job != "" && s.hasRight(user, conf.AllJobs) {
		v.job = a.job // the user may also read the job from the job cache
	}
	return v
}

// hasRight reports whether a user has a right that does not concern a function, such as
// [conf.AllEvents]. A Saltern master sends these rights with each answer about a token; with a Salt
// master salt-api derives them from the configuration.
func (s *Server) hasRight(user owner, right string) bool {
	words := user.rights
	if words == nil {
		words = s.master.Rights(s.granted(user))
	}
	return slices.Contains(words, right)
}

// listen sends events to a reader until the connection ends. The function part returns what the
// reader gets of a frame; if it returns "", listen does not send the frame.
func (s *Server) listen(ctx context.Context, q *request, a audience, part func(frame string) string) error {
	free, err := s.takeSeat(q)
	if err != nil {
		return err
	}
	defer free()

	rc := http.NewResponseController(q.w)
	r := s.hub.addReader(s.viewOf(a), func() {
		_ = rc.SetWriteDeadline(time.Unix(1, 0))
		s.tooSlow(q)
	})
	if r == nil {
		return &failure{code: http.StatusServiceUnavailable}
	}
	defer s.hub.removeReader(r)

	r.awaitBus(ctx)
	h := q.w.Header()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	q.code = http.StatusOK
	if q.http.Method == http.MethodHead {
		q.w.WriteHeader(http.StatusOK)
		return nil
	}

	s.stream(ctx, q, r, a, part)
	return nil
}

// stream sends events to a reader as Server-Sent Events. It sends the answer's header first.
func (s *Server) stream(ctx context.Context, q *request, r *eventReader, a audience, pick func(string) string) {
	out := httpserver.Stream(q.w, writeTime)
	write := func(text string) bool {
		_, err := io.WriteString(out, text)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.count.cut.Add(1)
		}
		return err == nil
	}
	if !write("retry: 400\n") {
		return
	}

	s.passEvents(ctx, q, r, a, func(frame string) bool {
		text := pick(frame)
		if text == "" {
			return true
		}
		s.sending(q, text)
		return write(text)
	})
}

// passEvents sends events to a reader until the reader's connection ends, the reader is too slow,
// or its token becomes invalid. When the rights of the token's owner change, passEvents changes the
// reader's view.
func (s *Server) passEvents(ctx context.Context, q *request, r *eventReader, a audience, send func(frame string) bool) {
	check := time.NewTicker(trustFor)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			if s.proveToken(ctx, a.token, q) != nil {
				return
			}
			s.hub.setView(r, s.viewOf(a))
		case <-r.wake:
		}

		frames, ok, slow := s.hub.takeBatch(r)
		if !ok {
			if slow {
				s.count.cut.Add(1)
			}
			return
		}

		for _, f := range frames {
			s.hub.countTaken(r, f)
			if !send(f) {
				return
			}
		}
	}
}
