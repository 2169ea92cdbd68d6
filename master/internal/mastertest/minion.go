package mastertest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"time"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/check"
)

// Minion is a minion in the process of the test. It signs in as Python's minion does, and sends any
// requests that the test asks for.
type Minion struct {
	Master  *Master
	ID      string
	Key     *rsa.PrivateKey
	Token   []byte
	Process crypt.Key // the text of this key is the token that the minion sends when it signs in
	Session crypt.Key
	AES     crypt.Key
	conn    *zmtp.Req
}

// NewMinion returns a minion with the recorded key pair whose name is key. The minion has not
// signed in.
func (r *Master) NewMinion(id, key string) *Minion {
	r.T.Helper()
	n := &Minion{Master: r, ID: id, Key: KeyPair(r.T, key)}
	var err error
	n.Token, err = crypt.X931Sign(n.Key, []byte("salt"))
	check.Must(r.T, err)
	n.Process, err = crypt.NewKey(nil)
	check.Must(r.T, err)
	r.T.Cleanup(n.HangUp)
	return n
}

// AcceptedMinion returns a minion that has signed in and whose key is accepted.
func (r *Master) AcceptedMinion(id, key string) *Minion {
	r.T.Helper()
	n := r.NewMinion(id, key)
	check.Must(r.T, r.Parts.Keys.Put(id, keys.Accepted, PublicPEM(r.T, n.Key)))
	if s := n.SignIn(); s.Str("enc") != "pub" {
		r.T.Fatalf("%s is not accepted: %v", id, s)
	}
	return n
}

// HangUp closes the minion's connection. The next request opens a new one.
func (n *Minion) HangUp() {
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
}

// NewNonce returns 16 random bytes in hexadecimal.
func NewNonce() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// SignInLoad returns the load of a sign-in. Its fields are in Salt's order.
func (n *Minion) SignInLoad() *value.Map {
	n.Master.T.Helper()
	return value.NewMap("cmd", "_auth", "id", n.ID, "nonce", NewNonce(), "enc_algo", crypt.OAEPSHA1,
		"sig_algo", crypt.PKCS1SHA1, "pub", PublicPEM(n.Master.T, n.Key))
}

// SignIn signs in. It verifies the answer as a minion does, and returns the signed map.
func (n *Minion) SignIn() *value.Map {
	t := n.Master.T
	t.Helper()
	load := n.SignInLoad()
	token, err := crypt.Encrypt(&KeyPair(t, "masterA").PublicKey, crypt.OAEPSHA1, []byte(n.Process.String()))
	check.Must(t, err)
	load.Set("token", token)
	return n.ReadSignIn(load, n.Master.AskValue(value.NewMap("enc", "clear", "load", load, "version", 3)))
}

// ReadSignIn verifies the answer to a sign-in, and stores the keys that the answer contains.
func (n *Minion) ReadSignIn(load *value.Map, answer any) *value.Map {
	t := n.Master.T
	t.Helper()
	p, ok := answer.(*value.Map)
	if !ok {
		t.Fatalf("sign-in of %s: %v", n.ID, answer)
	}

	packed, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	check.Must(t, crypt.Verify(&KeyPair(t, "masterA").PublicKey, load.Str("sig_algo"), packed, sig))
	s := Unpack(t, packed).(*value.Map)
	if s.Str("nonce") != load.Str("nonce") {
		t.Fatalf("nonce %q", s.Str("nonce"))
	}

	if s.Str("enc") == "pub" {
		n.AES, n.Session = n.unwrap(s, "aes"), n.unwrap(s, "session")
	}

	return s
}

func (n *Minion) unwrap(s *value.Map, field string) crypt.Key {
	n.Master.T.Helper()
	ct, _ := s.Bytes(field)
	text, err := crypt.Decrypt(n.Key, crypt.OAEPSHA1, ct)
	check.Must(n.Master.T, err)
	k, err := crypt.ParseKey(string(text))
	check.Must(n.Master.T, err)
	return k
}

// Load returns the load of a request, with id, nonce, time and token.
func (n *Minion) Load(cmd string, fields ...any) *value.Map {
	l := value.NewMap("cmd", cmd)
	for i := 0; i+1 < len(fields); i += 2 {
		l.Set(fields[i], fields[i+1])
	}
	for _, f := range []struct {
		k string
		v any
	}{{"id", n.ID}, {"nonce", NewNonce()}, {"ts", time.Now().Unix()}, {"tok", n.Token}} {
		if _, has := l.Get(f.k); !has {
			l.Set(f.k, f.v)
		}
	}
	return l
}

// Payload encrypts a load with the minion's session key and returns the payload of the request.
func (n *Minion) Payload(load *value.Map) []byte {
	n.Master.T.Helper()
	return n.Sealed(n.ID, n.Session, load)
}

