package share

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/value"
	"saltern/test/await"
)

// BenchmarkJoin has a new master fetch the data of 10,000 minions, 12.5 KB each.
func BenchmarkJoin(b *testing.B) {
	const minions = 10_000
	n := &net{peers: map[string]*Share{}, cut: map[string]bool{}}
	old := &master{name: "old", dir: b.TempDir(), net: n}
	old.start(b)
	defer func() { old.stop() }()

	text := string(bytes.Repeat([]byte("x"), 4000))
	for i := range minions {
		id := fmt.Sprint("min", i)
		for bank, m := range map[cache.Bank]*value.Map{
			cache.Grains: value.NewMap("id", id, "text", text), cache.Pillar: value.NewMap("id", id, "one",
				text, "two", text), cache.Mine: value.NewMap("f", text[:500]),
		} {
			if _, err := old.store.Set(bank, id, m); err != nil {
				b.Fatal(err)
			}
		}
	}

	for b.Loop() {
		joined := &master{name: "new", dir: b.TempDir(), net: n}
		joined.start(b)
		var peak uint64
		await.That(b, "the same at both", func() bool {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
			return joined.store.Sums() == old.store.Sums()
		})

		b.ReportMetric(float64(peak)/(1<<20), "MiB-heap-both")
		joined.stop()
		began := time.Now()
		if err := old.store.Rescan(time.Now()); err != nil {
			b.Fatal(err)
		}

		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-rescan")
	}
}

// BenchmarkTake is what a pillar of 8 KB that another master has got costs here.
func BenchmarkTake(b *testing.B) {
	n := &net{peers: map[string]*Share{}, cut: map[string]bool{}}
	m := &master{name: "m", dir: b.TempDir(), net: n}
	m.start(b)
	defer m.stop()

	e := cache.Entry{Bank: cache.Pillar, Packed: bytes.Repeat([]byte("x"), 8000)}
	i := int64(0)
	for b.Loop() {
		i++
		e.ID, e.At = fmt.Sprint("min", i%1000), 1_000_000+i
		msg, err := parseMessage(haveMessage([]cache.Entry{e}))
		if err != nil {
			b.Fatal(err)
		}

		if out, err := m.store.Take(msg.entries[0]); err != nil || out != cache.Taken {
			b.Fatal(out, err)
		}
	}
}
