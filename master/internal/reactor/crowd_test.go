package reactor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
)

// reacting is an Engine whose rule calls the runner own.note with the number of the
// event.
type reacting struct {
	*Engine
	bus  *event.Bus
	log  bytes.Buffer
	note func(ctx context.Context, n int64) // what the runner does
	end  func()
}

// noting compiles each event to a call of own.note.
type noting struct{}

func (noting) Compile(
	_ context.Context,
	_ string,
	data *value.Map,
	_ []string,
) (calls, faults []*value.Map, err error) {
	call := value.NewMap("id", "r", "kind", "runner", "fun", "own.note", "kwarg", value.NewMap("n", data.Value("n")))
	return []*value.Map{call}, nil, nil
}

func (noting) Close() {}

func newReacting(t *testing.T, depth, threads int) *reacting {
	t.Helper()
	r := &reacting{bus: event.NewBus(time.Now, 1<<20)}
	table := runner.New()
	table.Add("own.note", func(ctx context.Context, _ *runner.Env, _ []any, named *value.Map) (any, error) {
		n, _ := named.Int("n")
		r.note(ctx, n)
		return true, nil
	})

	log := slog.New(slog.NewTextHandler(&r.log, nil))
	runs := runner.NewRuns(runner.RunsConfig{
		Table: table,
		Env:   &runner.Env{},
		Fire:  func(string, *value.Map) {},
		IDs:   jobs.NewIDs(time.Now),
		Now:   time.Now,
		Log:   log,
	})

	r.Engine = NewEngine(Config{
		Rules:    NewRules(RulesConfig{Entries: []any{value.NewMap("my/event", []any{"/dev/null"})}, Log: log}),
		Depth:    depth,
		Threads:  threads,
		Bus:      r.bus,
		Runs:     runs,
		Compiler: noting{},
		Log:      log,
	})

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()

	r.end = sync.OnceFunc(func() {
		stop()
		<-ended
		r.bus.Close()
	})

	t.Cleanup(r.end)
	return r
}

func (r *reacting) fire(t *testing.T, n int) {
	t.Helper()
	if err := r.bus.Fire("my/event", value.NewMap("n", int64(n))); err != nil {
		t.Fatal(err)
	}
}

// Finding F2: 10,000 events at once whose runner takes its time all react, so many at
// once, begun in the order of the events.
func TestBurstOfReactions(t *testing.T) {
	const events, threads = 10_000, 10
	r := newReacting(t, events, threads)
	var mu sync.Mutex
	var begun []int64
	running, most := 0, 0
	r.note = func(_ context.Context, n int64) {
		mu.Lock()
		begun = append(begun, n)
		running++
		most = max(most, running)
		mu.Unlock()

		time.Sleep(time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
	}

	for n := range events {
		r.fire(t, n)
	}

	await.That(t, "all reactions", func() bool { return r.Stats().Done == events })
	const late = events / 10 // a busy machine may hold up one thread while the others go on
	for i, n := range begun {
		if n < int64(i-late) || n > int64(i+late) {
			t.Fatalf("event %d was reacted to as number %d", n, i)
		}
	}

	if s := r.Stats(); len(begun) != events || most > threads || s.Lost != 0 || s.Waiting != 0 ||
		s.Events != 0 || s.Waited == 0 {
		t.Errorf("%d begun, %d at once, %+v", len(begun), most, s)
	}
}

// When there is no room any more the newest events are lost, and counted; what waits
// when the master stops is counted in the log.
func TestReactionsWithoutRoom(t *testing.T) {
	const depth, events = 50, 500
	r := newReacting(t, depth, 1)
	hold := make(chan struct{})
	r.note = func(ctx context.Context, _ int64) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}

	for n := range events {
		r.fire(t, n)
		if n <= depth { // the second queue fills first
			await.That(t, "a reaction", func() bool { s := r.Stats(); return s.Waiting+s.Running == n+1 })
		}
	}

	await.That(t, "full queues", func() bool { return r.Stats().Events >= depth })
	s := r.Stats()

	// One more is at work, and one waits for a place in the second queue.
	if kept := s.Waiting + s.Running + s.Events + 1; s.Lost == 0 || int(s.Lost)+kept != events {
		t.Errorf("%d kept, %+v", kept, s)
	}

	r.end()
	want := fmt.Sprintf("reactions that waited are lost, since the master stops\" runners=%d events=%d",
		s.Waiting, s.Events+1)
	if !strings.Contains(r.log.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, &r.log)
	}

	close(hold)
}

// TestRuleIsDeletedInAStorm: a change by another master takes effect while both queues are full,
// and the deleted rule no longer reacts to the events that wait.
func TestRuleIsDeletedInAStorm(t *testing.T) {
	const depth, events = 50, 500
	r := newReacting(t, depth, 1)
	hold := make(chan struct{})
	var done atomic.Int64
	r.note = func(ctx context.Context, _ int64) {
		select {
		case <-hold:
			done.Add(1)
		case <-ctx.Done():
		}
	}

	for n := range events {
		r.fire(t, n)
		if n <= depth { // the second queue fills first
			await.That(t, "a reaction", func() bool { s := r.Stats(); return s.Waiting+s.Running == n+1 })
		}
	}
	await.That(t, "full queues", func() bool { return r.Stats().Events >= depth })

	deleted := changes{"my/event": {stamp: stamp{1, "m2"}, removed: 1}}
	if err := r.bus.Relay(event.Event{
		Tag:    event.TagReactorRules,
		Data:   deleted.toEvent(),
		Origin: event.Peer,
		Maker:  event.Internal,
	}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the change", func() bool { return len(r.rules.Files("my/event")) == 0 })

	close(hold)
	await.That(t, "an empty queue", func() bool { s := r.Stats(); return s.Events == 0 && s.Waiting+s.Running == 0 })
	if n := done.Load(); n > depth+2 { // those whose calls waited, the one at work, and the one in between
		t.Errorf("%d reactions, %d calls waited", n, depth)
	}
}