// Sealed encrypts a load with key and returns a payload. envelopeID is the id in the payload's
// envelope; nil means an envelope without an id.
func (n *Minion) Sealed(envelopeID any, key crypt.Key, load any) []byte {
	n.Master.T.Helper()
	env := value.NewMap("enc", "aes", "load", key.Seal(Pack(n.Master.T, load), ""), "version", 3, "enc_algo",
		crypt.OAEPSHA1, "sig_algo", crypt.PKCS1SHA1)
	if envelopeID != nil {
		env.Set("id", envelopeID)
	}
	return Pack(n.Master.T, env)
}

// Send sends a payload over the minion's connection and returns the answer. After an error it
// closes the connection.
func (n *Minion) Send(payload []byte) ([]byte, error) {
	n.Master.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	if n.conn == nil {
		var err error
		if n.conn, err = zmtp.DialReq(ctx, n.Master.RequestAddress, zmtp.DialConfig{Identity: "salt-req/minion/" + n.ID}); err != nil {
			return nil, err
		}
	}

	b, err := n.conn.Do(ctx, payload)
	if err != nil {
		n.HangUp()
	}

	return b, err
}

// Open returns the body of an answer, decrypted if need be. sealed is false if the answer was not
// encrypted.
func (n *Minion) Open(b []byte, nonce string) (body any, sealed bool) {
	n.Master.T.Helper()
	v := Unpack(n.Master.T, b)
	blob, ok := v.([]byte)
	if !ok {
		return v, false
	}
	plain, err := n.Session.OpenReply(blob, nonce)
	check.Must(n.Master.T, err)
	return Unpack(n.Master.T, plain), true
}

// Ask sends a command and returns the answer, which must be encrypted.
func (n *Minion) Ask(cmd string, fields ...any) any {
	n.Master.T.Helper()
	return n.AskLoad(n.Load(cmd, fields...))
}

// AskLoad works like Ask. The caller passes the complete load.
func (n *Minion) AskLoad(load *value.Map) any {
	n.Master.T.Helper()
	b, err := n.Send(n.Payload(load))
	check.Must(n.Master.T, err)
	v, sealed := n.Open(b, load.Str("nonce"))
	if !sealed {
		n.Master.T.Fatalf("%s of %s: %v in the clear", load.Str("cmd"), n.ID, v)
	}
	return v
}

// Unanswered reports whether the master sends no answer to a request.
func (n *Minion) Unanswered(cmd string, fields ...any) bool {
	n.Master.T.Helper()
	b, err := n.Send(n.Payload(n.Load(cmd, fields...)))
	return err != nil && b == nil
}

// WantRefused fails the test unless the master answers the payload with the refusal after which a
// minion signs in again.
func (n *Minion) WantRefused(what string, payload []byte) {
	n.Master.T.Helper()
	b, err := n.Send(payload)
	if err != nil {
		n.Master.T.Errorf("%s: %v", what, err)
		return
	}
	if v := Unpack(n.Master.T, b); v != "bad load" {
		n.Master.T.Errorf("%s: answered %.80v", what, v)
	}
}

// Pillar requests the pillar and decrypts the private reply.
func (n *Minion) Pillar(fields ...any) *value.Map {
	t := n.Master.T
	t.Helper()
	l := n.Load("_pillar",
		append([]any{"grains", value.NewMap("id", n.ID), "saltenv", nil, "pillarenv", nil, "pillar_override",
			value.NewMap(), "extra_minion_data", value.NewMap(), "ver", "2"},
			fields...)...)

	b, err := n.Send(n.Payload(l))
	check.Must(t, err)
	p, ok := Unpack(t, b).(*value.Map)
	if !ok {
		t.Fatalf("pillar of %s: %v", n.ID, Unpack(t, b))
	}

	wrapped, _ := p.Bytes("key")
	text, err := crypt.Decrypt(n.Key, crypt.OAEPSHA1, wrapped)
	check.Must(t, err)
	key, err := crypt.ParseKey(string(text))
	check.Must(t, err)
	blob, _ := p.Bytes("pillar")
	signed, err := key.Open(blob)
	check.Must(t, err)
	s := Unpack(t, signed).(*value.Map)
	data, _ := s.Bytes("data")
	sig, _ := s.Bytes("sig")
	check.Must(t, crypt.Verify(&KeyPair(t, "masterA").PublicKey, crypt.PKCS1SHA1, data, sig))
	d := Unpack(t, data).(*value.Map)
	inner, _ := d.Bytes("key")
	if string(inner) != string(wrapped) || d.Str("nonce") != l.Str("nonce") {
		t.Fatal("key or nonce of a pillar")
	}

	return d.Map("pillar")
}

// OpenPublication verifies and decrypts a publication of the master.
func (n *Minion) OpenPublication(payload []byte) *value.Map {
	t := n.Master.T
	t.Helper()
	p := Unpack(t, payload).(*value.Map)
	blob, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	check.Must(t, crypt.Verify(&KeyPair(t, "masterA").PublicKey, p.Str("sig_algo"), blob, sig))
	b, err := n.AES.Open(blob)
	check.Must(t, err)
	return Unpack(t, b).(*value.Map)
}

// TalkTo redirects the later requests of the minion to another master.
func (n *Minion) TalkTo(r *Master) *Minion {
	n.HangUp()
	n.Master = r
	return n
}
