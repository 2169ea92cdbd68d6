package syndics

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

func open(t *testing.T, dir string) *Registry {
	t.Helper()
	accepted := func(id string) bool { return id == "mid" || id == "mid2" || id == "web1" }
	return Open(dir, accepted, slog.New(slog.DiscardHandler))
}

// TestSyndicsAreKnownByTheirEvents: who sends an event below its own name, to this master or to another one, is a
// syndic, also after a restart. Nobody becomes one by what somebody else says.
func TestSyndicsAreKnownByTheirEvents(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	bus := event.NewBus(time.Now, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { r.Follow(ctx, bus) })
	defer following.Wait()
	defer cancel()
	await.That(t, "the subscription", func() bool { return bus.Stats().Subscribers == 1 })

	check.Must(t, bus.Fire("syndic/web1/start", value.NewMap()))
	check.Must(t, bus.FireBy(event.Socket, "syndic/web1/start", value.NewMap()))
	check.Must(t, bus.FireFor("mid", "syndic/web1/start", value.NewMap()))
	check.Must(t, bus.FireFor("stranger", "syndic/stranger/start", value.NewMap()))
	check.Must(t, bus.FireFor("../web1", "syndic/../web1", value.NewMap()))
	check.Must(t, bus.FireFor("mid", "syndic/mid/20260102030405678901", value.NewMap("minions", []any{"low1"})))
	check.Must(t, bus.Relay(event.Event{Tag: "syndic/mid2/start", Origin: event.Peer, Maker: event.Minion, Minion: "mid2"}))
	await.That(t, "both syndics are known", func() bool { return r.Known("mid") && r.Known("mid2") })

	for _, now := range []*Registry{r, open(t, dir)} {
		for _, id := range []string{"web1", "stranger", "low1", "", "."} {
			if now.Known(id) {
				t.Errorf("%q is a syndic", id)
			}
		}
		if !now.Known("mid") || !now.Known("mid2") {
			t.Error("a syndic is forgotten")
		}
	}
}

// TestFilesOfSyndics: tools find an empty file of each syndic. A file of somebody without a key counts for
// nothing, a folder that cannot be written is said, and without lower masters nobody is a syndic.
func TestFilesOfSyndics(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	r.Note("mid")
	r.Note("stranger")
	if _, err := os.Lstat(filepath.Join(dir, Folder, "mid")); err != nil {
		t.Error(err)
	}
	check.Must(t, os.WriteFile(filepath.Join(dir, Folder, "gone"), nil, 0o600))
	if r = open(t, dir); !r.Known("mid") || r.Known("gone") || r.Known("stranger") {
		t.Error("the files are read wrongly")
	}

	blocked := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(blocked, nil, 0o600))
	log := &logged.Buffer{}
	r = Open(blocked, func(string) bool { return true }, slog.New(slog.NewTextHandler(log, nil)))
	r.Note("mid")
	if !r.Known("mid") || log.String() == "" {
		t.Errorf("a file that cannot be written: %q", log.String())
	}

	check.Must(t, os.Remove(blocked))
	before := log.String()
	r.Note("mid")
	if _, err := os.Lstat(filepath.Join(blocked, Folder, "mid")); err != nil || log.String() != before {
		t.Errorf("the next event does not write the file: %v, %q", err, log.String())
	}

	var none *Registry
	none.Note("mid")
	none.Forget("mid")
	none.Follow(t.Context(), nil)
	if none.Known("mid") {
		t.Error("a syndic without lower masters")
	}
}

// TestSyndicsEndWithTheirKeys: whose key is deleted is no syndic any more, also after a restart and with a new key, and
// also if the deletion comes while its event is noted. The file of another syndic stays.
func TestSyndicsEndWithTheirKeys(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	r.Note("mid")
	r.Note("mid2")
	r.Forget("mid")
	r.Forget("web1")
	r.Forget("../" + Folder + "/mid2")
	for _, now := range []*Registry{r, open(t, dir)} {
		if now.Known("mid") || !now.Known("mid2") {
			t.Errorf("mid %t, mid2 %t", now.Known("mid"), now.Known("mid2"))
		}
	}

	asked := 0
	deleted := Open(dir, func(string) bool { asked++; return asked == 1 }, slog.New(slog.DiscardHandler))
	asked = 0
	deleted.Note("mid")
	if deleted.Known("mid") || open(t, dir).Known("mid") {
		t.Error("a syndic whose key was deleted while it was noted")
	}
}
