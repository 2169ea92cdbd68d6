package request

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

var from = netip.MustParseAddrPort("127.0.0.1:5000")

// keyring is a sign-in service that knows some minions by session key. The
// captured tokens are taken for good unless told otherwise.
type keyring struct {
	sessions map[string]crypt.Key
	token    func(id string, tok []byte) bool
}

func (k keyring) SignIn(_ context.Context, load *value.Map, version int64, _ netip.AddrPort) any {
	return value.NewMap("signin", load.Str("id"), "version", version)
}

func (k keyring) OpenRequest(id string, blob []byte) ([]byte, crypt.Key, error) {
	key, ok := k.sessions[id]
	if !ok {
		return nil, crypt.Key{}, errors.New("no such minion")
	}
	body, err := key.Open(blob)
	return body, key, err
}

func (k keyring) VerifyToken(id string, tok []byte) bool {
	if k.token != nil {
		return k.token(id, tok)
	}
	return len(tok) == 256
}

type index struct {
	Keysets map[string]struct {
		Sessions map[string][]string `json:"sessions"`
	} `json:"keysets"`
	Vectors []struct {
		File, Decode, Minion, Direction, Key string
		Expect                               any
	} `json:"vectors"`
}

func readIndex(tb testing.TB) (index, keyring) {
	tb.Helper()
	b, err := os.ReadFile("../../testdata/wire/index.json")
	if err != nil {
		tb.Fatal(err)
	}

	var ix index
	if err := json.Unmarshal(b, &ix); err != nil {
		tb.Fatal(err)
	}

	kr := keyring{sessions: map[string]crypt.Key{}}
	for id, s := range ix.Keysets["A"].Sessions {
		k, err := crypt.ParseKey(s[0])
		if err != nil {
			tb.Fatal(err)
		}
		kr.sessions[id] = k
	}

	return ix, kr
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile("../../testdata/wire/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func newServer(a Auth, t Table) *Server {
	return New(Config{Auth: a, Methods: t, MinVersion: 3, Timeout: time.Second,
		Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

// decode reads an answer: sealed ones with the key of id.
func decode(tb testing.TB, kr keyring, id string, answer []byte, nonce string) any {
	tb.Helper()
	v, err := msgpack.Decode(answer, msgpack.DefaultLimits)
	if err != nil {
		tb.Fatalf("answer %x: %v", answer, err)
	}

	blob, ok := v.([]byte)
	if !ok {
		return v
	}

	body, err := kr.sessions[id].OpenReply(blob, nonce)
	if err != nil {
		tb.Fatalf("opening the answer: %v", err)
	}

	v, err = msgpack.Decode(body, msgpack.DefaultLimits)
	if err != nil {
		tb.Fatal(err)
	}

	return v
}

// TestCapturedRequests hands every captured request of a minion to the server
// and lets a method echo what it got.
func TestCapturedRequests(t *testing.T) {
	ix, kr := readIndex(t)
	n := 0
	for _, v := range ix.Vectors {
		if v.Decode != "aes" || kr.sessions[v.Minion].IsZero() {
			continue
		}

		want, ok := v.Expect.(map[string]any)
		if !ok {
			continue
		}

		t.Run(v.File, func(t *testing.T) {
			var got *Call
			cmd, _ := want["cmd"].(string)
			s := newServer(kr, Table{cmd: {Do: func(_ context.Context, c *Call) (any, error) {
				got = c
				return "answer", nil
			}}})

			answer := s.Handle(context.Background(), from, read(t, v.File), nil)
			if got == nil {
				t.Fatalf("not executed; answer %q", answer)
			}

			if got.ID != v.Minion || got.Load.Str("id") != v.Minion {
				t.Errorf("id %q, in the load %q", got.ID, got.Load.Str("id"))
			}

			for _, secret := range []string{"tok", "nonce"} {
				if _, ok := got.Load.Get(secret); ok {
					t.Errorf("%s is still in the load", secret)
				}
			}

			for k := range want {
				if _, ok := got.Load.Get(k); !ok && k != "tok" && k != "nonce" {
					t.Errorf("field %s is missing", k)
				}
			}

			if a := decode(t, kr, v.Minion, answer, want["nonce"].(string)); a != "answer" {
				t.Errorf("answered %v", a)
			}
		})

		n++
	}

	if n < 40 {
		t.Errorf("only %d requests were captured", n)
	}
}

// sealedRequest builds what a minion sends.
func sealedRequest(tb testing.TB, k crypt.Key, outer string, version any, load *value.Map) []byte {
	tb.Helper()
	body, err := msgpack.Marshal(load, msgpack.Raw)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := msgpack.Marshal(value.NewMap("enc", "aes", "load", k.Seal(body, ""), "version", version, "id", outer,
		"enc_algo", "OAEP-SHA1", "sig_algo", "PKCS1v15-SHA1"), msgpack.Raw)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func clearRequest(tb testing.TB, load any, version any) []byte {
	tb.Helper()
	b, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", load, "version", version), msgpack.Raw)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func twoMinions(tb testing.TB) keyring {
	tb.Helper()
	kr := keyring{
		sessions: map[string]crypt.Key{},
		token:    func(id string, tok []byte) bool { return string(tok) == "token of "+id },
	}
	for _, id := range []string{"a", "b"} {
		k, err := crypt.NewKey(rand.Reader)
		if err != nil {
			tb.Fatal(err)
		}
		kr.sessions[id] = k
	}
	return kr
}

var nonce = strings.Repeat("0123456789abcdef", 2)

func request(id, tok, cmd string, kv ...any) *value.Map {
	m := value.NewMap("cmd", cmd, "id", id, "nonce", nonce, "ts", time.Now().Unix(), "tok", tok)
	for i := 0; i < len(kv); i += 2 {
		m.Set(kv[i], kv[i+1])
	}
	return m
}

// TestRefusals holds the literal answers that minions act on.
func TestRefusals(t *testing.T) {
	kr := twoMinions(t)
	called := 0
	do := func(context.Context, *Call) (any, error) { called++; return true, nil }
	s := newServer(kr,
		Table{
			"_mine": {Do: do},
			"ping":  {Local: true, Do: do},
			"broken": {Do: func(context.Context, *Call) (any, error) {
				return nil, errors.New("broken")
			}},
			"panics": {Do: func(context.Context, *Call) (any, error) { panic("boom") }},
		})

	good := func(mod func(*value.Map)) *value.Map {
		m := request("a", "token of a", "_mine")
		mod(m)
		return m
	}

	pack := func(v any) []byte { b, _ := msgpack.Marshal(v, msgpack.Raw); return b }
	tests := []struct {
		name string
		in   []byte
		want any
	}{
		{"no msgpack", []byte{0xc1}, "map[error:Routing error]"},
		{"cut short", pack(value.NewMap("enc", "clear"))[:4], "map[error:Routing error]"},
		{"text", pack("hello"), "bad load"},
		{"no load", pack(value.NewMap("enc", "clear")), "bad load"},
		{"no enc", pack(value.NewMap("load", value.NewMap())), "bad load"},
		{"unknown enc", pack(value.NewMap("enc", "rot13", "load", "x", "version", 3)), "bad load"},
		{"attack 7: version 2", sealedRequest(t, kr.sessions["a"], "a", 2, good(func(*value.Map) {})), "bad load"},
		{"attack 7: version as text",
			sealedRequest(t, kr.sessions["a"], "a", "3", good(func(*value.Map) {})), "bad load"},
		{"attack 7: no version", pack(value.NewMap("enc", "clear", "load", value.NewMap("cmd", "_auth"))), "bad load"},
		{"clear load is a list", clearRequest(t, []any{}, 3), "payload and load must be a dict"},
		{"clear without cmd", clearRequest(t, value.NewMap(), 3), "map[]"},
		{"clear with unknown cmd", clearRequest(t, value.NewMap("cmd", "_prep_auth_info"), 3), "map[]"},
		{"minion method in the clear", clearRequest(t, value.NewMap("cmd", "_mine", "id", "a"), 3), "map[]"},
		{"NUL in the id", clearRequest(t, value.NewMap("cmd", "ping", "id", "a\x00"), 3),
			"bad load: id contains a null byte"},
		{"id is a number", clearRequest(t, value.NewMap("cmd", "ping", "id", 5), 3), "bad load: id 5 is not a string"},
		{"unknown minion", sealedRequest(t, kr.sessions["a"], "zzz", 3, good(func(*value.Map) {})), "bad load"},
		{"key of another", sealedRequest(t, kr.sessions["b"], "a", 3, good(func(*value.Map) {})), "bad load"},
		{"attack 3: other id inside",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Set("id", "b") })),
			"bad load"},
		{"attack 3: no id inside",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Delete("id") })),
			"bad load"},
		{"attack 3: no token",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Delete("tok") })),
			"bad load"},
		{"attack 3: token of b",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Set("tok", "token of b") })),
			"bad load"},
		{"no nonce",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Delete("nonce") })),
			"bad load"},
		{"load is a list", func() []byte {
			body := pack([]any{})
			return pack(value.NewMap("enc", "aes", "load", kr.sessions["a"].Seal(body, ""), "version", 3, "id", "a"))
		}(), "payload and load must be a dict"},
		{"unknown method",
			sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "_send_pub")), "map[]"},
		{"local method by a minion",
			sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "ping")), "map[]"},
		{"cmd is a list",
			sealedRequest(t, kr.sessions["a"], "a", 3, good(func(m *value.Map) { m.Set("cmd", []any{"_mine"}) })),
			"map[]"},
		{"handler fails", sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "broken")), ""},
		{"handler panics", sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "panics")), ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decode(t, kr, "a", s.Handle(context.Background(), from, tt.in, nil), nonce)
			if m, ok := got.(*value.Map); ok {
				text := []string{}
				for k, v := range m.All() {
					text = append(text, k.(string)+":"+v.(string))
				}
				got = "map[" + strings.Join(text, " ") + "]"
			}

			if got != tt.want {
				t.Errorf("answered %v, want %v", got, tt.want)
			}
		})
	}

	if called != 0 {
		t.Errorf("%d of the refused requests were executed", called)
	}
}

