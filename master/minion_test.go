package master

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
)

// scriptedMinion is a minion in this process: it signs in as the Python one does, and sends
// whatever it is told.
type scriptedMinion struct {
	r       *running
	id      string
	key     *rsa.PrivateKey
	tok     []byte
	session crypt.Key
	aes     crypt.Key
	conn    *zmtp.Req
}

// newMinion makes a minion with one of the captured keys.
func (r *running) newMinion(id, key string) *scriptedMinion {
	r.t.Helper()
	n := &scriptedMinion{r: r, id: id, key: pair(r.t, key)}
	var err error
	n.tok, err = crypt.X931Sign(n.key, []byte("salt"))
	must(r.t, err)
	r.t.Cleanup(n.hangUp)
	return n
}

// accepted makes a minion whose key is accepted and that has signed in.
func (r *running) accepted(id, key string) *scriptedMinion {
	r.t.Helper()
	n := r.newMinion(id, key)
	must(r.t, r.m.keys.Put(id, keys.Accepted, pemOf(r.t, n.key)))
	if s := n.signIn(); s.Str("enc") != "pub" {
		r.t.Fatalf("%s is not accepted: %v", id, s)
	}
	return n
}

func (n *scriptedMinion) hangUp() {
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
}

func newNonce() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// signInLoad is in the order of Salt's.
func (n *scriptedMinion) signInLoad() *value.Map {
	n.r.t.Helper()
	return value.NewMap("cmd", "_auth", "id", n.id, "nonce", newNonce(), "enc_algo", crypt.OAEPSHA1,
		"sig_algo", crypt.PKCS1SHA1, "pub", pemOf(n.r.t, n.key))
}

// signIn returns the signed map of the answer, checked as a minion does.
func (n *scriptedMinion) signIn() *value.Map {
	t := n.r.t
	t.Helper()
	load := n.signInLoad()
	return n.readSignIn(load, n.r.rawValue(value.NewMap("enc", "clear", "load", load, "version", 3)))
}

func (n *scriptedMinion) readSignIn(load *value.Map, answer any) *value.Map {
	t := n.r.t
	t.Helper()
	p, ok := answer.(*value.Map)
	if !ok {
		t.Fatalf("sign-in of %s: %v", n.id, answer)
	}

	packed, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	must(t, crypt.Verify(&pair(t, "masterA").PublicKey, load.Str("sig_algo"), packed, sig))
	s := unpack(t, packed).(*value.Map)
	if s.Str("nonce") != load.Str("nonce") {
		t.Fatalf("nonce %q", s.Str("nonce"))
	}

	if s.Str("enc") == "pub" {
		n.aes, n.session = n.unwrap(s, "aes"), n.unwrap(s, "session")
	}

	return s
}

func (n *scriptedMinion) unwrap(s *value.Map, field string) crypt.Key {
	n.r.t.Helper()
	ct, _ := s.Bytes(field)
	text, err := crypt.Decrypt(n.key, crypt.OAEPSHA1, ct)
	must(n.r.t, err)
	k, err := crypt.ParseKey(string(text))
	must(n.r.t, err)
	return k
}

// load is a request's inner map with id, nonce, time and token.
func (n *scriptedMinion) load(cmd string, fields ...any) *value.Map {
	l := value.NewMap("cmd", cmd)
	for i := 0; i+1 < len(fields); i += 2 {
		l.Set(fields[i], fields[i+1])
	}
	for _, f := range []struct {
		k string
		v any
	}{{"id", n.id}, {"nonce", newNonce()}, {"ts", time.Now().Unix()}, {"tok", n.tok}} {
		if _, has := l.Get(f.k); !has {
			l.Set(f.k, f.v)
		}
	}
	return l
}

// payload seals a load as the minion's own request.
func (n *scriptedMinion) payload(load *value.Map) []byte {
	n.r.t.Helper()
	return n.sealed(n.id, n.session, load)
}

