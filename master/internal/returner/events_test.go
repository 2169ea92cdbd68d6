package returner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/pyhost"
	"saltern/master/pyrunner"
	"saltern/master/value"
	"saltern/test/await"
)

// own is an administrator's returner. It is away while the file away is there, and refuses the
// event bad for ever.
const own = `
import os
def event_return(events):
    folder = __opts__["root_dir"]
    if os.path.exists(folder + "/away"):
        raise OSError("the service is away")
    if any(event["tag"] == "my/bad" for event in events):
        raise ValueError("it does not take this one")
    with open(folder + "/NAME", "a") as file:
        print(*["%s=%s" % (event["tag"], event["data"].get("n")) for event in events], file=file)
`

type site struct {
	dir  string
	bus  *event.Bus
	open func(ctx context.Context) (Worker, error)
	ends bool // job_cache_store_endtime
}

func newSite(t *testing.T) *site {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}

	s := &site{dir: t.TempDir(), bus: event.NewBus(time.Now, 0)}
	s.put(t, "master", "root_dir: "+s.dir+"\nid: m1\nextension_modules: "+s.dir+"/ext\n")
	for _, name := range []string{"one", "two"} {
		s.put(t, "ext/returners/"+name+".py", strings.ReplaceAll(own, "NAME", name))
	}

	host := pyrunner.NewHost(pyrunner.HostConfig{
		Pythons: []string{python},
		Memory:  pyhost.DefaultMemory / 4,
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	t.Cleanup(host.Close)
	caller := pyrunner.New(pyrunner.Config{
		Host:       host,
		ConfigFile: filepath.Join(s.dir, "master"),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	s.open = func(ctx context.Context) (Worker, error) { return caller.OpenReturner(ctx) }
	first, err := s.open(t.Context()) // Python's start is not what is tested, and takes longest
	if err != nil {
		t.Fatal(err)
	}

	first.Close()
	return s
}

func (s *site) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start begins to return events until stop.
func (s *site) start(t *testing.T, queue int) (e *Events, stop func()) {
	t.Helper()
	e = NewEvents(EventsConfig{
		Dir:       filepath.Join(s.dir, "spools"),
		Bytes:     1 << 20,
		Returners: []string{"one", "two", "one"},
		Whitelist: []string{"my/*"},
		Blacklist: []string{"*/hidden"},
		Queue:     queue,
		Bus:       s.bus,
		Open:      s.open,
		pause:     10 * time.Millisecond,
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }() // until stop
	stop = func() { cancel(); <-done; e.Close() }
	t.Cleanup(stop)

	return e, stop
}

func (s *site) fire(t *testing.T, tag string, n int) {
	t.Helper()
	if err := s.bus.Fire(tag, value.NewMap("n", n)); err != nil {
		t.Fatal(err)
	}
}

// got are the calls of a returner.
func (s *site) got(name string) []string {
	content, _ := os.ReadFile(filepath.Join(s.dir, name))
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

// TestEventsGetToReturners in their order, each in one call, once: over a stop and a start, while
// a returner is away, and behind one that it refuses. Those that the lists leave out do not.
func TestEventsGetToReturners(t *testing.T) {
	s := newSite(t)
	e, stop := s.start(t, 0)
	var want []string
	fire := func(n int) {
		s.fire(t, "my/event", n)
		want = append(want, fmt.Sprintf("my/event=%d", n))
	}

	arrive := func() {
		t.Helper()
		for _, name := range []string{"one", "two"} {
			await.That(t, "the events get to the returner "+name, func() bool { return len(s.got(name)) >= len(want) })
			if got := s.got(name); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s has got %v, want %v", name, got, want)
			}
		}
	}

	s.fire(t, "others/event", 0)
	s.fire(t, "my/hidden", 0)
	if err := s.bus.Relay(event.Event{Tag: "my/peer", Data: value.NewMap("n", 0), Origin: event.Peer}); err != nil {
		t.Fatal(err)
	}

	for n := range 50 {
		fire(n)
	}

	arrive()

	s.put(t, "away", "")
	for n := range 20 {
		fire(100 + n)
	}

	await.That(t, "the master says that the returner is away",
		func() bool { return strings.Contains(e.Stats()[0].Error, "the service is away") })
	stop()
	e, _ = s.start(t, 0)
	fire(200)

	if err := os.Remove(filepath.Join(s.dir, "away")); err != nil {
		t.Fatal(err)
	}

	arrive()

	s.fire(t, "my/bad", 0)
	fire(300)
	await.That(t, "the event is refused", func() bool { return e.Stats()[0].Refused == 1 && e.Stats()[1].Refused == 1 })
	fire(301)
	arrive()
}

// TestQueueOfEventReturn: a call gets as many events as event_return_queue says, and those that
// wait for others at the end are not lost.
func TestQueueOfEventReturn(t *testing.T) {
	s := newSite(t)
	e, stop := s.start(t, 3)
	for n := range 8 {
		s.fire(t, "my/event", n)
	}

	want := []string{"my/event=0 my/event=1 my/event=2", "my/event=3 my/event=4 my/event=5"}
	await.That(t, "two calls", func() bool { return len(s.got("one")) == 2 && e.Stats()[0].Waiting == 2 })
	stop()
	s.start(t, 3)
	s.fire(t, "my/event", 8)
	want = append(want, "my/event=6 my/event=7 my/event=8")
	await.That(t, "the third call", func() bool { return len(s.got("one")) == 3 })

	if got := s.got("one"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRefusedInARow: many events that a returner refuses, one behind the other, do not keep it from
// those that come after them.
func TestRefusedInARow(t *testing.T) {
	s := newSite(t)
	e, _ := s.start(t, 0)
	const refused = 9
	for n := range refused {
		s.fire(t, "my/bad", n)
		if n == 4 {
			s.fire(t, "my/event", n)
		}
	}

	s.fire(t, "my/event", refused)
	await.That(t, "all is settled", func() bool {
		stats := e.Stats()
		return stats[0].Refused == refused && stats[0].Waiting == 0 && stats[1].Refused == refused &&
			stats[1].Waiting == 0
	})

	for i, stats := range e.Stats() {
		if stats.Refused != refused || stats.Done != 2 || stats.Lost != 0 {
			t.Errorf("%+v, want %d refused, 2 done", stats, refused)
		}

		got := s.got([]string{"one", "two"}[i])
		slices.Sort(got)
		if want := "[my/event=4 my/event=9]"; fmt.Sprint(got) != want {
			t.Errorf("%s has got %v, want %s in some order", stats.Returner, got, want)
		}
	}
}

// TestSpoolThatCannotBeOpened: what returners are to get does not keep the master from its start,
// and the status says why they get nothing.
func TestSpoolThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "events"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	e := NewEvents(EventsConfig{
		Dir:       dir,
		Bytes:     1 << 20,
		Returners: []string{"one"},
		Bus:       event.NewBus(time.Now, 0),
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }() // until cancel
	await.That(t, "the status says so", func() bool {
		stats := e.Stats()
		return len(stats) == 1 && strings.Contains(stats[0].Error, "open the spool of event_return")
	})

	cancel()
	<-done
	e.Close()
}

// misbehaves is a returner that does what returners must not do.
const misbehaves = `
import os, sys
def event_return(events):
    for event in events:
        what = event["tag"][:8]
        if what == "my/forks":
            if os.fork() == 0:
                return
        if what == "my/flood":
            for n in range(32):
                sys.stdout.write("x" * (1 << 20) + "\\n")
        if what == "my/exits":
            sys.exit(3)
        if what == "my/error":
            raise ValueError("y" * (32 << 20))
        with open(__opts__["root_dir"] + "/one", "a") as file:
            print("%s=%s" % (what, event["data"].get("n")), file=file)
        if what == "my/large":
            return "x" * (100 << 20)
`

// TestReturnerThatMisbehaves: a returner that forks, writes much to its standard output, ends the
// process, or raises and returns much, gets each event once, and what it refuses counts as refused.
func TestReturnerThatMisbehaves(t *testing.T) {
	s := newSite(t)
	s.put(t, "ext/returners/one.py", misbehaves)
	e, _ := s.start(t, 0)
	for n, tag := range []string{"my/forks", "my/error", "my/large", "my/flood", "my/exits", "my/forks", "my/exits",
		"my/" + strings.Repeat("long", 1000), "my/end"} {
		s.fire(t, tag, n)
	}

	await.That(t, "all is settled", func() bool {
		stats := e.Stats()
		return stats[0].Done+stats[0].Refused == 9 && stats[0].Waiting == 0
	})
	if stats := e.Stats()[0]; stats.Refused != 3 || stats.Done != 6 || stats.Lost != 0 {
		t.Errorf("%+v, want 3 refused, 6 done", stats)
	}

	got := s.got("one")
	slices.Sort(got)
	want := "[my/end=8 my/flood=3 my/forks=0 my/forks=5 my/large=2 my/longl=7]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s in some order", got, want)
	}
}
