package master_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/await"
	"saltern/test/check"
)

// capture is an entry of the captures' index; see "notes" there.
type capture struct {
	File, Decode, Keyset, Direction, Minion, Request, Key, SHA256 string
	MinionKey                                                     string `json:"minion_key"`
	ExpectAES                                                     string `json:"expect_aes"`
	ExpectSession                                                 string `json:"expect_session"`
	ExpectOneTimeKey                                              string `json:"expect_one_time_key"`
	TopicFrame                                                    string `json:"topic_frame"`
	SignPub                                                       string `json:"sign_pub"`
	Size                                                          int
	Checked                                                       []string
	Expect                                                        any
}

type captures struct {
	t       *testing.T
	Keysets map[string]struct {
		Private string `json:"master_private"`
		Public  string `json:"master_public"`
	}
	Vectors []capture
}

func readWire(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(mastertest.TestData(t, "wire", name))
	check.Must(t, err)
	return b
}

func (c *captures) same(v capture, got any) {
	c.t.Helper()
	a, err := json.Marshal(mastertest.AsIndexed(got))
	check.Must(c.t, err)
	b, err := json.Marshal(v.Expect)
	check.Must(c.t, err)
	if !bytes.Equal(a, b) {
		c.t.Errorf("decoded %.300s\nexpect %.300s", a, b)
	}
}

func (c *captures) masterKey(v capture) *rsa.PublicKey {
	c.t.Helper()
	k, err := crypt.ParsePublic(readWire(c.t, c.Keysets[v.Keyset].Public))
	check.Must(c.t, err)
	return k
}

func (c *captures) private(name string) *rsa.PrivateKey {
	c.t.Helper()
	k, err := crypt.LoadPrivate(mastertest.TestData(c.t, "wire", name), "")
	check.Must(c.t, err)
	return k
}

func (c *captures) parseKey(text string) crypt.Key {
	c.t.Helper()
	k, err := crypt.ParseKey(text)
	check.Must(c.t, err)
	return k
}

func (c *captures) bytes(m *value.Map, key string) []byte {
	c.t.Helper()
	b, ok := m.Bytes(key)
	if !ok {
		c.t.Fatalf("%s is a %T", key, m.Value(key))
	}
	return b
}

func (c *captures) mapOf(b []byte) *value.Map {
	c.t.Helper()
	m, ok := mastertest.Unpack(c.t, b).(*value.Map)
	if !ok {
		c.t.Fatal("no map")
	}
	return m
}

// request returns the envelope and the inner map of the request to a reply.
func (c *captures) request(v capture) (env, load *value.Map) {
	c.t.Helper()
	for _, r := range c.Vectors {
		if r.File != v.Request {
			continue
		}

		env = c.mapOf(readWire(c.t, r.File))
		if env.Str("enc") == "clear" {
			return env, env.Map("load")
		}

		body, err := c.parseKey(r.Key).Open(c.bytes(env, "load"))
		check.Must(c.t, err)
		return env, c.mapOf(body)
	}

	c.t.Fatalf("no request %q", v.Request)
	return nil, nil
}

// repack demands that a value packs to the bytes it came from.
func (c *captures) repack(b []byte, v any, mode msgpack.Mode) {
	c.t.Helper()
	again, err := msgpack.Marshal(v, mode)
	check.Must(c.t, err)
	if !bytes.Equal(again, b) {
		c.t.Errorf("packs to other bytes: %.80q, was %.80q", again, b)
	}
}

