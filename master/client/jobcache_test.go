package client

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/batch"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

// A master that takes requests and answers none holds an event loop no longer than its caller waits.
func TestCatchUpBesideAMasterThatHangs(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, control.Socket))
	check.Must(t, err)
	defer socket.Close()

	c := &Client{cfg: Config{
		CacheDir: dir,
		SockDir:  dir,
		Now:      time.Now,
		Log:      slog.New(slog.DiscardHandler),
	}}
	var watches []*watch
	for _, jid := range []string{"20261129120000000001", "20261129120000000002"} {
		watches = append(watches, newWatch(jid, []string{"m1", "m2"}, time.Minute, time.Minute, time.Now()))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if !c.catchUp(ctx, watches, func(*watch, Return) bool { return true }) {
		t.Error("the loop ends")
	}
	if took := time.Since(began); took > catchUpWait {
		t.Errorf("the loop was held for %v", took)
	}
}

// slowMaster answers the first request for files of a job too late, and each other one when it has written the return
// of m1.
type slowMaster struct {
	control.Master
	dir     string
	wasLate atomic.Bool
}

func (m *slowMaster) LayOutJob(ctx context.Context, q control.JobFiles) error {
	if !m.wasLate.Swap(true) {
		<-ctx.Done()
		return ctx.Err()
	}

	packed, err := msgpack.Marshal(value.NewMap("return", q.JID, "retcode", int64(0)), msgpack.Modern)
	if err != nil {
		return err
	}
	hash := jidHash("sha256", q.JID)
	folder := filepath.Join(m.dir, "jobs", hash[:2], hash[2:], "m1")
	return cmp.Or(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "return.p"), packed, 0o600))
}

// Parts of a batch that end at once do not share one wait: the return of one is found although the files of the one
// before came too late.
func TestEachPartOfABatchWaitsForItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, control.Socket))
	check.Must(t, err)
	server := control.Serve(socket, &slowMaster{dir: dir}, slog.New(slog.DiscardHandler))
	defer server.Close()

	r := batchRun{
		client: &Client{cfg: Config{
			CacheDir: dir,
			SockDir:  dir,
			Now:      time.Now,
			Log:      slog.New(slog.DiscardHandler),
		}},
		state: batch.New([]string{"m1"}, 1),
	}
	late := newWatch("20261129120000000001", []string{"m1"}, time.Minute, time.Minute, time.Now())
	next := newWatch("20261129120000000002", []string{"m1"}, time.Minute, time.Minute, time.Now())
	if !r.releaseEnded(t.Context(), []*watch{late, next}) {
		t.Error("no part has ended")
	}
	if len(r.heldReturns) != 1 || r.heldReturns[0].JID != next.jid {
		t.Errorf("the returns are %+v", r.heldReturns)
	}
}
