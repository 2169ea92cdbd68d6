package jobs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReturns saves returns of many minions at once and reports the CPU time that the process
// takes for each, including that of the background writer. SALTERN_BENCH_DIR chooses the disk.
func BenchmarkReturns(b *testing.B) {
	for _, at := range []int{1, 16, 200} {
		b.Run(fmt.Sprintf("at_once=%d", at), func(b *testing.B) {
			dir, err := os.MkdirTemp(os.Getenv("SALTERN_BENCH_DIR"), "jobs")
			if err != nil {
				b.Fatal(err)
			}
			defer os.RemoveAll(dir)

			c := open(b, Config{Dir: dir + "/jobs"})
			check.Must(b, c.SaveLoad(await.Context(b), jid1, value.NewMap("jid", jid1, "fun", "test.ping"), nil))
			var next atomic.Int64
			begin := cpu()
			b.SetParallelism(at / 2)

			if at == 1 {
				b.SetParallelism(1)
			}

			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := ret(jid1, fmt.Sprintf("minion-%d.example.com", next.Add(1)), true)
					if _, err := c.SaveReturn(context.Background(), r); err != nil {
						b.Error(err)
					}
				}
			})

			b.StopTimer()
			flushed(b, c)
			check.Must(b, c.Close(context.Background()))
			b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(b.N), "cpu-us/op")
			st := c.Stats()
			b.ReportMetric(float64(st.Records)/float64(st.Commits), "records/sync")
		})
	}
}

// BenchmarkStart opens a cache with the returns of a day in segments, and reports the CPU time too.
// SALTERN_BENCH_RETURNS says how many returns.
func BenchmarkStart(b *testing.B) {
	returns := 100_000
	if n, err := strconv.Atoi(os.Getenv("SALTERN_BENCH_RETURNS")); err == nil {
		returns = n
	}
	cfg := Config{Dir: b.TempDir() + "/jobs"}
	check.Must(b, writeSegments(cfg.Dir+".journal", returns))

	var took time.Duration
	b.ResetTimer()
	for range b.N {
		begin := cpu()
		c := open(b, cfg)
		took += cpu() - begin
		b.StopTimer()
		if c.home.records < returns {
			b.Fatalf("%d records", c.home.records)
		}
		check.Must(b, c.Close(context.Background()))
		b.StartTimer()
	}
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// writeSegments writes segments with so many returns, of jobs with 1000 minions each.
func writeSegments(dir string, returns int) error {
	const perSegment, minions = 60_000, 1000
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	from := time.Now().Add(-20 * time.Hour)
	for first := 0; first < returns; first += perSegment {
		m := mark{1, 2, 3, byte(first)}
		b := append([]byte(segmentMagic), m[:]...)
		for i := first; i < min(returns, first+perSegment); i++ {
			at := from.Add(time.Duration(i/minions) * time.Second)
			r := record{
				kind: kindReturn,
				time: at.UnixNano(),
				jid:  FromTime(at),
				id:   fmt.Sprintf("minion-%d.example.com", i%minions),
				a:    make([]byte, 200),
			}
			start := len(b)
			b = r.appendTo(b)
			copy(b[start:], m[:])
		}

		path := fmt.Sprintf("%s/%016d%s", dir, first/perSegment, keptSuffix)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
		if err := writeIndex(path, false, true); err != nil {
			return err
		}
	}
	return nil
}
