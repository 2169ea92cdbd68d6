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

// Limits of the idle connections that a Shared keeps for later requests.
const (
	maxKept  = 16
	keepTime = 10 * time.Second
)

// Shared holds the connections that the clients of one program share: idle connections to the
// master for later requests, one connection for its events, and one for firing events. It is safe
// for concurrent use.
type Shared struct {
	feed   *feed
	sender *event.Sender

	mu   sync.Mutex
	kept []kept // idle connections in order of use, the latest last
}

type kept struct {
	req   *zmtp.Req
	since time.Time
}

// NewShared returns a Shared for the master with this sock_dir. The Shared connects when a client
// needs a connection. The caller closes the Shared after all its clients.
func NewShared(sockDir string) *Shared {
	return &Shared{feed: &feed{dir: sockDir, shared: true}, sender: event.NewSender(sockDir)}
}

// Fire puts an event on the master's bus, as [Client.Fire] does.
func (s *Shared) Fire(ctx context.Context, tag string, data *value.Map) error {
	ctx, cancel := context.WithTimeout(ctx, fireFor)
	defer cancel()
	return s.sender.Fire(ctx, tag, data)
}

// Close closes all connections.
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

// takeConnection returns a connection to the address: an idle one that is still open, or a new one.
// The caller must pass the connection to giveBack or close it. On a nil Shared, takeConnection
// always opens a new connection.
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

// takeLast removes and returns the connection that was used last. It closes the connections that
// have been idle for longer than keepTime.
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

// giveBack keeps a connection for a later request. The last request on the connection was answered.
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