// TestEveryCapture decodes all that was captured from Salt with our own code.
func TestEveryCapture(t *testing.T) {
	var c captures
	d := json.NewDecoder(bytes.NewReader(readWire(t, "index.json")))
	d.UseNumber()
	check.Must(t, d.Decode(&c))
	decoders := map[string]func(*captures, capture, []byte){
		"clear": (*captures).clear, "auth": (*captures).auth, "aes": (*captures).aes, "aes_reply": (*captures).aesReply, "pillar_reply": (*captures).pillarReply,
		"publish": (*captures).publish, "zmtp": (*captures).zmtp, "event": (*captures).event, "event_pull": (*captures).eventPull, "msgpack_bin": (*captures).modern,
		"text": (*captures).text, "tcp_frame": (*captures).tcpFrame, "tcp_auth": (*captures).tcpAuth, "tcp_publish": (*captures).tcpPublish, "tcp_presence": (*captures).tcpPresence,
	}

	files, decoded := map[string]bool{}, 0
	for _, v := range c.Vectors {
		files[v.File] = true
		t.Run(v.File, func(t *testing.T) {
			b := readWire(t, v.File)
			sum := sha256.Sum256(b)
			if len(b) != v.Size || hex.EncodeToString(sum[:]) != v.SHA256 {
				t.Fatal("the file is not the one in the index")
			}

			f, ok := decoders[v.Decode]
			if !ok {
				t.Fatalf("no decoder for %q", v.Decode)
			}

			mine := c
			mine.t = t
			f(&mine, v, b)
			decoded++
		})
	}

	if decoded != 203 || len(files) != 203 {
		t.Errorf("%d captures decoded of %d files, not 203", decoded, len(files))
	}

	onDisk, err := filepath.Glob(mastertest.TestData(t, "wire", "*.bin"))
	check.Must(t, err)
	if len(onDisk) != len(files) {
		t.Errorf("%d files, %d in the index", len(onDisk), len(files))
	}
}

func (c *captures) clear(v capture, b []byte) {
	got := mastertest.Unpack(c.t, b)
	c.repack(b, got, msgpack.Raw)
	if !strings.HasPrefix(v.Direction, "peer") {
		c.same(v, got)
		return
	}

	m := got.(*value.Map)
	c.same(v, m.Value("load"))
	if n, _ := m.Int("version"); n != 3 || m.Str("enc") != "clear" {
		c.t.Error("envelope")
	}

	if tok, ok := m.Map("load").Bytes("token"); ok && v.MinionKey != "" && c.Keysets[v.Keyset].Private != "" {
		text, err := crypt.Decrypt(c.private(c.Keysets[v.Keyset].Private), m.Map("load").Str("enc_algo"), tok)
		check.Must(c.t, err)
		c.parseKey(string(text))
	}
}

func (c *captures) auth(v capture, b []byte) {
	p := c.mapOf(b)
	c.repack(b, p, msgpack.Raw)
	_, req := c.request(v)
	c.signIn(v, p, req.Str("enc_algo"), req.Str("sig_algo"), req)
}

func (c *captures) signIn(v capture, p *value.Map, enc, sig string, req *value.Map) {
	load := c.bytes(p, "load")
	check.Must(c.t, crypt.Verify(c.masterKey(v), sig, load, c.bytes(p, "sig")))
	m := c.mapOf(load)
	c.repack(load, m, msgpack.Raw)
	c.same(v, m)

	if req != nil && m.Str("nonce") != req.Str("nonce") {
		c.t.Error("nonce")
	}

	if v.ExpectAES == "" {
		if m.Str("enc") == "pub" {
			c.t.Error("accepted, but no key is expected")
		}
		return
	}

	key := c.private(v.MinionKey)
	for field, want := range map[string]string{"aes": v.ExpectAES, "session": v.ExpectSession} {
		text, err := crypt.Decrypt(key, enc, c.bytes(m, field))
		check.Must(c.t, err)
		if string(text) != want {
			c.t.Errorf("%s key differs", field)
		}
	}

	sum := sha256.Sum256([]byte(v.ExpectAES))
	digest, err := crypt.X931Recover(c.masterKey(v), c.bytes(m, "sig"))
	if err != nil || string(digest) != hex.EncodeToString(sum[:]) {
		c.t.Errorf("digest %q, %v", digest, err)
	}

	if s := m.Str("pub_sig"); s != "" {
		pub, err := crypt.ParsePublic(readWire(c.t, v.SignPub))
		check.Must(c.t, err)
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
		check.Must(c.t, err)
		check.Must(c.t, crypt.Verify(pub, sig, []byte(m.Str("pub_key")), raw))
	}
}