func (n *scriptedMinion) sealed(outer any, key crypt.Key, load any) []byte {
	n.r.t.Helper()
	env := value.NewMap("enc", "aes", "load", key.Seal(pack(n.r.t, load), ""), "version", 3, "enc_algo",
		crypt.OAEPSHA1, "sig_algo", crypt.PKCS1SHA1)
	if outer != nil {
		env.Set("id", outer)
	}
	return pack(n.r.t, env)
}

// send asks on the minion's own connection; an error closes it.
func (n *scriptedMinion) send(payload []byte) ([]byte, error) {
	n.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	if n.conn == nil {
		var err error
		if n.conn, err = zmtp.DialReq(ctx, n.r.req, zmtp.DialConfig{Identity: "salt-req/minion/" + n.id}); err != nil {
			return nil, err
		}
	}

	b, err := n.conn.Do(ctx, payload)
	if err != nil {
		n.hangUp()
	}

	return b, err
}

// open reads an answer: the sealed body, or what came in the clear.
func (n *scriptedMinion) open(b []byte, nonce string) (body any, sealed bool) {
	n.r.t.Helper()
	v := unpack(n.r.t, b)
	blob, ok := v.([]byte)
	if !ok {
		return v, false
	}
	plain, err := n.session.OpenReply(blob, nonce)
	must(n.r.t, err)
	return unpack(n.r.t, plain), true
}

// ask sends a command and demands a sealed answer.
func (n *scriptedMinion) ask(cmd string, fields ...any) any {
	n.r.t.Helper()
	return n.askLoad(n.load(cmd, fields...))
}

func (n *scriptedMinion) askLoad(load *value.Map) any {
	n.r.t.Helper()
	b, err := n.send(n.payload(load))
	must(n.r.t, err)
	v, sealed := n.open(b, load.Str("nonce"))
	if !sealed {
		n.r.t.Fatalf("%s of %s: %v in the clear", load.Str("cmd"), n.id, v)
	}
	return v
}

// silence reports whether a request is left without an answer.
func (n *scriptedMinion) silence(cmd string, fields ...any) bool {
	n.r.t.Helper()
	b, err := n.send(n.payload(n.load(cmd, fields...)))
	return err != nil && b == nil
}

// refused demands the answer upon which a real minion signs in again.
func (n *scriptedMinion) refused(what string, payload []byte) {
	n.r.t.Helper()
	b, err := n.send(payload)
	if err != nil {
		n.r.t.Errorf("%s: %v", what, err)
		return
	}
	if v := unpack(n.r.t, b); v != "bad load" {
		n.r.t.Errorf("%s: answered %.80v", what, v)
	}
}

// pillar asks for the pillar and opens the private reply.
func (n *scriptedMinion) pillar(fields ...any) *value.Map {
	t := n.r.t
	t.Helper()
	l := n.load("_pillar",
		append([]any{"grains", value.NewMap("id", n.id), "saltenv", nil, "pillarenv", nil, "pillar_override",
			value.NewMap(), "extra_minion_data", value.NewMap(), "ver", "2"},
			fields...)...)

	b, err := n.send(n.payload(l))
	must(t, err)
	p, ok := unpack(t, b).(*value.Map)
	if !ok {
		t.Fatalf("pillar of %s: %v", n.id, unpack(t, b))
	}

	wrapped, _ := p.Bytes("key")
	text, err := crypt.Decrypt(n.key, crypt.OAEPSHA1, wrapped)
	must(t, err)
	key, err := crypt.ParseKey(string(text))
	must(t, err)
	blob, _ := p.Bytes("pillar")
	signed, err := key.Open(blob)
	must(t, err)
	s := unpack(t, signed).(*value.Map)
	data, _ := s.Bytes("data")
	sig, _ := s.Bytes("sig")
	must(t, crypt.Verify(&pair(t, "masterA").PublicKey, crypt.PKCS1SHA1, data, sig))
	d := unpack(t, data).(*value.Map)
	inner, _ := d.Bytes("key")
	if string(inner) != string(wrapped) || d.Str("nonce") != l.Str("nonce") {
		t.Fatal("key or nonce of a pillar")
	}

	return d.Map("pillar")
}
