package request

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func openNonces(t *testing.T, path string, now *time.Time) (*Nonces, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	n := OpenNonces(path, 10*time.Minute, func() time.Time { return *now }, slog.New(slog.NewTextHandler(&log, nil)))
	return n, &log
}

func closeNonces(t *testing.T, n *Nonces) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// What was taken is known after a restart, also when the process died in the
// middle of a record, and is forgotten when it is old.
func TestNoncesKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nonces.journal")
	now := time.Unix(1_700_000_000, 0)
	n, _ := openNonces(t, path, &now)
	a, b, failed, peers := nonceKey("m", "a"), nonceKey("m", "b"), nonceKey("m", "c"), nonceKey("m", "d")
	if !n.addOwn(a) || n.addOwn(a) || !n.addOwn(failed) {
		t.Fatal("the first time")
	}

	n.forget(failed)
	if !n.addOwn(failed) {
		t.Error("a request that failed is not taken again")
	}

	n.Learn([]NonceKey{peers, a})
	if n.addOwn(peers) {
		t.Error("what a peer has taken is taken here")
	}

	if own := n.Own(10); len(own) != 2 {
		t.Errorf("own: %d", len(own))
	}

	closeNonces(t, n)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	_, _ = f.WriteString("torn")
	_ = f.Close()
	for round := range 2 {
		n, log := openNonces(t, path, &now)
		if n.addOwn(a) || n.addOwn(peers) || n.addOwn(b) != (round == 0) || log.Len() > 0 {
			t.Errorf("after restart %d: %s", round, log)
		}
		closeNonces(t, n)
	}

	now = now.Add(11 * time.Minute)
	n, _ = openNonces(t, path, &now)
	if !n.addOwn(nonceKey("m", "e")) || n.addOwn(a) {
		t.Error("after 11 minutes: half of what was taken may go only after twice the window")
	}

	now = now.Add(11 * time.Minute)
	if !n.addOwn(a) {
		t.Error("after 22 minutes it is still known")
	}

	closeNonces(t, n)
}

// The memory and the files are bounded, and what goes before its time is said.
func TestNoncesBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nonces.journal")
	now := time.Unix(1_700_000_000, 0)
	n, log := openNonces(t, path, &now)
	n.size = 100

	for i := range 1000 {
		if !n.addOwn(nonceKey("m", fmt.Sprint(i))) {
			t.Fatal("a new one was refused")
		}
	}

	if len(n.cur)+len(n.old) > 200 || n.addOwn(nonceKey("m", "999")) || n.addOwn(nonceKey("m", "900")) {
		t.Errorf("%d and %d are held", len(n.cur), len(n.old))
	}

	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines == 0 || lines > 5 {
		t.Errorf("%d lines:\n%s", lines, log)
	}

	closeNonces(t, n)
	for _, p := range []string{path, path + ".old"} {
		if fi, err := os.Stat(p); err != nil || fi.Size() > 101*nonceRecord || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", p, fi, err)
		}
	}
}

// A journal that is something else, or cannot be written, is said, and requests
// go on; a link is not followed.
func TestNoncesUnusable(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	dir := t.TempDir()
	for what, make := range map[string]func(path string) error{
		"junk":   func(p string) error { return os.WriteFile(p, []byte("something else, and long enough"), 0o600) },
		"folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":   func(p string) error { return os.Symlink(filepath.Join(dir, "elsewhere"), p) },
	} {
		path := filepath.Join(dir, what)
		if err := make(path); err != nil {
			t.Fatal(err)
		}

		n, log := openNonces(t, path, &now)
		if !n.addOwn(nonceKey("m", "a")) || n.addOwn(nonceKey("m", "a")) || log.Len() == 0 {
			t.Errorf("%s: %s", what, log)
		}

		closeNonces(t, n)
	}

	if _, err := os.Stat(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("a link was followed")
	}
}

func FuzzNonces(f *testing.F) {
	f.Add([]byte(nonceMagic))
	f.Add([]byte(nonceMagic + "0123456789abcdef\x00\x00\x00\x00eS\xf1\x00torn"))
	f.Add([]byte("something else"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}

		now := time.Unix(1_700_000_000, 0)
		n, _ := openNonces(t, path, &now)
		n.addOwn(nonceKey("m", "a"))
		closeNonces(t, n)
		n, _ = openNonces(t, path, &now)
		if n.file != nil && n.addOwn(nonceKey("m", "a")) {
			t.Error("not known after a restart")
		}

		closeNonces(t, n)
	})
}

func BenchmarkNonces(b *testing.B) {
	now := time.Now()
	n := OpenNonces(filepath.Join(b.TempDir(), "j"), time.Hour, func() time.Time { return now },
		slog.New(slog.DiscardHandler))
	defer n.Close()
	i := 0
	for b.Loop() {
		i++
		n.addOwn(nonceKey("minion", fmt.Sprint(i)))
	}
}
