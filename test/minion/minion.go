// Package minion is a scripted minion for tests: it signs in, listens and asks
// as the Python one does, a hundred of them in one process, and sends whatever
// it is told. It checks what real minions check (signatures, nonces), and
// nothing is retried behind the caller's back.
package minion

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/zmtp"
)

// Config says who a minion is and whom it talks to.
type Config struct {
	ID      string
	Key     *rsa.PrivateKey
	Master  *rsa.PublicKey // pinned
	Request string         // address of port 4506
	Publish string         // address of port 4505
	Dialer  net.Dialer     // of its connections; a host may have vanished: no Timeout means 2 s
}

// Minion is one scripted minion. It is for one goroutine. Close must be
// called.
type Minion struct {
	Config
	Session crypt.Key // from the last sign-in
	Publics crypt.Key // opens publishes; from the last sign-in

	token []byte
	conn  *zmtp.Req
	sub   *zmtp.Sub
	last  []byte // publish
}

// connectWait bounds connecting: a host may have vanished.
const connectWait = 2 * time.Second

// ErrRefused is an answer in the clear where a sealed one was due: a real
// minion signs in again upon it.
var ErrRefused = errors.New("the master refused")

// ErrWaiting says that a sign-in was answered, and the key is not accepted.
var ErrWaiting = errors.New("the key is not accepted")

// New makes a minion; it does not connect.
func New(c Config) (*Minion, error) {
	if c.Dialer.Timeout == 0 {
		c.Dialer.Timeout = connectWait
	}
	token, err := crypt.X931Sign(c.Key, []byte("salt"))
	if err != nil {
		return nil, fmt.Errorf("minion %s: %w", c.ID, err)
	}
	return &Minion{Config: c, token: token}, nil
}

// Close hangs up.
func (m *Minion) Close() {
	m.hangUp()
	if m.sub != nil {
		m.sub.Close()
		m.sub = nil
	}
}

