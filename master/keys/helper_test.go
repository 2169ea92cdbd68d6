package keys_test

import (
	"context"
	"crypto/rsa"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/test/await"
)

// pem returns the text of a public key that differs for each n. The tests do not use the key, so
// its modulus need not be a product of two primes.
func pem(_ testing.TB, n int) string {
	m := new(big.Int).Lsh(big.NewInt(3), 2046)
	m.Add(m, big.NewInt(int64(2*n+1)))
	text, err := crypt.PublicPEM(&rsa.PublicKey{N: m, E: 65537})
	if err != nil {
		panic(err) // also in the process that is killed, which has no t
	}
	return text
}

func open(t testing.TB, dir string, cfg keys.Config) *keys.Store {
	t.Helper()
	cfg.Create = true
	s, err := keys.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// where returns the folders in which an id has a file.
func where(t testing.TB, dir, id string) string {
	t.Helper()
	out := ""
	for st := keys.Accepted; st <= keys.Denied; st++ {
		if _, err := os.Lstat(filepath.Join(dir, st.Dir(), id)); err == nil {
			out += st.String() + " "
		}
	}
	return out
}

func state(s *keys.Store, id string) keys.State {
	e, _ := s.Lookup(id)
	return e.State
}

// changes collects the changes that OnChange reports.
type changes struct {
	mu  sync.Mutex
	log []string
}

func (c *changes) add(ch keys.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%s %s>%s", ch.ID, ch.Old, ch.New))
}

func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.log
	c.log = nil
	return out
}

// run starts the store's watcher and stops it at the end of the test.
func run(t testing.TB, s *keys.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("run ended with %v", err)
		}
	})
}

// within waits until a condition holds and returns how long that took.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	if !await.Within(limit, ok) {
		t.Fatalf("%s: not within %v", what, limit)
	}
	return time.Since(start)
}
