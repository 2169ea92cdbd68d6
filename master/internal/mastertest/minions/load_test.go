package minions

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/await"
	"saltern/test/check"
)

// witness is a good minion that goes on asking while others attack.
type witness struct {
	asked *atomic.Int64 // times that it was answered
	stop  func() []time.Duration
}

func bearWitness(n *mastertest.Minion) witness {
	done, stopped := make(chan struct{}), make(chan struct{})
	var took []time.Duration
	var asked atomic.Int64
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
			}

			start := time.Now()
			l := n.Load("_mine_get", "tgt", "x", "fun", "f")
			b, err := n.Send(n.Payload(l))
			if err != nil {
				n.Master.T.Errorf("witness: %v", err)
				return
			}

			if v, err := msgpack.Decode(b, msgpack.DefaultLimits); err != nil || v == "bad load" {
				n.Master.T.Errorf("witness is answered %v, %v", v, err)
			}

			took = append(took, time.Since(start))
			asked.Add(1)
			time.Sleep(2 * time.Millisecond)
		}
	}()

	return witness{&asked, func() []time.Duration {
		close(done)
		<-stopped
		slices.Sort(took)
		return took
	}}
}

// fine demands that the witness felt little of the attack. The bounds are
// wide, since the machine may be busy with other tests.
func (w witness) fine(t *testing.T, p99 time.Duration) {
	t.Helper()
	took := w.stop()
	if len(took) < 5 {
		t.Fatalf("the witness was served %d times", len(took))
	}
	got := took[len(took)*99/100]
	t.Logf("witness: %d requests, median %s, p99 %s, worst %s", len(took), took[len(took)/2], got, took[len(took)-1])
	if got > p99 {
		t.Errorf("p99 of the witness is %s", got)
	}
}

