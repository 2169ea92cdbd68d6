package client

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"saltern/internal/control"
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
