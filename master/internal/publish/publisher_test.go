package publish

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/await"
)

const wire = "../../testdata/wire"

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wire, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func masterKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.ParsePrivate(read(t, "keys/masterA_TESTONLY.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// captured is a publish_* vector.
type captured struct {
	File       string `json:"file"`
	Key        string `json:"key"`
	TopicFrame string `json:"topic_frame"`
}

func vectors(t testing.TB) (l []captured) {
	t.Helper()
	var index struct {
		Vectors []captured `json:"vectors"`
	}
	if err := json.Unmarshal(read(t, "index.json"), &index); err != nil {
		t.Fatal(err)
	}

	for _, v := range index.Vectors {
		if strings.HasPrefix(v.File, "publish_") {
			l = append(l, v)
		}
	}

	if len(l) < 11 {
		t.Fatalf("%d vectors", len(l))
	}

	return l
}

func decode(t testing.TB, b []byte) *value.Map {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := v.(*value.Map)
	if !ok {
		t.Fatalf("%T is no map", v)
	}
	return m
}

func blob(t testing.TB, m *value.Map, key string) []byte {
	t.Helper()
	switch v, _ := m.Get(key); v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	default:
		t.Fatalf("%s is %T", key, v)
		return nil
	}
}

func names(m *value.Map) (l []any) {
	for k := range m.All() {
		l = append(l, k)
	}
	return l
}

// sink is a Socket that remembers.
type sink struct {
	mu   sync.Mutex
	sent [][][]byte
	to   []uint64
	err  error
	full bool
}

func (s *sink) Publish(_ context.Context, frames ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.sent = append(s.sent, frames)
	}
	return s.err
}

func (s *sink) SendTo(_ context.Context, id uint64, frames ...[]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.full {
		s.to = append(s.to, id)
		s.sent = append(s.sent, frames)
	}
	return !s.full
}

func (s *sink) last(t testing.TB) [][]byte {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) == 0 {
		t.Fatal("nothing sent")
	}
	return s.sent[len(s.sent)-1]
}

func counter(key crypt.Key) func() (crypt.Key, int64, error) {
	var n int64
	return func() (crypt.Key, int64, error) { n++; return key, n, nil }
}

