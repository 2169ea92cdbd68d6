package restapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/value"
)

// Bounds of one reader of events.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 8 << 20
)

// firstLook is how long a reader waits for the master's bus before it is answered all the
// same: when the master is back, it gets what comes then.
const firstLook = time.Second

// hub reads the master's event bus once for all who want it, and not at all while
// there is nobody. It is where it is decided who gets which event.
type hub struct {
	dir    string
	log    *slog.Logger
	wg     sync.WaitGroup
	owners owners // of the goroutine that reads

	mu      sync.Mutex
	readers map[*eventReader]struct{}
	cancel  context.CancelFunc // of the goroutine that reads
	reads   chan struct{}      // closed when that one has reached the bus
	ended   bool
}

// eventReader is what waits for one reader. Readers share the text of an event, and one for
// whom nothing waits holds next to nothing.
type eventReader struct {
	wake  chan struct{}   // something has come, or it is cut
	cut   func()          // ends a write that is stuck
	reads <-chan struct{} // closed when the hub has reached the bus

	// Of the hub's lock.
	sees          view
	queue         []string // that come next
	frames, bytes int      // that have not been taken, of the queue and of the last batch
	gone, slow    bool
}

// view is what a reader may see: all events, or those of his own jobs, and of one job
// whoever started it.
type view struct {
	all bool
	own owner
	job string // "" for none
}

// shows reports whether an event may be shown: its tag, and who started the job to which
// it belongs.
func (v view) shows(tag string, of jobUser) bool {
	if v.all || of.isOwnedBy(v.own) {
		return true
	}
	jid, _ := partOf(tag)
	return v.job != "" && jid == v.job
}

// newHub makes a hub; ask finds out who started a job, see owners.
func newHub(sockDir string, log *slog.Logger, ask func(context.Context, string) (jobUser, error)) *hub {
	h := &hub{dir: sockDir, log: log, readers: map[*eventReader]struct{}{}}
	h.owners = owners{users: map[string]jobUser{}, ask: ask, now: time.Now}
	return h
}

// addReader adds a reader; nil when the hub has ended. leave must be called for it. cut is
// called when it is too slow, and must not block.
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

// awaitBus waits until the hub reads the bus, so that who is answered then misses nothing
// of what he starts next; firstLook bounds it.
func (r *eventReader) awaitBus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	select {
	case <-r.reads:
	case <-ctx.Done():
	}
}

// setView changes what a reader may see. What waits for one that sees less than before is
// lost to it.
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
	default: // it will look anyway
	}
}

// takeBatch gives a reader all that waits for it; ok is false when it is cut, slow says why.
// It calls taken for each frame.
func (h *hub) takeBatch(r *eventReader) (frames []string, ok, slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	frames, r.queue = r.queue, nil
	return frames, !r.gone, r.slow
}

// countTaken tells that a reader has got a frame.
func (h *hub) countTaken(r *eventReader, frame string) {
	h.mu.Lock()
	r.frames, r.bytes = r.frames-1, r.bytes-len(frame)
	h.mu.Unlock()
}

// cutAll cuts all readers; no new ones come.
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

// closeAndWait is end, and waits.
func (h *hub) closeAndWait() {
	h.cutAll()
	h.wg.Wait()
}

// readBus reads events until ctx ends; when the master hangs up it connects anew. It calls
// reads when it is connected.
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

// sendToReaders hands an event to all readers who may see it.
func (h *hub) sendToReaders(ctx context.Context, e event.Event) {
	h.owners.hearEvent(e)
	var of jobUser
	if h.limited() {
		of = h.owners.userOf(ctx, e.Tag)
	}
	h.queueFrame(e.Tag, of, sync.OnceValue(func() string { return sseFrame(e) }))
}

// limited reports whether there is a reader who does not see all events.
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

// queueFrame queues a frame for all readers who may see it. One that has too much waiting is
// cut: its client connects anew, and knows that it may have missed something.
func (h *hub) queueFrame(tag string, of jobUser, text func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		if !r.sees.shows(tag, of) {
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

// sseFrame is an event in the form of Server-Sent Events, with the line for its tag
// that Salt adds. JSON has no line breaks; a tag may have them, and would end its line.
func sseFrame(e event.Event) string {
	tag := strings.NewReplacer("\r", " ", "\n", " ").Replace(e.Tag)
	return "tag: " + tag + "\ndata: " + asJSON(value.NewMap("tag", e.Tag, "data", e.Data)) + "\n\n"
}

// streamEvents streams the master's events to whoever has a good token.
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

// takeSeat takes a place among the readers of events, for which the request gives up that among
// the requests; free gives it back.
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

// sending counts an event that is about to be sent.
func (s *Server) sending(q *request, text string) {
	s.count.events.Add(1)
	q.sent += len(text)
}

func (s *Server) tooSlow(q *request) {
	s.quiet.Warn("a reader of events was too slow and is cut", "peer", q.from)
}

// audience is a reader of events: his token, which was proven a moment ago, and the job
// that he follows, if it is one.
type audience struct{ token, job string }

// viewOf is what the owner of the token may see now.
func (s *Server) viewOf(a audience) view {
	who := s.guard.sessionOf(a.token).owner
	v := view{all: s.hasRight(who, conf.AllEvents), own: who}
	if a.job != "" && s.hasRight(who, conf.AllJobs) {
		v.job = a.job // he may look it up, too
	}
	return v
}

// hasRight reports whether somebody has a right that is no function. The master says so with
// each answer about his token; a master of Salt's does not, and what it grants is in the
// configuration.
func (s *Server) hasRight(who owner, right string) bool {
	words := who.rights
	if words == nil {
		words = s.master.Rights(s.granted(who))
	}
	return slices.Contains(words, right)
}

// listen streams events to a reader. pick gives what is sent of a frame, "" for nothing.
func (s *Server) listen(ctx context.Context, q *request, a audience, pick func(frame string) string) error {
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
	q.w.WriteHeader(http.StatusOK)
	q.code = http.StatusOK

	if q.http.Method != http.MethodHead {
		s.stream(ctx, q, r, a, pick)
	}

	return nil
}

// stream sends what comes for a reader as Server-Sent Events.
func (s *Server) stream(ctx context.Context, q *request, r *eventReader, a audience, pick func(string) string) {
	rc := http.NewResponseController(q.w)
	write := func(text string) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := q.w.Write([]byte(text))
		if err == nil {
			err = rc.Flush()
		}

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

// passEvents hands a reader what comes for it until it leaves, is too slow, or its token is
// not good any more. It sees less, or more, when its owner's rights have changed.
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
