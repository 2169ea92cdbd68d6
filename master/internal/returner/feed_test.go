package returner

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"saltern/master/internal/spool"
	"saltern/master/value"
	"saltern/test/await"
)

// moody is a returner that refuses some records always, and fails with others for a moment. Both have
// the same kind of error, as with a database that refuses a row and one whose lock times out.
type moody struct {
	refuses map[string]bool
	fails   map[string]int // how often a record still fails
	got     map[string]int
}

func (m *moody) Ask(_ context.Context, order *value.Map) (*value.Map, error) {
	for _, item := range order.List("items") {
		record := string(item.([]byte))
		if m.refuses[record] {
			return value.NewMap("error", "OperationalError: this row"), nil
		}
		if m.fails[record] > 0 {
			m.fails[record]--
			return value.NewMap("error", "OperationalError: deadlock found"), nil
		}
		m.got[record]++
	}
	return value.NewMap(), nil
}

func (m *moody) Stale() bool { return false }
func (m *moody) Close()      {}

// TestRecordThatFailsForAMoment: a returner that has refused records gets all others, also those which
// fail twice with the same kind of error.
func TestRecordThatFailsForAMoment(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s, err := spool.Open(spool.Config{Dir: t.TempDir(), Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r, err := s.Reader("x")
			if err != nil {
				t.Fatal(err)
			}

			m := &moody{refuses: map[string]bool{}, fails: map[string]int{}, got: map[string]int{}}
			const records = 30
			for n := range records {
				record := fmt.Sprint("record ", n)
				switch what := random.IntN(4); {
				case n == records-1: // the last one shows that the returner can be reached
				case what == 0:
					m.refuses[record] = true
				case what == 1:
					m.fails[record] = 1 + random.IntN(triesKnown-1)
				}
				if err := s.Append([]byte(record)); err != nil {
					t.Fatal(err)
				}
			}

			f := &feed{
				name:   "x",
				reader: r,
				batch:  1,
				pause:  time.Microsecond,
				open:   func(context.Context) (Worker, error) { return m, nil },
				log:    slog.New(slog.DiscardHandler),
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				f.handOver(ctx)
				close(ended)
			}()

			await.That(t, "nothing waits", func() bool { return f.Stats().Waiting == 0 })
			cancel()
			<-ended
			if refused := f.Stats().Refused; int(refused) != len(m.refuses) {
				t.Errorf("%d records refused, want %d", refused, len(m.refuses))
			}
			for n := range records {
				record := fmt.Sprint("record ", n)
				if m.got[record] == 0 && !m.refuses[record] {
					t.Errorf("%s is lost", record)
				}
			}
		})
	}
}
