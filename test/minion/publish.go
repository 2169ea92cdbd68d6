package minion

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Next gives the next job that the master publishes; it connects first where
// needed. After an error it connects anew. A publish that does not open is an
// error of its own: signing in again repairs it.
func (m *Minion) Next(ctx context.Context) (*value.Map, error) {
	if m.sub == nil {
		sub, err := zmtp.DialSub(ctx, m.Publish, zmtp.DialConfig{Dialer: m.Dialer}, "")
		if err != nil {
			return nil, err
		}
		m.sub = sub
	}

	frames, err := m.sub.Next(ctx)
	if err != nil {
		m.sub.Close()
		m.sub = nil
		return nil, err
	}

	m.last = frames[len(frames)-1]
	return m.open(m.last)
}

// Again opens what Next got last, after a new sign-in, as real minions do
// (salt/channel/client.py _decode_payload).
func (m *Minion) Again() (*value.Map, error) { return m.open(m.last) }

// ErrPublish is a publish that does not open with the keys of this minion.
var ErrPublish = errors.New("a publish does not open")

func (m *Minion) open(payload []byte) (*value.Map, error) { return Open(payload, m.Master, m.Publics) }

// Open checks and opens what the master published.
func Open(payload []byte, master *rsa.PublicKey, publics crypt.Key) (*value.Map, error) {
	v, err := msgpack.Decode(payload, msgpack.DefaultLimits)
	if err != nil {
		return nil, err
	}

	p, _ := v.(*value.Map)
	if p == nil {
		return nil, fmt.Errorf("%w: %.80v", ErrPublish, v)
	}

	blob, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	if err := crypt.Verify(master, crypt.PKCS1SHA1, blob, sig); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPublish, err)
	}

	plain, err := publics.Open(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPublish, err)
	}

	if v, err = msgpack.Decode(plain, msgpack.DefaultLimits); err != nil {
		return nil, err
	}

	job, _ := v.(*value.Map)
	if job == nil {
		return nil, fmt.Errorf("%w: %.80v", ErrPublish, v)
	}

	return job, nil
}
