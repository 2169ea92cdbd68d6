package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/test/check"
)

// Several masters start on an empty folder at the same moment: one forms the cluster, and the
// others find all files of it.
func TestFormOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		dir := filepath.Join(t.TempDir(), "pki")
		var founders atomic.Int32
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			check.Must(t, err)
			pub, err := crypt.PublicPEM(&key.PublicKey)
			check.Must(t, err)
			wg.Go(func() {
				cfg := Config{ID: id, Dir: dir, Key: key, Pub: pub, Peers: []string{"a", "b", "c"}, KeySize: 2048}
				p, _, err := folder{dir: dir}.prepare(cfg)
				if err != nil {
					t.Error(err)
				}

				if p.found {
					founders.Add(1)
				}

				if _, err := (folder{dir: dir}).readKey(); err != nil {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		key, err := crypt.LoadPrivate(filepath.Join(dir, clusterPEM), "")
		check.Must(t, err)
		text, err := os.ReadFile(filepath.Join(dir, clusterPub))
		check.Must(t, err)
		pub, err := crypt.ParsePublic(text)
		if err != nil || !pub.Equal(&key.PublicKey) {
			t.Errorf("cluster.pub is not that of cluster.pem: %v", err)
		}

		if founders.Load() != 1 {
			t.Errorf("%d founders", founders.Load())
		}

		entries, err := os.ReadDir(dir)
		check.Must(t, err)
		for _, e := range entries {
			if strings.Contains(e.Name(), ".new-") || strings.Contains(e.Name(), "tmp-") {
				t.Errorf("%s is left", e.Name())
			}
		}
	}
}

// A founder that stopped before all files existed is still the founder after its restart.
func TestFormInterrupted(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check.Must(t, err)
	pub, err := crypt.PublicPEM(&key.PublicKey)
	check.Must(t, err)
	dir := t.TempDir()
	f := folder{dir: dir}
	cfg := Config{ID: "a", Dir: dir, Key: key, Pub: pub, Peers: []string{"a", "b"}, KeySize: 2048}
	p, _, err := f.prepare(cfg)
	if err != nil || !p.found {
		t.Fatalf("%+v, %v", p, err)
	}

	aes, err := f.readKey()
	check.Must(t, err)
	check.Must(t, os.Remove(f.filePath(clusterPub)))
	p, _, err = f.prepare(cfg)
	if now, kerr := f.readKey(); err != nil || !p.found || kerr != nil || now.String() != aes.String() {
		t.Errorf("%+v, %v", p, err)
	}

	if _, err := os.Stat(f.filePath(clusterPub)); err != nil {
		t.Error(err)
	}
}

// A Salt master that joins removes the cluster's key and writes it in place.
func TestPrepareWhileSaltWritesTheKey(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check.Must(t, err)
	pub, err := crypt.PublicPEM(&key.PublicKey)
	check.Must(t, err)

	for name, half := range map[string]func(path string) error{
		"removed": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"half":    func(path string) error { return os.Truncate(path, 700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := folder{dir: dir}
			cfg := Config{ID: "a", Dir: dir, Key: key, Pub: pub, Peers: []string{"a", "b"}, KeySize: 2048}
			_, before, err := f.prepare(cfg)
			check.Must(t, err)
			path := f.filePath(clusterPEM)
			text, err := os.ReadFile(path)
			check.Must(t, err)
			check.Must(t, os.Chmod(path, 0o600))
			check.Must(t, half(path))
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(300 * time.Millisecond)
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Error(err)
				}
			})

			_, now, err := f.prepare(cfg)
			wg.Wait()
			if err != nil || now.Public != before.Public {
				t.Errorf("%v, another key: %t", err, now.Public != before.Public)
			}
		})
	}
}
