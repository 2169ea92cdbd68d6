package zmtp

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cpu returns the processor time of this process, including that of the clients.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// crowd connects n subscribers that count the bytes they get.
func crowd(b *testing.B, p *Pub, n int) *atomic.Int64 {
	b.Helper()
	got := &atomic.Int64{}
	for range n {
		c := shake(b, p.Addr(), "SUB")
		c.send(appendCommand(nil, "SUBSCRIBE", nil))
		_ = c.SetDeadline(time.Time{})
		go func() {
			buf := make([]byte, 16<<10)
			for {
				k, err := c.in.Read(buf)
				got.Add(int64(k))
				if err != nil {
					return
				}
			}
		}()
	}

	subscribed(b, p, n)
	return got
}

// BenchmarkFanOut1000 publishes to 1000 subscribers and waits until all have received every
// message, with one message at a time and with bursts of five.
func BenchmarkFanOut1000(b *testing.B) {
	for _, size := range []int{463, 100 << 10} {
		for _, burst := range []int{1, 5} {
			b.Run(fmt.Sprintf("%dB/burst%d", size, burst), func(b *testing.B) {
				const n = 1000
				p := publisher(b, PubConfig{MaxQueueBytes: 1 << 30})
				got := crowd(b, p, n)
				body := make([]byte, size)
				wire := int64(len(appendMessage(nil, body)))
				want := int64(0)
				start := cpu()
				b.ResetTimer()

				for range b.N {
					for range burst {
						if err := p.Publish(context.Background(), body); err != nil {
							b.Fatal(err)
						}
						want += n * wire
					}

					for got.Load() < want {
						time.Sleep(50 * time.Microsecond)
					}
				}

				b.StopTimer()
				b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N*burst)/1000, "cpu-ms/msg")
			})
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, size := range []int{300, 10 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			r := router(b,
				RouterConfig{Handler: func(_ context.Context, _ Peer, p []byte) ([]byte, bool) { return p, true }})
			ask := appendMessage(nil, nil, make([]byte, size))
			b.SetParallelism(32)
			b.ReportAllocs()
			start := cpu()
			b.RunParallel(func(pb *testing.PB) {
				c, err := net.Dial("tcp", r.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer func() { _ = c.Close() }()

				_, _ = c.Write(appendReady(greeting(), "REQ", ""))
				_, _ = io.CopyN(io.Discard, c, int64(len(appendReady(greeting(), "ROUTER", ""))))
				buf := make([]byte, len(ask))
				for pb.Next() {
					if _, err := c.Write(ask); err != nil {
						b.Error(err)
						return
					}

					if _, err := io.ReadFull(c, buf); err != nil {
						b.Error(err)
						return
					}
				}
			})

			b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "cpu-us/req")
		})
	}
}
