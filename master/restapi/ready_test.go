package restapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/conf"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/baddisk"
)

// TestSessionsOnABadDisk: a node that can keep no log-ins is not ready for the API, says why, and ends
// its connections behind their answers; so does one whose master can keep no jobs. It is ready again
// by itself.
func TestSessionsOnABadDisk(t *testing.T) {
	disk := baddisk.New(t, baddisk.Ext4)
	o, _, err := read(t, "{port: 1, disable_ssl: true}")
	if err != nil {
		t.Fatal(err)
	}
	sockets := t.TempDir()
	m := &conf.Master{Raw: value.NewMap(), Paths: conf.Paths{SockDir: sockets, TokenDir: filepath.Join(disk.Dir, "tokens")}}
	s, err := New(m, o, slog.New(slog.DiscardHandler), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(filepath.Join(sockets, "workers.ipc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var master error
	s.life.close()
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

	s.life.close()
	master = client.ErrUnwell
	s.life = newLife(func(context.Context) error { return master }, time.Now)
	says("the master can keep no jobs")
}
