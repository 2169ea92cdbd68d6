package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
)

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var out bytes.Buffer
		calls := map[string][]time.Duration{}
		began, may := time.Now(), true
		entry := func(kv ...any) *value.Map { return value.NewMap(append([]any{"function", "x.y"}, kv...)...) }
		s := New(Config{
			Entries: value.NewMap(
				"enabled", true, // a setting of the whole
				"minute", value.NewMap("function", "a.minute", "minutes", int64(1), "args", []any{1}, "kwargs", value.NewMap("k", "v")),
				"later", value.NewMap("function", "a.later", "seconds", 90.0, "run_on_start", false),
				"slow", value.NewMap("function", "a.slow", "minutes", int64(1)),
				"fails", value.NewMap("function", "a.fails", "hours", int64(1)),
				"off", entry("seconds", int64(1), "enabled", false),
				"cron", entry("cron", "* * * * *"),
				"none", value.NewMap("seconds", int64(1)),
			),
			Call: func(ctx context.Context, fun string, args []any, named *value.Map) (any, error) {
				mu.Lock()
				calls[fun] = append(calls[fun], time.Since(began))
				mu.Unlock()
				switch fun {
				case "a.minute":
					if fmt.Sprint(args) != "[1]" || named.Str("k") != "v" {
						t.Errorf("%v %v", args, named)
					}
				case "a.slow":
					time.Sleep(150 * time.Second)
				case "a.fails":
					return nil, errors.New("as asked")
				}
				return nil, nil
			},
			MayAct: func() bool { mu.Lock(); defer mu.Unlock(); return may },
			Log:    slog.New(slog.NewTextHandler(&out, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		time.Sleep(200 * time.Second)
		synctest.Wait()
		mu.Lock()
		may = false // another master of the cluster does it
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		for fun, want := range map[string][]time.Duration{
			"a.minute": {0, time.Minute, 2 * time.Minute, 3 * time.Minute},
			"a.later":  {90 * time.Second, 180 * time.Second},
			"a.slow":   {0, 150 * time.Second}, // it is not at work twice
			"a.fails":  {0},
			"x.y":      nil,
		} {
			if !slices.Equal(calls[fun], want) {
				t.Errorf("%s was called after %v, not %v", fun, calls[fun], want)
			}
		}
		for _, want := range []string{"name=cron", "name=none", `error="as asked"`} {
			if strings.Count(out.String(), want) != 1 {
				t.Errorf("%s is not in the log:\n%s", want, &out)
			}
		}
	})
}

// Finding F2: runs that find all workers busy wait for one, and none is left out without
// a word; maxrunning allows several of an entry.
func TestScheduledRunsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var out bytes.Buffer
		running, most := map[string]int{}, map[string]int{}
		ran := map[string]int{}
		entries := value.NewMap("twice", value.NewMap("function", "a.twice", "seconds", int64(20), "maxrunning", int64(2)))
		for i := range 30 {
			entries.Set(fmt.Sprint("once", i), value.NewMap("function", "a.once", "hours", int64(1)))
		}
		s := New(Config{
			Entries: entries,
			Workers: 3,
			Call: func(ctx context.Context, fun string, _ []any, _ *value.Map) (any, error) {
				mu.Lock()
				for _, name := range []string{fun, "all"} {
					running[name]++
					most[name] = max(most[name], running[name])
					ran[name]++
				}
				mu.Unlock()
				time.Sleep(50 * time.Second)
				mu.Lock()
				running[fun]--
				running["all"]--
				mu.Unlock()
				return nil, nil
			},
			MayAct: func() bool { return true },
			Log:    slog.New(slog.NewTextHandler(&out, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if ran["a.once"] != 30 || most["all"] != 3 || most["a.twice"] != 2 || ran["a.twice"] < 40 {
			t.Errorf("ran %v, at once %v", ran, most)
		}
		mu.Unlock()
		if stats := s.Stats(); stats.Waited == 0 || stats.Done < 70 || stats.Waiting > 1 {
			t.Errorf("%+v", stats)
		}
		if text := out.String(); !strings.Contains(text, "runs were left out") || !strings.Contains(text, "name=twice") || strings.Contains(text, "name=once") {
			t.Errorf("log:\n%s", text)
		}
		cancel()
		<-ended
	})
}
