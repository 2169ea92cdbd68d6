package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/authority"
	"saltern/test/await"
	"saltern/test/check"
)

// A pipe into which nobody writes stands for a file on a file system that hangs: who opens it waits in the kernel.
func TestFilesThatHangHoldNobodyUp(t *testing.T) {
	s := sharedServer(t)
	db := *s.database(t)
	db.SSLMode = "prefer"
	db.SSLRootCert = filepath.Join(t.TempDir(), "ca")
	check.Must(t, syscall.Mkfifo(db.SSLRootCert, 0o600))
	hasty := func(f *feed) {
		f.firstPause = time.Millisecond
		f.db.connectTimeout = time.Second
	}
	r := openRig(t, t.TempDir(), &db, 64<<20, hasty)
	addMany(t, r.journal, 1, 11)

	a := newAskers(t, &db, 400*time.Millisecond)
	goroutines := runtime.NumGoroutine()
	began := time.Now()
	for range 4 * lookupConnections {
		_, _, err := a.Job(t.Context(), jid(1))
		if !errors.Is(err, errAway) {
			t.Errorf("%v", err)
		}
		a.advance(askAgain)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("look-ups waited for %s", d)
	}
	if more := runtime.NumGoroutine() - goroutines; more > lookupConnections+2 {
		t.Errorf("%d goroutines were added for %d connections", more, lookupConnections)
	}
	if !strings.Contains(a.log.String(), "sslrootcert") {
		t.Errorf("the log does not name the files: %s", a.log.String())
	}
	await.That(t, "the sink names the files", func() bool { return strings.Contains(r.sink.Stats().Error, "file system hangs") })

	began = time.Now()
	r.stop()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the stop waited for the files for %s", d)
	}
	again := openRig(t, filepath.Dir(r.journal.own.dir), &db, 64<<20, hasty)

	// The file system answers: whoever waits in the kernel reads the end of the pipe, and the next one the file.
	content, err := os.ReadFile(authority.New(t).File)
	check.Must(t, err)
	ca := filepath.Join(t.TempDir(), "ca")
	check.Must(t, os.WriteFile(ca, content, 0o600))
	pipe, err := os.OpenFile(db.SSLRootCert, os.O_RDWR, 0)
	check.Must(t, err)
	check.Must(t, os.Rename(ca, db.SSLRootCert))
	check.Must(t, pipe.Close())
	again.drained()
	wantOnce(t, s.query(t, &db), 10)
	await.That(t, "look-ups answer again", func() bool {
		a.advance(askAgain)
		load, _, err := a.Job(t.Context(), jid(1))
		return err == nil && load != nil
	})
}