// TestAttack08Replay plays a recorded request again: a method with a lasting
// effect runs once, and the repeated request gets the first answer.
func TestAttack08Replay(t *testing.T) {
	kr := twoMinions(t)
	var once, often atomic.Int64
	s := newServer(kr, Table{
		"_return":    {Once: true, Do: func(context.Context, *Call) (any, error) { return once.Add(1), nil }},
		"_file_hash": {Do: func(context.Context, *Call) (any, error) { return often.Add(1), nil }},
		"_flaky": {Once: true, Do: func(context.Context, *Call) (any, error) {
			if once.Add(1) == 2 {
				return nil, errors.New("disk full")
			}
			return true, nil
		}},
	})

	for cmd, want := range map[string]int64{"_return": 1, "_file_hash": 3} {
		in := sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", cmd))
		for range 3 {
			got := decode(t, kr, "a", s.Handle(context.Background(), from, in, nil), nonce)
			if cmd == "_return" && got != int64(1) {
				t.Errorf("a repeated return was answered %v", got)
			}
		}

		if n := map[string]*atomic.Int64{"_return": &once, "_file_hash": &often}[cmd].Load(); n != want {
			t.Errorf("%s was executed %d times, want %d", cmd, n, want)
		}
	}

	in := sealedRequest(t, kr.sessions["b"], "b", 3, request("b", "token of b", "_flaky"))
	if got := decode(t, kr, "b", s.Handle(context.Background(), from, in, nil), nonce); got != "" {
		t.Errorf("a failed method answered %v", got)
	}

	if got := decode(t, kr, "b", s.Handle(context.Background(), from, in, nil), nonce); got != true {
		t.Errorf("a repeat after a failure must be executed, got %v", got)
	}
}

