package auth_test

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

const wire = "../../testdata/wire"

func private(t testing.TB, name string) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(wire, "keys", name+"_TESTONLY.pem"), "")
	check.Must(t, err)
	return k
}

func publicText(t testing.TB, name string) string {
	t.Helper()
	text, err := crypt.PublicPEM(&private(t, name).PublicKey)
	check.Must(t, err)
	return text
}

func decode(t testing.TB, b []byte) *value.Map {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	check.Must(t, err)
	m, ok := v.(*value.Map)
	if !ok {
		t.Fatalf("%T instead of a map", v)
	}
	return m
}

func capture(t testing.TB, name string) *value.Map {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wire, name))
	check.Must(t, err)
	return decode(t, b)
}

// vector is what the captures' index says about a sign-in.
type vector struct {
	File, Decode, Keyset, Minion, Request string
	MinionKey                             string `json:"minion_key"`
	ExpectAES                             string `json:"expect_aes"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wire, "index.json"))
	check.Must(t, err)
	var index struct{ Vectors []vector }
	check.Must(t, json.Unmarshal(b, &index))
	return index.Vectors
}

// clock is a time that the test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// master is a service with what belongs to it.
type master struct {
	*auth.Service
	dir     string
	keys    *keys.Store
	secrets *auth.Secrets
	clock   *clock
	mu      sync.Mutex
	events  []*value.Map
	tags    []string
}

type options struct {
	auth     auth.Config
	secrets  auth.SecretsConfig
	autosign keys.AutosignConfig
	store    keys.Config
	dir      string
}

// newMaster starts a master with the key pair of the captures.
func newMaster(t testing.TB, o options) *master {
	t.Helper()
	if o.dir == "" {
		o.dir = t.TempDir()
	}

	m := &master{dir: o.dir, clock: &clock{t: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}}
	var err error
	o.store.Create = true
	m.keys, err = keys.Open(filepath.Join(o.dir, "pki"), o.store)
	check.Must(t, err)

	if o.secrets.Identity.Key == nil {
		o.secrets.Identity, err = auth.NewIdentity(private(t, "masterA"))
		check.Must(t, err)
	}

	o.secrets.CacheDir = o.dir
	o.secrets.Now = m.clock.now
	o.secrets.MasterID = "m1_master"
	m.secrets, err = auth.OpenSecrets(o.secrets)
	check.Must(t, err)
	o.auth.Keys, o.auth.Secrets = m.keys, m.secrets
	o.autosign.Dir = m.keys.AutosignDir()
	o.auth.Autosign = keys.NewAutosign(o.autosign)

	if o.auth.PublishPort == 0 {
		o.auth.PublishPort = 4505
	}

	o.auth.Events = func(tag string, data *value.Map) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tags, m.events = append(m.tags, tag), append(m.events, data)
	}

	m.Service, err = auth.New(o.auth)
	check.Must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) }) // before o.dir goes
	return m
}

func (m *master) lastEvent(t testing.TB) *value.Map {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == 0 {
		t.Fatal("no event")
	}
	return m.events[len(m.events)-1]
}

var peer = netip.MustParseAddrPort("192.0.2.1:4000")

// minion signs in the way the Python one does.
type minion struct {
	id         string
	key        *rsa.PrivateKey
	enc, sig   string
	nonce      string
	withToken  bool
	grains     *value.Map
	masterKey  *rsa.PublicKey
	aes, token crypt.Key
	session    crypt.Key
}

func newMinion(t testing.TB, id, key string) *minion {
	return &minion{
		id: id, key: private(t, key), enc: crypt.OAEPSHA1, sig: crypt.PKCS1SHA1,
		nonce: "0123456789abcdef0123456789abcdef", masterKey: &private(t, "masterA").PublicKey,
	}
}

// load is in the order of crypt.py minion_sign_in_payload.
func (n *minion) load(t testing.TB) *value.Map {
	t.Helper()
	l := value.NewMap("cmd", "_auth", "id", n.id, "nonce", n.nonce, "enc_algo", n.enc, "sig_algo", n.sig)
	if n.grains != nil {
		l.Set("autosign_grains", n.grains)
	}

	if n.withToken {
		var err error
		n.token, err = crypt.NewKey(nil)
		check.Must(t, err)
		ct, err := crypt.Encrypt(n.masterKey, n.enc, []byte(n.token.String()))
		check.Must(t, err)
		l.Set("token", ct)
	}

	pub, err := crypt.PublicPEM(&n.key.PublicKey)
	check.Must(t, err)
	l.Set("pub", pub)
	return l
}

// signIn sends the load and checks the answer as a minion does; it returns
// the signed map.
func (n *minion) signIn(t testing.TB, m *master) *value.Map {
	t.Helper()
	return n.check(t, m.SignIn(context.Background(), n.load(t), 3, peer))
}

func (n *minion) check(t testing.TB, payload any) *value.Map {
	t.Helper()
	packed, err := msgpack.Marshal(payload, msgpack.Raw)
	check.Must(t, err)
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	check.Must(t, err)
	p, ok := v.(*value.Map)
	if !ok {
		t.Fatalf("answer %v", v)
	}

	if got := p.Keys(); len(got) != 3 || got[0] != "enc" || got[1] != "load" || got[2] != "sig" {
		t.Fatalf("fields %v of %v", got, p.Map("load").Str("ret"))
	}

	load, _ := p.Bytes("load")
	sig, _ := p.Bytes("sig")
	check.Must(t, crypt.Verify(n.masterKey, n.sig, load, sig))
	s := decode(t, load)
	if s.Str("nonce") != n.nonce {
		t.Fatalf("nonce %q", s.Str("nonce"))
	}
	if s.Str("enc") != "pub" {
		return s
	}

	n.aes, n.session = n.unwrap(t, s, "aes"), n.unwrap(t, s, "session")
	sum := sha256.Sum256([]byte(n.aes.String()))
	digest, _ := s.Bytes("sig")
	if got, err := crypt.X931Recover(n.masterKey, digest); err != nil || string(got) != hex.EncodeToString(sum[:]) {
		t.Fatalf("digest %q, %v", got, err)
	}
	if n.withToken && n.unwrap(t, s, "token").String() != n.token.String() {
		t.Fatal("another token came back")
	}

	return s
}

func (n *minion) unwrap(t testing.TB, s *value.Map, field string) crypt.Key {
	t.Helper()
	ct, _ := s.Bytes(field)
	text, err := crypt.Decrypt(n.key, n.enc, ct)
	check.Must(t, err)
	k, err := crypt.ParseKey(string(text))
	check.Must(t, err)
	return k
}

func (n *minion) tok(t testing.TB) []byte {
	t.Helper()
	b, err := crypt.X931Sign(n.key, []byte("salt"))
	check.Must(t, err)
	return b
}
