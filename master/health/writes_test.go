package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/await"
	"saltern/test/baddisk"
)

func newProblems() *Problems { return NewProblems(slog.New(slog.DiscardHandler), time.Now) }

// runs runs w until the test ends.
func runs(t *testing.T, w *Writes) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// TestWritesOfBadDisk: a master whose disk has failed notices that, reports the reason, and notices
// when the fault is over. (Finding F4: it answered load balancers as if it were healthy.)
func TestWritesOfBadDisk(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		harm, mend func(*baddisk.Disk)
		want       string
	}{
		{"XFS has shut down", baddisk.XFS, (*baddisk.Disk).Break, (*baddisk.Disk).Repair, "input/output error"},
		{"ext4 is read-only", baddisk.Ext4, (*baddisk.Disk).ReadOnly, (*baddisk.Disk).Repair, "read-only file system"},
		{"hangs", baddisk.XFS, (*baddisk.Disk).Freeze, (*baddisk.Disk).Thaw, "the disk does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			disk := baddisk.New(t, c.kind)
			problems := newProblems()
			w := NewWrites(filepath.Join(disk.Dir, ".try"), problems)
			w.Every = 20 * time.Millisecond
			w.Takes = 500 * time.Millisecond
			tried := make(chan struct{}, 1000)
			try := w.Try
			w.Try = func() error {
				defer func() { tried <- struct{}{} }()
				return try()
			}

			runs(t, w)
			<-tried
			c.harm(disk)
			await.That(t, "its reason", func() bool { return w.Reason() == "this master cannot keep jobs: "+c.want })

			if l := problems.List(); len(l) != 1 || l[0].What != control.JobCacheFault {
				t.Errorf("%+v", l)
			}

			c.mend(disk)
			await.That(t, "the end", func() bool { return w.Reason() == "" })
		})
	}
}

// TestWritesProblemEnds: when the disk works again, the job cache counts as healthy again, also if
// no minion returns anything.
func TestWritesProblemEnds(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	p := NewProblems(slog.New(slog.DiscardHandler), func() time.Time { return now })
	w := NewWrites(filepath.Join(dir, ".try"), p)
	p.Set(control.JobCacheFault, os.ErrInvalid)
	w.noteResult(nil)

	if len(p.List()) != 1 {
		t.Error("ended at once")
	}

	now = now.Add(jobCacheQuiet + time.Second)
	w.noteResult(syscall.ENOSPC)
	w.noteResult(nil)
	if len(p.List()) != 1 {
		t.Error("ended although the disk took nothing a moment ago")
	}

	now = now.Add(jobCacheQuiet + time.Second)
	w.noteResult(nil)
	if len(p.List()) != 0 {
		t.Error("does not end")
	}

	// What nothing meets again is forgotten.
	p.Set(control.MinionCacheFault, os.ErrInvalid)
	now = now.Add(ProblemFor + time.Second)
	if l := p.List(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

// TestReasonNamesNoPath: strangers may send a ping. Whatever the error is, the answer contains its
// cause and nothing about this machine.
func TestReasonNamesNoPath(t *testing.T) {
	const path = "/secret/place/.try"
	reason := func(err error) string {
		w := NewWrites(path, newProblems())
		w.Every = time.Hour
		w.Try = func() error { return err }
		noted := make(chan struct{})
		w.Note = func(error) { close(noted) }
		runs(t, w)
		<-noted

		return w.Reason()
	}

	for errno := syscall.Errno(1); errno < 134; errno++ {
		for _, err := range []error{
			errno,
			&os.PathError{Op: "write", Path: path, Err: errno},
			errors.Join(fmt.Errorf("try: %w", &os.LinkError{Op: "rename", Old: path, New: path, Err: errno}), io.EOF),
		} {
			if got, want := reason(err), "this master cannot keep jobs: "+errno.Error(); got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}

	if got := reason(fmt.Errorf("read %s: it is not what was written", path)); strings.Contains(got,
		"secret") || !strings.HasSuffix(got, ": what is written is not what is read") {
		t.Error(got)
	}
}
