package restapi

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestHub: readers get events in order. The hub cuts a reader that reads nothing at the bound of
// events or of bytes, and no other reader.
func TestHub(t *testing.T) {
	for name, frame := range map[string]string{"events": "x", "bytes": strings.Repeat("x", 64<<10)} {
		h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), nil)
		cut := 0
		good := h.addReader(view{all: true}, func() { t.Error("the good one is cut") })
		slow := h.addReader(view{all: true}, func() { cut++ })
		sent := 0
		for ; cut == 0 && sent < 2*maxWaiting; sent++ {
			h.queueFrame("x", jobUser{}, func() string { return frame })
			frames, ok, _ := h.takeBatch(good)
			if len(frames) != 1 || !ok {
				t.Fatalf("%s: %d frames, %t", name, len(frames), ok)
			}
			h.countTaken(good, frames[0])
		}

		if want := min(maxWaiting, maxWaitingBytes/len(frame)) + 1; sent != want {
			t.Errorf("%s: cut after %d events, want %d", name, sent, want)
		}

		if _, ok, why := h.takeBatch(slow); ok || !why {
			t.Errorf("%s: the slow one reads on: %t %t", name, ok, why)
		}

		<-slow.wake
		h.removeReader(slow)
		h.cutAll()
		if _, ok, why := h.takeBatch(good); ok || why {
			t.Errorf("%s: after the end: %t %t", name, ok, why)
		}

		h.removeReader(good)
		h.closeAndWait()
	}
}

// TestHubBegun: a reader is answered when the hub has connected to the master's bus, or after a
// bounded time if there is no bus.
func TestHubBegun(t *testing.T) {
	dir, err := os.MkdirTemp("", "saltern") // sockets want a short path
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	synctest.Test(t, func(t *testing.T) {
		h := newHub(dir, slog.New(slog.DiscardHandler), nil)
		defer h.closeAndWait()
		r, began := h.addReader(view{all: true}, func() { t.Error("cut") }), time.Now()
		r.awaitBus(t.Context())
		if time.Since(began) != firstLook {
			t.Errorf("answered after %s, where nobody listens", time.Since(began))
		}
	})

	bus, err := net.Listen("unix", filepath.Join(dir, "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()

	h := newHub(dir, slog.New(slog.DiscardHandler), nil)
	defer h.closeAndWait()
	for range 2 {
		r := h.addReader(view{all: true}, func() { t.Error("cut") })
		r.awaitBus(t.Context())
		select {
		case <-r.reads:
		default:
			t.Error("answered before the bus is reached")
		}
	}
}

// TestHubLarge: a single event that is larger than the bound is delivered if no other event waits.
func TestHubLarge(t *testing.T) {
	h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	defer h.closeAndWait()
	r := h.addReader(view{all: true}, func() { t.Error("cut") })
	h.queueFrame("x", jobUser{}, func() string { return strings.Repeat("x", maxWaitingBytes+1) })
	if frames, ok, _ := h.takeBatch(r); len(frames) != 1 || !ok {
		t.Errorf("%d frames, %t", len(frames), ok)
	}
}

// TestHubMemory: a reader without waiting events takes very little memory, and an event that waits
// for many readers is stored once.
func TestHubMemory(t *testing.T) {
	h := newHub(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	defer h.closeAndWait()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}

	before := heap()
	var all []*eventReader
	for range maxReaders {
		all = append(all, h.addReader(view{all: true}, func() {}))
	}

	if got := heap() - before; got > 1<<20 {
		t.Errorf("%d idle readers hold %d bytes", maxReaders, got)
	}

	for range 16 {
		h.queueFrame("x", jobUser{}, sync.OnceValue(func() string { return strings.Repeat("x", 256<<10) }))
	}

	if got := heap() - before; got > 8<<20 {
		t.Errorf("%d readers of the same 4 MiB hold %d bytes", maxReaders, got)
	}

	runtime.KeepAlive(all)
}
