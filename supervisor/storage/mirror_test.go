package storage

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// While another node looks for changes, passes are made when it has marked one.
func TestMirrorPace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := mirror{child: worker{command: []string{self, "as-helper"}}, pace: mirrorPace{time.Millisecond, time.Hour, time.Millisecond}}
	var mark, passes, looks atomic.Uint64
	var alone atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.keep(ctx, time.Now, func() bool { passes.Add(1); return true }, func() (uint64, bool) {
			looks.Add(1)
			return mark.Load(), !alone.Load()
		}, func(mirrorReport) {})
	}()
	defer func() { cancel(); <-ended }()
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d passes after %d looks", what, passes.Load(), looks.Load())
			}
		}
	}
	until("the first pass", func() bool { return passes.Load() == 1 })
	from := looks.Load()
	until("looks at the mark", func() bool { return looks.Load() > from+20 })
	if n := passes.Load(); n != 1 {
		t.Errorf("%d passes without a mark", n)
	}
	mark.Store(1)
	until("a pass for the mark", func() bool { return passes.Load() == 2 })
	from = looks.Load()
	until("looks at the mark", func() bool { return looks.Load() > from+20 })
	if n := passes.Load(); n != 2 {
		t.Errorf("%d passes for one mark", n)
	}
	alone.Store(true)
	until("passes without another node", func() bool { return passes.Load() > 10 })
}
