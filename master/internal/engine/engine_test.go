package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/engine/entry"
	"saltern/master/internal/pyhost"
	"saltern/master/pyrunner"
	"saltern/master/value"
	"saltern/test/await"
)

// own is an administrator's engine: it answers each event my/ask with one of its own, as Salt's
// engines fire them. On SIGTERM it says so in a file.
const own = `
import os
import signal
import salt.utils.event

def start(word="none"):
    def end(*_):
        open(__opts__["root_dir"] + "/ended", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=True) as bus:
        bus.fire_event({"pid": os.getpid(), "runner": "test.arg" in __runners__}, "my/started", timeout=60000)
        for event in bus.iter_events(tag="my/ask", full=True):
            bus.fire_event({"word": word, "n": event["data"]["n"]}, "my/answer", timeout=60000)
`

// TestEngineRunsWhereItIsToRun: an engine hears and fires events, is started again when it is
// killed, ends where another master owns the cluster's work and begins when this one does.
func TestEngineRunsWhereItIsToRun(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}

	dir, err := os.MkdirTemp("", "engine") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	put("master", "root_dir: "+dir+"\nid: m1\nsock_dir: "+dir+"/run\nextension_modules: "+dir+"/ext\n")
	put("ext/engines/own.py", own)
	put("run/.empty", "")

	log := slog.New(slog.DiscardHandler)
	bus := event.NewBus(time.Now, 0)
	defer bus.Close()

	sockets, err := event.Serve(bus, event.Config{Dir: filepath.Join(dir, "run"), PubMode: 0o600}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer sockets.Close()

	heard := bus.Subscribe("test", 1000, event.Prefix("my/started", "my/answer"))
	host := pyrunner.NewHost(pyrunner.HostConfig{Pythons: []string{python}, Memory: pyhost.DefaultMemory / 4, Log: log})
	defer host.Close()

	caller := pyrunner.New(pyrunner.Config{Host: host, ConfigFile: filepath.Join(dir, "master"), Log: log})
	var owner atomic.Bool
	owner.Store(true)
	s := New(Config{
		Entries: []entry.Entry{
			{Name: "own", Module: "own", Arguments: value.NewMap("word", "hello")},
			{Name: "none", Module: "none", Arguments: value.NewMap()},
		},
		Own: func() (uint64, bool) { return 1, owner.Load() },
		Open: func(ctx context.Context, e entry.Entry) (Process, error) {
			return caller.OpenEngine(ctx, e.Module, e.Arguments)
		},
		Log: log,
	})

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }() // until stop
	defer func() { stop(); <-done }()

	next := func(tag string) *value.Map {
		t.Helper()
		select {
		case e := <-heard.C:
			if e.Tag != tag {
				t.Fatalf("event %s, want %s", e.Tag, tag)
			}
			return e.Data
		case <-time.After(2 * time.Minute):
			t.Fatalf("no event %s: %+v", tag, s.Stats())
		}

		return nil
	}

	ask := func(n int) {
		t.Helper()
		if err := bus.Fire("my/ask", value.NewMap("n", n)); err != nil {
			t.Fatal(err)
		}
		if a := next("my/answer"); a.Str("word") != "hello" || fmt.Sprint(a.Value("n")) != fmt.Sprint(n) {
			t.Errorf("answer %s", value.Repr(a))
		}
	}

	started := next("my/started")
	if !started.Bool("runner") {
		t.Error("the engine has no runners")
	}

	ask(1)
	pid, _ := started.Int("pid")
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	next("my/started")
	ask(2)
	if got := s.Stats(); !strings.Contains(got[0].Error, "killed") || got[0].State != Running ||
		got[0].Starts != 2 || !strings.Contains(got[1].Error, "none") {
		t.Errorf("%+v", got)
	}

	owner.Store(false)
	await.That(t, "the engine ends",
		func() bool { return s.Stats()[0].State == Elsewhere && host.Stats().Sessions == 0 })
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("it was not let end by itself: %v", err)
	}

	owner.Store(true)
	next("my/started")
	ask(3)
}