func (m *Minion) hangUp() {
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

// Nonce gives 32 random hexadecimal digits.
func Nonce() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// SignIn does the handshake (salt/crypt.py sign_in) and keeps both keys.
func (m *Minion) SignIn(ctx context.Context) error {
	pem, err := crypt.PublicPEM(&m.Key.PublicKey)
	if err != nil {
		return err
	}
	nonce := Nonce()
	load := msgpack.NewMap("cmd", "_auth", "id", m.ID, "nonce", nonce, "enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1SHA1, "pub", pem)
	answer, err := m.send(ctx, msgpack.NewMap("enc", "clear", "load", load, "version", 3))
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	outer, _ := answer.(*msgpack.Map)
	if outer == nil {
		return fmt.Errorf("sign-in: answered %.80v", answer)
	}
	packed, _ := outer.Bytes("load")
	sig, _ := outer.Bytes("sig")
	if err := crypt.Verify(m.Master, crypt.PKCS1SHA1, packed, sig); err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	inner, _ := v.(*msgpack.Map)
	switch {
	case inner == nil || inner.Str("nonce") != nonce:
		return fmt.Errorf("sign-in: answer to another question: %.80v", v)
	case inner.Str("enc") != "pub":
		return fmt.Errorf("sign-in of %s: %w", m.ID, ErrWaiting)
	}
	if m.Publics, err = m.unwrap(inner, "aes"); err == nil {
		m.Session, err = m.unwrap(inner, "session")
	}
	return err
}

func (m *Minion) unwrap(answer *msgpack.Map, field string) (crypt.Key, error) {
	wrapped, _ := answer.Bytes(field)
	text, err := crypt.Decrypt(m.Key, crypt.OAEPSHA1, wrapped)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("key %s of a sign-in: %w", field, err)
	}
	return crypt.ParseKey(string(text))
}

// Ask sends one command, sealed, and opens the answer. After an error other
// than ErrRefused the connection is a new one the next time.
func (m *Minion) Ask(ctx context.Context, cmd string, fields ...any) (any, error) {
	answer, nonce, err := m.ask(ctx, cmd, fields...)
	if err != nil {
		return nil, err
	}
	sealed, ok := answer.([]byte)
	if !ok {
		return nil, fmt.Errorf("%s: %w: %.80v", cmd, ErrRefused, answer)
	}
	plain, err := m.Session.OpenReply(sealed, nonce)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return msgpack.Decode(plain, msgpack.DefaultLimits)
}

// ask gives the answer as it came, and the nonce of the question.
func (m *Minion) ask(ctx context.Context, cmd string, fields ...any) (answer any, nonce string, err error) {
	payload, nonce, err := m.Pack(cmd, fields...)
	if err == nil {
		answer, err = m.Send(ctx, payload)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", cmd, err)
	}
	return answer, nonce, nil
}

// Pack makes the request that Ask sends, to be sent by Send.
func (m *Minion) Pack(cmd string, fields ...any) (payload []byte, nonce string, err error) {
	load := msgpack.NewMap(append([]any{"cmd", cmd}, fields...)...)
	nonce = Nonce()
	load.Set("id", m.ID)
	load.Set("nonce", nonce)
	load.Set("ts", time.Now().Unix())
	load.Set("tok", m.token)
	packed, err := msgpack.Marshal(load, msgpack.Raw)
	if err != nil {
		return nil, "", err
	}
	payload, err = msgpack.Marshal(msgpack.NewMap("enc", "aes", "load", m.Session.Seal(packed, ""), "version", 3,
		"enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1SHA1, "id", m.ID), msgpack.Raw)
	return payload, nonce, err
}

// Return gives the return of a job. Nil means that the master has taken it.
func (m *Minion) Return(ctx context.Context, jid, fun string, value any) error {
	_, err := m.Ask(ctx, "_return", "jid", jid, "fun", fun, "fun_args", []any{}, "return", value, "retcode", 0, "success", true)
	return err
}

func (m *Minion) send(ctx context.Context, v any) (any, error) {
	payload, err := msgpack.Marshal(v, msgpack.Raw)
	if err != nil {
		return nil, err
	}
	return m.Send(ctx, payload)
}

// Send sends what is packed already, such as what was sent before, and gives
// the answer as it came.
func (m *Minion) Send(ctx context.Context, payload []byte) (any, error) {
	if m.conn == nil {
		var err error
		if m.conn, err = zmtp.DialReq(ctx, m.Request, zmtp.DialConfig{Identity: "salt-req/minion/" + m.ID, Dialer: m.Dialer}); err != nil {
			m.conn = nil
			return nil, err
		}
	}
	b, err := m.conn.Do(ctx, payload)
	if err != nil {
		m.hangUp()
		return nil, err
	}
	return msgpack.Decode(b, msgpack.DefaultLimits)
}

// Next gives the next job that the master publishes; it connects first where
// needed. After an error it connects anew. A publish that does not open is an
// error of its own: signing in again mends it.
func (m *Minion) Next(ctx context.Context) (*msgpack.Map, error) {
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
func (m *Minion) Again() (*msgpack.Map, error) { return m.open(m.last) }

// ErrPublish is a publish that does not open with the keys of this minion.
var ErrPublish = errors.New("a publish does not open")

func (m *Minion) open(payload []byte) (*msgpack.Map, error) {
	v, err := msgpack.Decode(payload, msgpack.DefaultLimits)
	if err != nil {
		return nil, err
	}
	p, _ := v.(*msgpack.Map)
	if p == nil {
		return nil, fmt.Errorf("%w: %.80v", ErrPublish, v)
	}
	blob, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	if err := crypt.Verify(m.Master, crypt.PKCS1SHA1, blob, sig); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPublish, err)
	}
	plain, err := m.Publics.Open(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPublish, err)
	}
	if v, err = msgpack.Decode(plain, msgpack.DefaultLimits); err != nil {
		return nil, err
	}
	job, _ := v.(*msgpack.Map)
	if job == nil {
		return nil, fmt.Errorf("%w: %.80v", ErrPublish, v)
	}
	return job, nil
}

// Pillar asks for the pillar and opens the private reply
// (salt/channel/server.py _encrypt_private).
func (m *Minion) Pillar(ctx context.Context) (*msgpack.Map, error) {
	answer, nonce, err := m.ask(ctx, "_pillar", "grains", msgpack.NewMap("id", m.ID), "saltenv", nil, "pillarenv", nil,
		"pillar_override", msgpack.NewMap(), "extra_minion_data", msgpack.NewMap(), "ver", "2")
	if err != nil {
		return nil, err
	}
	outer, _ := answer.(*msgpack.Map)
	if outer == nil {
		return nil, fmt.Errorf("_pillar: %w: %.80v", ErrRefused, answer)
	}
	wrapped, _ := outer.Bytes("key")
	key, err := m.unwrap(outer, "key")
	if err != nil {
		return nil, err
	}
	blob, _ := outer.Bytes("pillar")
	signed, err := key.Open(blob)
	if err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}
	v, err := msgpack.Decode(signed, msgpack.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}
	s, _ := v.(*msgpack.Map)
	data, _ := s.Bytes("data")
	sig, _ := s.Bytes("sig")
	if err := crypt.Verify(m.Master, crypt.PKCS1SHA1, data, sig); err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}
	if v, err = msgpack.Decode(data, msgpack.DefaultLimits); err != nil {
		return nil, fmt.Errorf("_pillar: %w", err)
	}
	d, _ := v.(*msgpack.Map)
	if inner, _ := d.Bytes("key"); !bytes.Equal(inner, wrapped) || d.Str("nonce") != nonce || d.Map("pillar") == nil {
		return nil, errors.New("_pillar: the answer is to another question")
	}
	return d.Map("pillar"), nil
}