func newKey(t testing.TB) crypt.Key {
	t.Helper()
	key, err := crypt.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newPublisher(t testing.TB, cfg Config) *Publisher {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a real master sent, taken apart and published by us, is the same but
// for the random part of the encryption, and what depends on it.
func TestGoldenPublishes(t *testing.T) {
	private := masterKey(t)
	sign := func(algo string, b []byte) ([]byte, error) { return crypt.Sign(private, algo, b) }
	for _, v := range vectors(t) {
		t.Run(v.File, func(t *testing.T) {
			key, err := crypt.ParseKey(v.Key)
			if err != nil {
				t.Fatal(err)
			}

			original := read(t, v.File)
			outer := decode(t, original)
			if b, err := msgpack.Marshal(outer, msgpack.Raw); err != nil || !bytes.Equal(b, original) {
				t.Fatalf("envelope packs to other bytes, %v", err)
			}

			sealed := blob(t, outer, "load")
			if sig, err := sign(outer.Str("sig_algo"), sealed); err != nil || !bytes.Equal(sig, blob(t, outer, "sig")) {
				t.Fatalf("other signature, %v", err)
			}

			body, err := key.Open(sealed)
			if err != nil {
				t.Fatal(err)
			}

			load := decode(t, body)
			serial, _ := load.Int("serial")

			out := &sink{}
			p := newPublisher(t, Config{Pub: out, Sign: sign, Filtering: v.TopicFrame != "",
				Keys: func() (crypt.Key, int64, error) { return key, serial, nil }})
			load.Delete("serial")
			var matched []string
			if load.Str("tgt_type") == "glob" && v.TopicFrame != "" {
				matched = []string{load.Str("tgt")}
			}

			if err := p.Publish(context.Background(), load, matched); err != nil {
				t.Fatal(err)
			}

			frames := out.last(t)
			if v.TopicFrame != "" {
				if len(frames) != 2 || string(frames[0]) != v.TopicFrame {
					t.Fatalf("topic frame %q, want %q", frames[0], v.TopicFrame)
				}
				frames = frames[1:]
			}

			if len(frames) != 1 || len(frames[0]) != len(original) {
				t.Fatalf("%d frames; payload of %d bytes, want %d", len(frames), len(frames[0]), len(original))
			}

			ours := decode(t, frames[0])
			if !slices.Equal(names(ours), names(outer)) || ours.Str("enc") != "aes" ||
				ours.Str("sig_algo") != outer.Str("sig_algo") {
				t.Errorf("envelope %v, want %v", names(ours), names(outer))
			}

			got, err := key.Open(blob(t, ours, "load"))
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("load, %v:\n got %q\nwant %q", err, got, body)
			}

			if bytes.Equal(blob(t, ours, "load"), sealed) {
				t.Error("the initialization vector is not random")
			}

			if err := crypt.Verify(&private.PublicKey, ours.Str("sig_algo"), blob(t, ours, "load"),
				blob(t, ours, "sig")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without a serial (several masters with one key), without a signature, and
// with a load that brings a foreign serial.
func TestSerialAndSignature(t *testing.T) {
	key := newKey(t)
	load := value.NewMap("jid", "1", "serial", int64(99), "user", "root")
	for _, serial := range []int64{0, 7} {
		out := &sink{}
		p := newPublisher(t, Config{Pub: out, Keys: func() (crypt.Key, int64, error) { return key, serial, nil }})
		if err := p.Publish(context.Background(), load, nil); err != nil {
			t.Fatal(err)
		}

		outer := decode(t, out.last(t)[0])
		if want := []any{"enc", "load"}; !slices.Equal(names(outer), want) {
			t.Errorf("envelope %v", names(outer))
		}

		body, err := key.Open(blob(t, outer, "load"))
		if err != nil {
			t.Fatal(err)
		}

		want := []any{"jid", "user"}
		if serial != 0 {
			want = append(want, "serial")
		}

		inner := decode(t, body)
		if got, _ := inner.Int("serial"); !slices.Equal(names(inner), want) || got != serial {
			t.Errorf("load %v, serial %d", names(inner), got)
		}

		if n, _ := load.Int("serial"); n != 99 {
			t.Error("Publish changed its argument")
		}
	}
}

// Serials reach the socket in order, however long each signature takes.
func TestOrder(t *testing.T) {
	key := newKey(t)
	out := &sink{}
	p := newPublisher(t, Config{Pub: out, Keys: counter(key), Sign: func(_ string, b []byte) ([]byte, error) {
		time.Sleep(time.Duration(b[0]) * 10 * time.Microsecond) // random
		if b[1] < 20 {
			return nil, errors.New("on purpose")
		}
		return []byte("sig"), nil
	}})

	var g sync.WaitGroup
	for i := range 200 {
		g.Go(func() { _ = p.Publish(context.Background(), value.NewMap("jid", fmt.Sprint(i)), nil) })
	}

	g.Wait()
	last := int64(0)
	for _, frames := range out.sent {
		body, err := key.Open(blob(t, decode(t, frames[0]), "load"))
		if err != nil {
			t.Fatal(err)
		}

		n, _ := decode(t, body).Int("serial")
		if n <= last {
			t.Fatalf("serial %d after %d", n, last)
		}

		last = n
	}

	if s := p.Stats(); s.Failed == 0 || s.Failed+s.Published != 200 || s.Kept != int(s.Published) {
		t.Errorf("stats %+v", s)
	}
}

func TestTopics(t *testing.T) {
	a, b := topicOf("a"), topicOf("b")
	if a != "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8" {
		t.Fatalf("topic %s", a)
	}

	for name, c := range map[string]struct {
		load    *value.Map
		matched []string
		syndic  bool
		want    []string
	}{
		"glob": {
			load:    value.NewMap("tgt", "*", "tgt_type", "glob"),
			matched: []string{"a", "b"},
			want:    []string{a, b},
		},
		"pcre": {
			load:    value.NewMap("tgt", "a|b", "tgt_type", "pcre"),
			matched: []string{"b"},
			want:    []string{b},
		},
		"list": {
			load:    value.NewMap("tgt", []any{"a", "b", "a"}, "tgt_type", "list"),
			matched: []string{"a"},
			want:    []string{a, b},
		},
		"list as text": {
			load:    value.NewMap("tgt", "a,b", "tgt_type", "list"),
			matched: []string{"a", "b"},
			want:    []string{a, b},
		},
		"nobody": {load: value.NewMap("tgt", "x", "tgt_type", "glob"), want: []string{"broadcast"}},
		"grain": {
			load:    value.NewMap("tgt", "os:x", "tgt_type", "grain"),
			matched: []string{"a"},
			want:    []string{"broadcast"},
		},
		"compound": {
			load:    value.NewMap("tgt", "a or b", "tgt_type", "compound"),
			matched: []string{"a"},
			syndic:  true,
			want:    []string{"broadcast"},
		},
		"no type": {load: value.NewMap("tgt", "a"), matched: []string{"a"}, want: []string{"broadcast"}},
		"syndic and glob": {
			load:    value.NewMap("tgt", "*", "tgt_type", "glob"),
			matched: []string{"a"},
			syndic:  true,
			want:    []string{a, "syndic"},
		},
	} {
		out := &sink{}
		p := newPublisher(t, Config{Pub: out, Keys: counter(newKey(t)), Filtering: true, OrderMasters: c.syndic})
		if err := p.Publish(context.Background(), c.load, c.matched); err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, frames := range out.sent {
			if len(frames) != 2 || !bytes.Equal(frames[1], out.sent[0][1]) {
				t.Errorf("%s: copies differ", name)
			}
			got = append(got, string(frames[0]))
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s: topics %q, want %q", name, got, c.want)
		}
	}
}

func TestPublishErrors(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no keys, no socket, no error")
	}

	broken := errors.New("disk")
	p := newPublisher(t, Config{Pub: &sink{}, Keys: func() (crypt.Key, int64, error) { return crypt.Key{}, 0, broken }})
	if err := p.Publish(context.Background(), value.NewMap(), nil); !errors.Is(err, broken) {
		t.Errorf("publish: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Publish(ctx, value.NewMap(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}

	p = newPublisher(t, Config{Pub: &sink{}, Keys: counter(newKey(t))})
	if err := p.Publish(context.Background(), value.NewMap("x", make(chan int)), nil); err == nil {
		t.Error("a channel was packed")
	}

	if err := p.Publish(context.Background(), value.NewMap("jid", "next"), nil); err != nil {
		t.Errorf("after a failure: %v", err)
	}
}

// The whole way over TCP.
func TestEndToEnd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	pub := zmtp.ListenPub(context.Background(), ln, zmtp.PubConfig{})
	defer pub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	sub, err := zmtp.DialSub(ctx, pub.Addr().String(), zmtp.DialConfig{}, "broadcast", topicOf("m"))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	await.That(t, "the subscriber", func() bool { l := pub.Subscribers(); return len(l) > 0 && len(l[0].Topics) >= 2 })
	key := newKey(t)
	p := newPublisher(t, Config{Pub: pub, Keys: counter(key), Filtering: true})
	for _, id := range []string{"other", "m"} {
		if err := p.Publish(ctx, value.NewMap("jid", id, "tgt", id, "tgt_type", "glob"), []string{id}); err != nil {
			t.Fatal(err)
		}
	}

	if err := p.Resend(ctx, pub.Subscribers()[0].ID, p.Recent(time.Time{})[0]); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"m", "other"} { // in the order of their serials
		frames, err := sub.Next(ctx)
		if err != nil || len(frames) != 2 {
			t.Fatalf("%q, %v", frames, err)
		}

		body, err := key.Open(blob(t, decode(t, frames[1]), "load"))
		if err != nil || decode(t, body).Str("jid") != want {
			t.Errorf("got %q, %v; want %s", body, err, want)
		}
	}
}

// TestTopicOfAResource: with zmq_filtering a job of a resource goes to the topic of its minion, once.
func TestTopicOfAResource(t *testing.T) {
	out := &sink{}
	p := newPublisher(t, Config{Pub: out, Keys: counter(newKey(t)), Filtering: true, Manager: func(id string) string {
		if strings.HasPrefix(id, "d") {
			return "web1"
		}
		return ""
	}})
	load := value.NewMap("jid", "1", "tgt", []any{"d1", "d2", "web2"}, "tgt_type", "list")
	if err := p.Publish(context.Background(), load, []string{"web2", "d1", "d2"}); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, frames := range out.sent {
		got = append(got, string(frames[0]))
	}
	if want := []string{topicOf("web1"), topicOf("web2")}; !slices.Equal(got, want) {
		t.Errorf("topics %q, want %q", got, want)
	}
}