func (c *captures) aes(v capture, b []byte) {
	p := c.mapOf(b)
	c.repack(b, p, msgpack.Raw)
	body, err := c.parseKey(v.Key).Open(c.bytes(p, "load"))
	check.Must(c.t, err)
	m := c.mapOf(body)
	c.repack(body, m, msgpack.Raw)
	c.same(v, m)

	if p.Str("id") != m.Str("id") || p.Str("id") != v.Minion || len(m.Str("nonce")) != crypt.NonceLen {
		c.t.Error("id or nonce")
	}

	key := c.private("keys/" + v.Minion + "_TESTONLY.pem")
	if data, err := crypt.X931Recover(&key.PublicKey, c.bytes(m, "tok")); err != nil || string(data) != "salt" {
		c.t.Errorf("token %q, %v", data, err)
	}

	if sig, ok := m.Bytes("sig"); ok {
		for _, k := range []string{"nonce", "tok", "sig"} {
			m.Delete(k)
		}
		signed, err := msgpack.Marshal(m, msgpack.Modern)
		check.Must(c.t, err)
		check.Must(c.t, crypt.Verify(&key.PublicKey, crypt.PKCS1SHA1, signed, sig))
	}
}

func (c *captures) aesReply(v capture, b []byte) {
	_, req := c.request(v)
	blob, ok := mastertest.Unpack(c.t, b).([]byte)
	if !ok {
		c.t.Fatal("no blob")
	}

	body, err := c.parseKey(v.Key).OpenReply(blob, req.Str("nonce"))
	check.Must(c.t, err)
	got := mastertest.Unpack(c.t, body)
	c.repack(body, got, msgpack.Raw)
	c.same(v, got)

	if _, err := c.parseKey(v.Key).OpenReply(blob, strings.Repeat("0", crypt.NonceLen)); !errors.Is(err,
		crypt.ErrNonce) {
		c.t.Errorf("another nonce: %v", err)
	}
}

func (c *captures) pillarReply(v capture, b []byte) {
	p := c.mapOf(b)
	env, req := c.request(v)
	text, err := crypt.Decrypt(c.private(v.MinionKey), env.Str("enc_algo"), c.bytes(p, "key"))
	check.Must(c.t, err)

	if string(text) != v.ExpectOneTimeKey {
		c.t.Error("one-time key differs")
	}

	signed, err := c.parseKey(string(text)).Open(c.bytes(p, "pillar"))
	check.Must(c.t, err)
	s := c.mapOf(signed)
	data := c.bytes(s, "data")
	check.Must(c.t, crypt.Verify(c.masterKey(v), env.Str("sig_algo"), data, c.bytes(s, "sig")))
	inner := c.mapOf(data)
	c.repack(data, inner, msgpack.Raw)

	if !bytes.Equal(c.bytes(inner, "key"), c.bytes(p, "key")) || inner.Str("nonce") != req.Str("nonce") {
		c.t.Error("key or nonce")
	}

	c.same(v, inner.Value("pillar"))
}

func (c *captures) publish(v capture, b []byte) {
	p := c.mapOf(b)
	c.repack(b, p, msgpack.Raw)
	c.publication(v, p)
}

func (c *captures) publication(v capture, p *value.Map) {
	blob := c.bytes(p, "load")
	check.Must(c.t, crypt.Verify(c.masterKey(v), p.Str("sig_algo"), blob, c.bytes(p, "sig")))
	body, err := c.parseKey(v.Key).Open(blob)
	check.Must(c.t, err)
	m := c.mapOf(body)
	c.repack(body, m, msgpack.Raw)
	c.same(v, m)

	if v.TopicFrame == "" || v.TopicFrame == "broadcast" {
		return
	}

	sum := sha1.Sum([]byte(m.Str("tgt")))
	if l := m.List("tgt"); len(l) > 0 {
		sum = sha1.Sum([]byte(l[0].(string)))
	}

	if hex.EncodeToString(sum[:]) != v.TopicFrame {
		c.t.Errorf("topic %s", v.TopicFrame)
	}
}