// bombs are msgpack values that cost a careless decoder its life.
func bombs() map[string][]byte {
	rep := func(s string, n int) []byte { return bytes.Repeat([]byte(s), n) }
	deepMap := bytes.Repeat([]byte{0x81, 0xa1, 'a'}, 100000)
	return map[string][]byte{
		"array of 2^32": {0xdd, 0xff, 0xff, 0xff, 0xff}, "map of 2^32": {0xdf, 0xff, 0xff, 0xff, 0xff}, "text of 2^32": {0xdb, 0xff, 0xff, 0xff, 0xff}, "bytes of 2^32": {0xc6, 0xff, 0xff, 0xff, 0xff},
		"ext of 2^32": {0xc9, 0xff, 0xff, 0xff, 0xff, 1}, "array of 2^16": {0xdc, 0xff, 0xff}, "deep": append(rep("\x91", 1000000), 0xc0), "deep maps": append(deepMap, 0xc0), "deep unfinished": rep("\x91", 3000000),
		"many nils": append([]byte{0xdd, 0, 0x3d, 0x09, 0}, rep("\xc0", 4000000)...), "many empty maps": append([]byte{0xdd, 0, 0x1e, 0x84, 0x80}, rep("\x80", 2000000)...),
		"twins": {0x82, 0xa3, 'e', 'n', 'c', 0xa5, 'c', 'l', 'e', 'a', 'r', 0xa3, 'e', 'n', 'c', 0xa3, 'a',
			'e', 's'}, "trailing": append([]byte{0x80}, 0x80), "never used": {0xc1}, "nothing": {}, "nil": {0xc0}, "int": {1},
		"map key is a map": {0x81, 0x80, 0x80}, "map key is nil": {0x81, 0xc0, 0x80}, "ext key": {0x81, 0xd4, 1, 0, 0xc0}, "large int": {0x81, 0xa2, 'i', 'd', 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"invalid UTF-8": {0x81, 0xa2, 'i', 'd', 0xa2, 0xff, 0xfe}, "ext 78": {0x81, 0xa1, 'a', 0xc7, 3, 78, 'x', 'y', 'z'}, "NaN": {0x81, 0xa1, 'a', 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1},
	}
}

func TestAttack19MsgpackBombs(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a, w := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("witness", "min7")
	wit := bearWitness(w)
	r.ListenToBus()

	for name, b := range bombs() {
		inClear := slices.Concat([]byte("\x83\xa3enc\xa5clear\xa7version\x03\xa4load"), b)
		auth := slices.Concat([]byte("\x83\xa3enc\xa5clear\xa7version\x03\xa4load\x82\xa3cmd\xa5_auth\xa5token"), b)
		data := slices.Concat(mastertest.Pack(t, value.NewMap())[:0], []byte("\x86\xa3cmd\xa7_return\xa6return"), b)
		for _, f := range []struct {
			k string
			v any
		}{{"id", "min1"}, {"nonce", mastertest.NewNonce()}, {"tok", a.Token}, {"jid", attackJID}} {
			data = append(data, mastertest.Pack(t, f.k)...)
			data = append(data, mastertest.Pack(t, f.v)...)
		}

		sealed := func(body []byte) []byte {
			return mastertest.Pack(t, value.NewMap("enc", "aes", "load", a.Session.Seal(body, ""), "version", 3, "id", "min1"))
		}
		for form, payload := range map[string][]byte{
			"bare":            b,
			"in a clear load": inClear,
			"in a sign-in":    auth,
			"sealed":          sealed(b),
			"in a return":     sealed(data),
		} {
			start := time.Now()
			got, err := r.AskRaw(payload)
			if err != nil {
				t.Errorf("%s %s: %v", name, form, err)
				continue
			}

			if d := time.Since(start); d > 20*time.Second { // with the race detector, on a slow machine
				t.Errorf("%s %s took %s", name, form, d)
			}

			if len(got) > 4096 {
				t.Errorf("%s %s: answer of %d bytes", name, form, len(got))
			}
		}
	}

	a.Ask("_file_envs")
	wit.fine(t, 2*time.Second)
	if s := r.Parts.Router.Stats(); s.Panics != 0 {
		t.Errorf("%d panics", s.Panics)
	}

	if strings.Contains(r.Log.String(), "panic") {
		t.Error("something panicked")
	}
}

// greeting is the start of ZMTP 3.1 with the NULL mechanism.
func greeting() []byte {
	b := make([]byte, 64)
	b[0] = 0xff
	b[9] = 0x7f
	b[10] = 3
	b[11] = 1
	copy(b[12:], "NULL")
	return b
}

func TestAttack20HostileZMTP(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	wit := bearWitness(a)
	ready := slices.Concat(greeting(), []byte{4, 25, 5}, []byte("READY\x0bSocket-Type\x00\x00\x00\x03REQ"))
	long := func(flags byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flags}, n) }
	var wg sync.WaitGroup
	for name, b := range map[string][]byte{
		"nothing": {}, "half a greeting": greeting()[:20], "http": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "tls": {
			0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, "zeros": make([]byte, 4096), "ff": bytes.Repeat([]byte{0xff}, 4096),
		"2^42 before READY": append(greeting(), long(2, 1<<42)...), "2^63 command": append(greeting(),
			long(6, 1<<63)...), "2^42 after READY": append(bytes.Clone(ready), long(2, 1<<42)...), "2^63 message": append(bytes.Clone(ready), long(3, 1<<63)...),
		"endless MORE": append(bytes.Clone(ready), bytes.Repeat([]byte{1, 0}, 100000)...), "reserved flags": append(bytes.Clone(ready), 0xf0, 1, 0), "READY twice": append(bytes.Clone(ready), ready[64:]...), "huge READY": slices.Concat(greeting(), long(6, 1<<20), make([]byte, 1<<20)),
		"curve": func() []byte { g := greeting(); copy(g[12:], "CURVE"); return g }(), "message first": append(greeting(), 0, 1, 'x'), "no delimiter": append(bytes.Clone(ready), 0, 1, 'x'), "part of a message": append(bytes.Clone(ready), 1, 0, 0, 200, 'x'),
		"PROXY from a stranger": append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02"),
			ready...), "ping flood": append(bytes.Clone(ready),
			bytes.Repeat(append([]byte{4, 7, 4}, "PING\x00\x00"...), 20000)...),
	} {
		for _, addr := range []string{r.RequestAddress, r.PublishAddress} {
			wg.Go(func() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				defer c.Close()

				c.SetDeadline(time.Now().Add(8 * time.Second))
				go c.Write(b)
				n, err := io.Copy(io.Discard, c)

				// Those that said READY and no more may stay.
				if ne, ok := err.(net.Error); ok && ne.Timeout() && !bytes.HasPrefix(b, ready) {
					t.Errorf("%s at %s: still open (%d bytes came)", name, addr, n)
				}
			})
		}
	}

	// Many that never say READY.
	var half []net.Conn
	for i := range 500 {
		c, err := net.Dial("tcp", []string{r.RequestAddress, r.PublishAddress}[i%2])
		check.Must(t, err)
		c.Write(greeting()[:i%64])
		half = append(half, c)
	}

	if len(r.Publish("*", "test.ping").List("minions")) != 1 {
		t.Error("publish during the attack")
	}

	wg.Wait()
	await.That(t, "half-open connections closed", func() bool {
		return r.Parts.Router.Stats().Handshakes == 0 && r.Parts.Publisher.Stats().Handshakes == 0
	})

	for _, c := range half {
		c.Close()
	}

	wit.fine(t, 2*time.Second)
}

