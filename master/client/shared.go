package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Bounds of connections that are kept for the next request.
const (
	maxKept  = 16
	keepTime = 10 * time.Second
)

// Shared is what clients of one program have in common: connections to the master that
// are kept for the next request, one to its events, and one for events of the program's
// own. It is safe for concurrent use.
type Shared struct {
	feed   *feed
	sender *event.Sender

	mu   sync.Mutex
	kept []kept // the latest last
}

type kept struct {
	req   *zmtp.Req
	since time.Time
}

// NewShared prepares connections to the master whose sock_dir this is; nothing is opened
// until a client needs it. Close must be called when all clients are closed.
func NewShared(sockDir string) *Shared {
	return &Shared{feed: &feed{dir: sockDir, shared: true}, sender: event.NewSender(sockDir)}
}

// Fire puts an event on the master's bus, as [Client.Fire] does.
func (s *Shared) Fire(ctx context.Context, tag string, data *value.Map) error {
	ctx, cancel := context.WithTimeout(ctx, fireFor)
	defer cancel()
	return s.sender.Fire(ctx, tag, data)
}

// Close hangs up.
func (s *Shared) Close() {
	s.sender.Close()
	s.feed.close()
	if s.feed.idle != nil {
		s.feed.idle.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		k.req.Close()
	}
	s.kept = nil
}

// takeConnection gives a connection to the address: one that is kept and was not lost meanwhile, or
// a new one. keep or Close must be called for it. A nil Shared keeps none.
func (s *Shared) takeConnection(ctx context.Context, address string) (*zmtp.Req, error) {
	for s != nil {
		k, ok := s.takeLast()
		if !ok {
			break
		}
		if k.req.Alive() && time.Since(k.since) < keepTime {
			return k.req, nil
		}

		k.req.Close()
	}

	r, err := zmtp.DialReq(ctx, address, zmtp.DialConfig{})
	if err != nil {
		return nil, fmt.Errorf("connect to the master: %w", err)
	}

	return r, nil
}

// takeLast takes the connection that was kept last, and closes those that have been for too
// long.
func (s *Shared) takeLast() (k kept, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 1 && time.Since(s.kept[0].since) >= keepTime {
		s.kept[0].req.Close()
		s.kept = s.kept[1:]
	}
	if len(s.kept) == 0 {
		return k, false
	}
	k = s.kept[len(s.kept)-1]
	s.kept = s.kept[:len(s.kept)-1]
	return k, true
}

// giveBack gives a connection back that has answered.
func (s *Shared) giveBack(r *zmtp.Req) {
	if s == nil {
		r.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxKept {
		r.Close()
		return
	}
	s.kept = append(s.kept, kept{r, time.Now()})
}