// zmtp passes to package zmtp's listeners the bytes that a minion wrote, and to its clients the
// bytes that a master wrote.
func (c *captures) zmtp(v capture, b []byte) {
	t := c.t
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	addr := ln.Addr().String()
	if strings.Contains(v.File, "_c2s") {
		if strings.Contains(v.File, "_sub_") {
			p := zmtp.ListenPub(ctx, ln, zmtp.PubConfig{})
			defer p.Close()
			conn := dialRaw(t, addr, b)
			defer conn.Close()
			await.That(t, "subscription",
				func() bool { s := p.Subscribers(); return len(s) == 1 && s[0].SocketType == "SUB" })
			return
		}

		got := make(chan zmtp.Peer, 1)
		r, err := zmtp.ListenRouter(ctx, ln,
			zmtp.RouterConfig{Handler: func(_ context.Context, p zmtp.Peer, b []byte) ([]byte, bool) {
				got <- p
				return bytes.Clone(b), true
			}})

		check.Must(t, err)
		defer r.Close()
		conn := dialRaw(t, addr, append(bytes.Clone(b), 1, 0, 0, 1, 'x'))
		defer conn.Close()

		select {
		case p := <-got:
			if p.SocketType != "REQ" || strings.Contains(v.File, "min6") != strings.HasPrefix(p.Identity, "salt-req/") {
				t.Errorf("peer %+v", p)
			}
		case <-ctx.Done():
			t.Error("the request was not handled")
		}

		return
	}

	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Write(b)
		bufio.NewReader(conn).WriteTo(&bytes.Buffer{})
	}()

	if strings.Contains(v.File, "_sub_") {
		s, err := zmtp.DialSub(ctx, addr, zmtp.DialConfig{}, "")
		check.Must(t, err)
		s.Close()
		return
	}

	q, err := zmtp.DialReq(ctx, addr, zmtp.DialConfig{})
	check.Must(t, err)
	q.Close()
}

func dialRaw(t testing.TB, addr string, b []byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	check.Must(t, err)
	_, err = c.Write(b)
	check.Must(t, err)
	return c
}

func (c *captures) event(v capture, b []byte) {
	body := c.bytes(c.mapOf(b), "body")
	e, err := event.ParseBody(body)
	check.Must(c.t, err)
	c.same(v, value.NewMap("tag", e.Tag, "data", e.Data))
	again, err := e.Body()
	check.Must(c.t, err)
	if !bytes.Equal(again, body) {
		c.t.Error("the event packs to other bytes")
	}
}

func (c *captures) eventPull(v capture, b []byte) {
	n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	if n != len(b)-4 {
		c.t.Fatalf("length %d of %d", n, len(b)-4)
	}
	c.event(v, b[4:])
}

func (c *captures) modern(v capture, b []byte) {
	got := mastertest.Unpack(c.t, b)
	c.same(v, got)
	c.repack(b, got, msgpack.Modern)
}

func (c *captures) text(v capture, b []byte) { c.same(v, string(b)) }

func (c *captures) tcpFrame(v capture, b []byte) {
	f := c.mapOf(b)
	c.repack(b, f, msgpack.Modern)
	if len(f.Map("head").Str("mid")) != 36 {
		c.t.Error("mid")
	}
	c.same(v, f.Map("body").Value("load"))
}

func (c *captures) tcpAuth(v capture, b []byte) {
	c.signIn(v, c.mapOf(b).Map("body"), crypt.OAEPSHA1, crypt.PKCS1SHA1, nil)
}

func (c *captures) tcpPublish(v capture, b []byte) {
	c.publication(v, c.mapOf(c.bytes(c.mapOf(b), "body")))
}

func (c *captures) tcpPresence(v capture, b []byte) {
	body, err := c.parseKey(v.Key).Open(c.bytes(c.mapOf(b).Map("body"), "load"))
	check.Must(c.t, err)
	m := c.mapOf(body)
	c.same(v, m)
	key := c.private(v.MinionKey)
	if data, err := crypt.X931Recover(&key.PublicKey, c.bytes(m, "tok")); err != nil || string(data) != "salt" {
		c.t.Errorf("token %q, %v", data, err)
	}
}
