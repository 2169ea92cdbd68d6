package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/test/await"
)

// While another node looks for changes, passes are made when it has marked one.
func TestMirrorPace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	m := mirror{
		child: worker{command: []string{self, "as-helper"}},
		pace:  mirrorPace{time.Millisecond, time.Hour, time.Millisecond},
	}

	var mark, passes, looks atomic.Uint64
	var alone atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.keepCopying(ctx, time.Now, func() bool { passes.Add(1); return true }, func() (uint64, bool) {
			looks.Add(1)
			return mark.Load(), !alone.Load()
		}, func(mirrorReport) {})
	}()
	defer func() { cancel(); <-ended }()

	until := func(what string, ok func() bool) {
		t.Helper()
		if !await.Within(time.Minute, ok) {
			t.Fatalf("%s: %d passes after %d looks", what, passes.Load(), looks.Load())
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

// Who wants the files of now gets them by a pass that begins after the question,
// however long the next one is away.
func TestMirrorFresh(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	from, to := t.TempDir(), t.TempDir()
	spec := mirrorSpec{Source: from, Dest: to, Trees: []string{"etc/master.d"}, Any: true}
	m := mirror{passWanted: make(chan struct{}, 1), pace: mirrorPace{time.Hour, time.Hour, time.Hour},
		child: worker{command: []string{self, "as-helper", "mirror", spec.argument()}}}
	var there atomic.Bool
	there.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.keepCopying(ctx, time.Now, there.Load, func() (uint64, bool) { return 0, true }, func(mirrorReport) {})
	}()
	defer func() { cancel(); <-ended }()

	for _, text := range []string{"one", "two"} {
		if err := os.MkdirAll(from+"/etc/master.d", 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(from+"/etc/master.d/a.conf", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}

		limit, stop := context.WithTimeout(ctx, 20*time.Second)
		err := m.waitForNew(limit)
		stop()
		b, rerr := os.ReadFile(to + "/etc/master.d/a.conf")
		if err != nil || rerr != nil || string(b) != text {
			t.Fatalf("%v, %v: %q, want %q", err, rerr, b, text)
		}
	}

	there.Store(false)
	limit, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()

	if err := m.waitForNew(limit); err == nil {
		t.Error("fresh without a volume")
	}
}

// A pass tells of each file, of each part of a large one, and of each that comes into place.
func TestPassTellsThatItGetsOn(t *testing.T) {
	const files, large = 300, 8 << 20
	from := t.TempDir()
	tree := filepath.Join(from, "srv/salt")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		size := i
		if i == 0 {
			size = large
		}
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprint(i)), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := mirrorSpec{
		Source: from,
		Dest:   t.TempDir(),
		Trees:  []string{"srv/salt"},
		Any:    true,
		Stage:  stageDir,
	}

	var steps int
	c := newCopier(spec)
	c.step = func() { steps++ }
	const parts = large / (32 << 10)                              // as io.Copy takes them
	for _, least := range []int{files*4 + parts - 1, files * 2} { // listed, written, placed, swept; then listed and swept
		steps = 0
		if _, err := c.runPass(); err != nil {
			t.Fatal(err)
		}
		if steps < least {
			t.Errorf("a pass made %d steps, at least %d are expected", steps, least)
		}
	}

	var out bytes.Buffer
	if code := mirrorChild([]string{spec.argument()}, strings.NewReader("{}\n"), &out, io.Discard); code != 0 {
		t.Errorf("the child ended with %d", code)
	}
	step, answer, _ := strings.Cut(out.String(), "\n")
	if step != "" || !strings.Contains(answer, `"files":300`) {
		t.Errorf("the child wrote %q", out.String())
	}
}