// TestSignInAgain: a minion that must sign in again is answered as after a change of its session's key, and may
// send the same request once more. Only a request that is proven asks for it.
func TestSignInAgain(t *testing.T) {
	kr := twoMinions(t)
	s := newServer(kr, Table{
		"_minion_event": {Once: true, Do: func(context.Context, *Call) (any, error) { return "done", nil }},
	})
	var asked []string
	s.cfg.SignInAgain = func(id, command string) bool {
		asked = append(asked, id+command)
		return len(asked) == 1
	}

	send := func(tok string) any {
		in := sealedRequest(t, kr.sessions["a"], "a", 3, request("a", tok, "_minion_event"))
		return decode(t, kr, "a", s.Handle(context.Background(), from, in, nil), nonce)
	}
	if got := send("token of b"); got != "bad load" || len(asked) > 0 {
		t.Errorf("not proven: %v, asked for %v", got, asked)
	}
	if got := send("token of a"); got != "bad load" || !slices.Equal(asked, []string{"a_minion_event"}) {
		t.Errorf("before it has signed in again: %v, asked for %v", got, asked)
	}
	if got := send("token of a"); got != "done" {
		t.Errorf("after it has signed in again: %v", got)
	}
}

// TestSilence: what must not be taken for done gets no answer at all.
func TestSilence(t *testing.T) {
	kr := twoMinions(t)
	tries := 0
	s := newServer(kr, Table{"_return": {Once: true, Do: func(context.Context, *Call) (any, error) {
		tries++
		if tries == 1 {
			return nil, ErrSilence
		}
		return true, nil
	}}})

	in := sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "_return"))
	if got := s.Handle(context.Background(), from, in, nil); got != nil {
		t.Errorf("answered %x", got)
	}

	if got := decode(t, kr, "a", s.Handle(context.Background(), from, in, nil), nonce); got != true || tries != 2 {
		t.Errorf("the repeated request: %v, executed %d times", got, tries)
	}
}

