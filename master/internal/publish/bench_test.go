package publish

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/await"
)

// BenchmarkFanOut1000 publishes a signed job to 1000 subscribers over TCP and
// waits until all of them have it.
func BenchmarkFanOut1000(b *testing.B) {
	const n = 1000
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}

	pub := zmtp.ListenPub(context.Background(), ln, zmtp.PubConfig{})
	defer pub.Close()
	var got atomic.Int64
	hello := []byte(read(b, "zmtp_sub_c2s.bin"))
	welcome := int64(len(read(b, "zmtp_sub_s2c.bin")))
	for range n {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()

		if _, err := c.Write(hello); err != nil {
			b.Fatal(err)
		}

		if _, err := io.CopyN(io.Discard, c, welcome); err != nil {
			b.Fatal(err)
		}

		go func() {
			buf := make([]byte, 4096)
			for {
				k, err := c.Read(buf)
				got.Add(int64(k))
				if err != nil {
					return
				}
			}
		}()
	}

	ready := func() (k int) {
		for _, s := range pub.Subscribers() {
			k += len(s.Topics)
		}
		return k
	}

	await.That(b, "all subscribers", func() bool { return ready() >= n })
	private := masterKey(b)
	p := newPublisher(b, Config{Pub: pub, Keys: counter(newKey(b)),
		Sign: func(algo string, d []byte) ([]byte, error) { return crypt.Sign(private, algo, d) }})
	load := value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "*", "jid", "20261121080455885058",
		"ret", "", "tgt_type", "glob", "user", "root")
	want := int64(0)
	b.ResetTimer()

	for range b.N {
		before := pub.Stats().Bytes
		if err := p.Publish(context.Background(), load, nil); err != nil {
			b.Fatal(err)
		}

		if err := pub.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}

		want += int64(pub.Stats().Bytes - before)
		for got.Load() < want {
			time.Sleep(50 * time.Microsecond)
		}
	}

	b.StopTimer()
	if s := pub.Stats(); s.Dropped != 0 || s.Sent != uint64(n)*s.Published {
		b.Fatalf("%+v", s)
	}
}
