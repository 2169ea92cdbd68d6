package jobs

import (
	"context"
	"fmt"
	"os"
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
