package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/test/minion"
)

// player is one minion of the swarm. Its requests go one after another, as
// with a REQ socket.
type player struct {
	s       *swarm
	id      string
	line    *line
	publics atomic.Pointer[crypt.Key] // opens publishes; nil before the first sign-in

	mu     sync.Mutex
	minion *minion.Minion // guarded by mu
}

func (s *swarm) player(id string, p pair) (*player, error) {
	out := &player{s: s, id: id, line: newLine(id)}
	m, err := minion.New(minion.Config{
		ID:        id,
		Key:       p.key,
		Proof:     p.proof,
		Master:    s.masterKey,
		Tokenless: !s.opts.token,
		Exchange: func(ctx context.Context, payload []byte) ([]byte, error) {
			return s.wire.exchange(ctx, out.line, payload)
		},
	})
	out.minion = m
	return out, err
}

// close hangs up.
func (p *player) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.close()
}

// take gives the player keys of an earlier sign-in.
func (p *player) take(publics, session crypt.Key) {
	p.minion.Publics, p.minion.Session = publics, session
	p.publics.Store(&publics)
}

func (p *player) signedIn() bool { return p.publics.Load() != nil }

func (p *player) signIn(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signInHeld(ctx)
}

// signInHeld signs in. The caller holds mu.
func (p *player) signInHeld(ctx context.Context) error {
	err := p.minion.SignIn(ctx)
	if err == nil {
		publics := p.minion.Publics
		p.publics.Store(&publics)
	}
	return err
}

// call makes a request. A master that does not know the session any more
// makes the minion sign in and ask once more, as real ones do.
func (p *player) call(ctx context.Context, request func(m *minion.Minion) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := request(p.minion)
	if errors.Is(err, minion.ErrRefused) || errors.Is(err, crypt.ErrOpen) {
		p.s.again.Add(1)
		if err = p.signInHeld(ctx); err == nil {
			err = request(p.minion)
		}
	}
	return err
}

func (p *player) ask(ctx context.Context, cmd string, fields ...any) (answer any, err error) {
	err = p.call(ctx, func(m *minion.Minion) error {
		answer, err = m.Ask(ctx, cmd, fields...)
		return err
	})
	return answer, err
}

// tell makes a request that a master answers with nothing or true.
func (p *player) tell(ctx context.Context, cmd string, fields ...any) error {
	answer, err := p.ask(ctx, cmd, fields...)
	if err == nil && answer != nil && answer != true {
		return fmt.Errorf("%s: answered %.60v", cmd, answer)
	}
	return err
}

func (p *player) giveReturn(ctx context.Context, jid, fun string, args []any, result any) error {
	if args == nil {
		args = []any{}
	}
	return p.tell(ctx, "_return", "success", true, "return", result, "retcode", 0, "jid", jid, "fun", fun,
		"fun_args", args)
}

func (p *player) fire(ctx context.Context, tag string, data *value.Map) error {
	return p.tell(ctx, "_minion_event", "pretag", nil, "data", data, "tag", tag)
}
