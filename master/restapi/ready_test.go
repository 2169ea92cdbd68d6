package restapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/conf"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/baddisk"
	"saltern/test/logged"
)

// TestSessionsOnABadDisk: a node that cannot store log-ins is not ready for the API, reports why,
// and closes its connections after their answers. So does a node whose master cannot store jobs.
// Both become ready again by themselves.
func TestSessionsOnABadDisk(t *testing.T) {
	disk := baddisk.New(t, baddisk.Ext4)
	o, _, err := read(t, "{port: 1, disable_ssl: true}")
	if err != nil {
		t.Fatal(err)
	}

	sockets := t.TempDir()
	m := &conf.Master{
		Raw:   value.NewMap(),
		Paths: conf.Paths{SockDir: sockets, TokenDir: filepath.Join(disk.Dir, "tokens")},
	}

	var lines logged.Buffer
	s, err := New(m, o, slog.New(slog.NewTextHandler(&lines, nil)), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if err := os.WriteFile(filepath.Join(sockets, "workers.ipc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	var master error
	s.life.stop()
	s.life = newLife(func(context.Context) error { return master }, time.Now)

	s.sessions.Every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { s.sessions.Run(ctx) })
	defer watching.Wait()

	defer cancel()

	answer := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}

	says := func(text string) {
		t.Helper()
		await.That(t, text, func() bool { return answer("/readyz").Body.String() == text+"\n" })
		last := answer("/").Header().Get("Connection") == "close"
		if well := text == "ready"; last == well {
			t.Errorf("%s: the connection ends: %t", text, last)
		}
	}

	says("ready")
	disk.Fill()
	says("the folder of sessions takes no writes: no space left on device")
	disk.Empty()
	says("ready")

	for _, once := range []string{"the folder of sessions takes no writes", "log-ins can be kept again"} {
		if text := lines.String(); strings.Count(text, once) != 1 {
			t.Errorf("not logged once: %s\n%s", once, text)
		}
	}

	s.life.stop()
	master = client.ErrUnwell
	s.life = newLife(func(context.Context) error { return master }, time.Now)
	says("the master can keep no jobs")
}

// TestConnectionsAfterAFault: if the master could not store jobs at the last check, salt-api does
// not close connections for ever: there may be no further check.
func TestConnectionsAfterAFault(t *testing.T) {
	now := time.Now()
	l := newLife(func(context.Context) error { return client.ErrUnwell }, func() time.Time { return now })
	defer l.stop()
	if err := l.awaitSign(t.Context()); !errors.Is(err, client.ErrUnwell) || !errors.Is(l.lastSign(), client.ErrUnwell) {
		t.Errorf("look says %v, then last %v", err, l.lastSign())
	}
	now = now.Add(time.Minute)
	if err := l.lastSign(); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TestSessionsInOneFolder: machines that store their log-ins in the same folder do not mistake each
// other's test files for faults of the disk.
func TestSessionsInOneFolder(t *testing.T) {
	dir := t.TempDir()
	var machines sync.WaitGroup
	for _, machine := range []string{"n1", "n2", "n3"} {
		watch := watchSessions(dir, machine, slog.New(slog.DiscardHandler))
		machines.Go(func() {
			for range 50 {
				if err := watch.Try(); err != nil {
					t.Errorf("%s: %v", machine, err)
					return
				}
			}
		})
	}

	machines.Wait()
}