func TestAttack08Age(t *testing.T) {
	kr := twoMinions(t)
	now := time.Now()
	s := New(Config{
		Auth:       kr,
		MinVersion: 3,
		TTL:        time.Minute,
		Now:        func() time.Time { return now },
		Log:        slog.New(slog.DiscardHandler),
		Methods:    Table{"_mine": {Do: func(context.Context, *Call) (any, error) { return true, nil }}},
	})

	for age, want := range map[time.Duration]any{0: true, 2 * time.Minute: "bad load", -2 * time.Minute: "bad load"} {
		in := sealedRequest(t, kr.sessions["a"], "a", 3,
			request("a", "token of a", "_mine", "ts", now.Add(-age).Unix()))
		if got := decode(t, kr, "a", s.Handle(context.Background(), from, in, nil), nonce); got != want {
			t.Errorf("request %s old: %v, want %v", age, got, want)
		}
	}
}

func TestReplaysAreBounded(t *testing.T) {
	r := newReplays(3, time.Minute)
	now := time.Now()
	for _, n := range []string{"1", "2", "3", "4"} {
		e, first := r.claimEntry("a", n, now)
		if !first {
			t.Fatalf("%s is not new", n)
		}
		close(e.done)
	}

	if len(r.byKey) != 3 || r.order.Len() != 3 {
		t.Errorf("%d remembered, want 3", len(r.byKey))
	}

	if _, first := r.claimEntry("a", "4", now.Add(2*time.Minute)); !first {
		t.Error("remembered beyond the window")
	}
}

// joining is a cluster that this master has not joined yet.
type joining struct{}

func (joining) Serving() bool       { return false }
func (joining) ShareNonce(NonceKey) {}

func TestNotReady(t *testing.T) {
	kr := twoMinions(t)
	s := newServer(kr, Table{"ping": {Local: true, Do: func(context.Context, *Call) (any, error) { return true, nil }}})
	s.cfg.Cluster = joining{}
	m := decode(t, kr, "",
		s.Handle(context.Background(), from, clearRequest(t, value.NewMap("cmd", "ping"), 3), nil), "").(*value.Map)
	if !m.Map("load").Bool("cluster_retry") {
		t.Errorf("ping of a master that is not ready: %v", m)
	}

	m = decode(t, kr, "",
		s.Handle(context.Background(), from, clearRequest(t, value.NewMap("cmd", "_auth", "id", "a"), 3), nil),
		"").(*value.Map)
	if m.Str("signin") != "a" {
		t.Errorf("sign-in must go on: %v", m)
	}
}

func FuzzHandle(f *testing.F) {
	ix, kr := readIndex(f)
	for _, v := range ix.Vectors {
		if strings.HasSuffix(v.File, "_req.bin") {
			f.Add(read(f, v.File))
		}
	}
	s := newServer(kr,
		Table{"ping": {Local: true, Do: func(_ context.Context, c *Call) (any, error) { return c.Load, nil }}})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(s.Handle(context.Background(), from, b, nil)) == 0 {
			t.Error("no answer: the sender would wait for its timeout")
		}
	})
}