func TestAttack22SignInFlood(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "auth_events: False\n")
	a := r.AcceptedMinion("min1", "min6")
	wit := bearWitness(a)
	const newIDs, clients = 1000, 8
	pub := mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))
	start := time.Now()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			q, err := zmtp.DialReq(t.Context(), r.RequestAddress, zmtp.DialConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			defer q.Close()

			for i := c; i < newIDs; i += clients {
				l := value.NewMap("cmd", "_auth", "id", fmt.Sprintf("flood%05d", i), "nonce", mastertest.NewNonce(),
					"enc_algo", "OAEP-SHA1", "sig_algo", "PKCS1v15-SHA1", "pub", pub)
				if _, err := q.Do(t.Context(),
					mustPack(value.NewMap("enc", "clear", "load", l, "version", 3))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	wg.Wait()
	t.Logf("%d sign-ins in %s", newIDs, time.Since(start))

	// The same id with many keys: one denied key is kept.
	for _, k := range []string{"min7", "min8", "minsha", "minsign", "minfilt", "mingrain"} {
		n := r.NewMinion("min1", k)
		if s := n.SignIn(); s.Value("ret") != false {
			t.Errorf("another key for min1: %v", s)
		}
	}

	if n := r.Parts.Keys.Count(keys.Denied); n != 1 {
		t.Errorf("%d denied keys", n)
	}

	if e, _ := r.Parts.Keys.Lookup("min1"); e.PEM != mastertest.PublicPEM(t, a.Key) || e.State != keys.Accepted {
		t.Error("min1 lost its key")
	}

	if n := r.Parts.Keys.Count(keys.Pending); n > newIDs {
		t.Errorf("%d pending keys", n)
	}

	if s := a.Master.NewMinion("min1", "min6").SignIn(); s.Str("enc") != "pub" {
		t.Errorf("min1 cannot sign in: %v", s)
	}

	if entries, err := os.ReadDir(r.Path("cache", "sessions")); err != nil || len(entries) > 1 {
		t.Errorf("session files of strangers: %d, %v", len(entries), err)
	}

	wit.fine(t, time.Second)
}

// More bad packets than workers, at once (CVE-2023-20897), and logins that
// are slow on purpose.
func TestAttack23BadPackets(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "external_auth:\n  sharedsecret:\n    alice: [.*]\nsharedsecret: right\n")
	a := r.AcceptedMinion("min1", "min6")
	wit := bearWitness(a)
	bad := [][]byte{{}, {0xc1}, mastertest.Pack(t, "x"),
		mastertest.Pack(t, value.NewMap("enc", "aes", "load", []byte("\xffx"), "version", 3, "id", "min1")),
		mastertest.Pack(t, value.NewMap("enc", "aes", "version", 3)),
		mastertest.Pack(t, value.NewMap("enc", "clear", "load", value.NewMap("cmd", "_auth"), "version", 3)), mastertest.Pack(t, value.NewMap("enc", "pub", "load", value.NewMap(), "version", 3)),
		mastertest.Pack(t, value.NewMap("enc", "aes", "load", a.Session.Seal([]byte{0xc1}, ""), "version", 3, "id", "min1"))}

	const attackers = 600 // the router has 256 workers
	flood := func(payload func(i int) []byte, rounds int) {
		var wg sync.WaitGroup
		for i := range attackers {
			wg.Go(func() {
				c, err := zmtp.DialReq(t.Context(), r.RequestAddress, zmtp.DialConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()

				for j := range rounds {
					if _, err := c.Do(t.Context(), payload(i+j)); err != nil {
						return // cut off is fine
					}
				}
			})
		}

		wg.Wait()
	}

	flood(func(i int) []byte { return bad[i%len(bad)] }, 15)
	wit.fine(t, 2*time.Second)
	wit = bearWitness(a)
	login := mastertest.Pack(t,
		value.NewMap("enc", "clear", "load",
			value.NewMap("cmd", "mk_token", "eauth", "sharedsecret", "username", "alice", "password", "wrong"),
			"version", 3))

	done := make(chan struct{})
	go func() {
		defer close(done)
		flood(func(int) []byte { return login }, 1)
	}()

	await.That(t, "many questions", func() bool { return wit.asked.Load() >= 300 })
	wit.fine(t, 2*time.Second)
	<-done
	a.Ask("_file_envs")

	if v, _ := r.AskInClear("mk_token", "eauth", "sharedsecret", "username", "alice", "password", "right").(*value.Map); v.Str("token") == "" {
		t.Errorf("the right password: %v", v)
	}
}

// Requests that take long by nature, more than there would be workers in
// Python's master: the others must not wait for them.
func TestAttack23SlowRequests(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "peer:\n  .*: [.*]\n")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	jobs := r.Parts.Launch.Stats().Jobs
	var wg sync.WaitGroup
	for range 400 {
		payload := b.Payload(b.Load("minion_publish", "fun", "test.ping", "arg", []any{}, "tgt", "min2",
			"ret", "", "tgt_type", "glob", "tmo", 4))
		wg.Go(func() {
			_, _ = r.AskRaw(payload) // one minion that asks so much is not answered at all after some
		})
	}

	await.That(t, "jobs", func() bool { return r.Parts.Launch.Stats().Jobs-jobs >= 20 })
	wit := bearWitness(a)
	await.That(t, "many questions", func() bool { return wit.asked.Load() >= 300 })
	wit.fine(t, 2*time.Second)
	wg.Wait()

	// The places are free again.
	b.Ask("_return", "jid", attackJID, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
	rets, _ := b.Ask("minion_publish", "fun", "test.ping", "arg", []any{}, "tgt", "nobody", "ret", "",
		"tgt_type", "glob", "tmo", 1).(*value.Map)
	if rets == nil {
		t.Error("no place is free after the flood")
	}
}

func TestAttack24StalledSubscriber(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "pub_hwm: 30\n")
	a := r.AcceptedMinion("min1", "min6")
	good := r.Subscribe()
	var stuck []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", r.PublishAddress)
		check.Must(t, err)
		defer c.Close()
		c.(*net.TCPConn).SetReadBuffer(4096)
		c.Write(slices.Concat(greeting(), []byte{4, 25, 5},
			[]byte("READY\x0bSocket-Type\x00\x00\x00\x03SUB"), []byte{4, 10, 9}, []byte("SUBSCRIBE")))
		stuck = append(stuck, c)
	}

	await.That(t, "subscriptions", func() bool { return len(r.Parts.Publisher.Subscribers()) == 1+len(stuck) })
	big := strings.Repeat("x", 200<<10)
	var worst time.Duration
	for i := range 70 {
		start := time.Now()
		jid := r.Publish("*", "test.echo", "arg", []any{big}).Str("jid")
		p := good.Published()
		if len(p) != 1 || a.OpenPublication(p[0]).Str("jid") != jid {
			t.Fatalf("publish %d: %d came", i, len(p))
		}
		worst = max(worst, time.Since(start))
	}

	s := r.Parts.Publisher.Stats()
	t.Logf("worst publish %s; %+v", worst, s)
	if s.Slow == 0 || s.Dropped == 0 {
		t.Error("nobody is slow: the test tests nothing")
	}

	if worst > 3*time.Second {
		t.Errorf("a publish took %s", worst)
	}

	if s.Queued > int64(len(stuck))*(17<<20) {
		t.Errorf("%d bytes in queues", s.Queued)
	}

	a.Ask("_file_envs")
	if _, err := os.Stat(filepath.Join(r.Dir, "cache", "health", "alive")); err != nil {
		t.Error(err)
	}
}
