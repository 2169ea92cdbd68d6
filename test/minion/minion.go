// Package minion is a scripted minion for tests: it signs in, listens and asks
// as the Python one does, a hundred of them in one process, and sends whatever
// it is told. It checks what real minions check (signatures, nonces), and
// nothing is retried behind the caller's back.
package minion

import (
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
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Config says who a minion is and whom it talks to.
type Config struct {
	ID      string
	Key     *rsa.PrivateKey
	Master  *rsa.PublicKey // pinned; nil: the first sign-in takes the master's word, as a new minion does
	Request string         // address of port 4506
	Publish string         // address of port 4505
	Dialer  net.Dialer     // of its connections; a host may have vanished: no Timeout means 2 s

	// Proof is what Prove makes of Key; nil: New makes it, which takes some
	// milliseconds.
	Proof []byte
	// Tokenless leaves the token out of sign-ins. Without it those of a minion
	// that knows the master's key carry one for the master to decrypt, the same
	// one each time.
	Tokenless bool
	// ClockAhead is how far the clock of the minion is ahead of the right time.
	ClockAhead time.Duration
	// Grains are sent with the question for the pillar; nil: the id alone.
	Grains *value.Map
	// Exchange sends a request and returns the answer; nil: over a connection
	// of the minion's own to Request.
	Exchange func(ctx context.Context, payload []byte) ([]byte, error)
}

// Minion is one scripted minion. It is for one goroutine. Close must be
// called.
type Minion struct {
	Config
	Session crypt.Key // from the last sign-in
	Publics crypt.Key // opens publishes; from the last sign-in

	token []byte // of this minion's life; nil: it has shown none
	bare  bool   // the last sign-in carried no token
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
	if c.Proof == nil {
		var err error
		if c.Proof, err = Prove(c.Key); err != nil {
			return nil, fmt.Errorf("minion %s: %w", c.ID, err)
		}
	}
	return &Minion{Config: c}, nil
}

// Child is a process that the minion has started, as for a job: it has its keys and its token.
func (m *Minion) Child() (*Minion, error) {
	child, err := New(m.Config)
	if err != nil {
		return nil, err
	}
	child.Session = m.Session
	child.token = m.token
	child.bare = m.bare
	return child, nil
}

// Prove signs what every request of a minion carries to prove its key
// (salt/crypt.py gen_token).
func Prove(key *rsa.PrivateKey) ([]byte, error) { return crypt.X931Sign(key, []byte("salt")) }

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

// Ask sends one command, sealed, and opens the answer. After an error other
// than ErrRefused the connection is a new one the next time.
func (m *Minion) Ask(ctx context.Context, cmd string, fields ...any) (any, error) {
	answer, nonce, err := m.ask(ctx, cmd, fields...)
	if err != nil {
		return nil, err
	}
	if answer == "bad load" && m.bare && m.Master != nil { // masters of a cluster ask for a token so
		if err := m.SignIn(ctx); err != nil {
			return nil, err
		}
		if answer, nonce, err = m.ask(ctx, cmd, fields...); err != nil {
			return nil, err
		}
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
	load := value.NewMap(append([]any{"cmd", cmd}, fields...)...)
	nonce = Nonce()
	load.Set("id", m.ID)
	load.Set("nonce", nonce)
	load.Set("ts", time.Now().Add(m.ClockAhead).Unix())
	load.Set("tok", m.Proof)
	packed, err := msgpack.Marshal(load, msgpack.Raw)
	if err != nil {
		return nil, "", err
	}
	payload, err = msgpack.Marshal(value.NewMap("enc", "aes", "load", m.Session.Seal(packed, ""), "version", 3,
		"enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1SHA1, "id", m.ID), msgpack.Raw)
	return payload, nonce, err
}

// Return gives the return of a job. Nil means that the master has taken it.
func (m *Minion) Return(ctx context.Context, jid, fun string, value any) error {
	_, err := m.Ask(ctx, "_return", "jid", jid, "fun", fun, "fun_args", []any{}, "return", value, "retcode",
		0, "success", true)
	return err
}

// Send sends what is packed already, such as what was sent before, and gives
// the answer as it came.
func (m *Minion) Send(ctx context.Context, payload []byte) (any, error) {
	exchange := m.Exchange
	if exchange == nil {
		exchange = m.exchange
	}
	b, err := exchange(ctx, payload)
	if err != nil {
		return nil, err
	}
	return msgpack.Decode(b, msgpack.DefaultLimits)
}

func (m *Minion) exchange(ctx context.Context, payload []byte) ([]byte, error) {
	if m.conn == nil {
		var err error
		if m.conn, err = zmtp.DialReq(ctx, m.Request,
			zmtp.DialConfig{Identity: "salt-req/minion/" + m.ID, Dialer: m.Dialer}); err != nil {
			m.conn = nil
			return nil, err
		}
	}
	b, err := m.conn.Do(ctx, payload)
	if err != nil {
		m.hangUp()
	}
	return b, err
}
