package eauth

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// files counts the files of a folder of tokens.
func files(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.p"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// TestTokensOfAUserAreLimited: the oldest of a user end, those of other users and of the
// same name in another system stay, also after a restart (finding 13 of the second audit).
func TestTokensOfAUserAreLimited(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1_700_000_000, 0)
	life := func(most int) (*Tokens, func(eauth, name string) string) {
		tokens, err := OpenTokens(dir, "n1")
		if err != nil {
			t.Fatal(err)
		}

		tokens.Limit(most)
		return tokens, func(eauth, name string) string {
			t.Helper()
			now = now.Add(time.Millisecond)
			tok, err := tokens.Make(Token{Name: name, Eauth: eauth}, 12*time.Hour, now)
			if err != nil {
				t.Fatal(err)
			}
			return tok.Token
		}
	}

	tokens, logIn := life(20)
	good := func(token string) bool { _, err := tokens.Get(token, now); return err == nil }
	others := []string{logIn("file", "bob"), logIn("ldap", "alice")}
	first := logIn("file", "alice")

	for range 40 {
		logIn("file", "alice")
	}

	if n := files(t, dir); n > 22+2 || good(first) {
		t.Errorf("%d files, the first one is good: %v", n, good(first))
	}

	// A program that logs out each time ends nobody's.
	kept := logIn("file", "carl")
	for range 45 {
		if err := tokens.Remove(logIn("file", "carl")); err != nil {
			t.Fatal(err)
		}
	}

	if !good(kept) {
		t.Error("log-ins that were ended count")
	}

	// The next life has fewer, and does not know of them before it has looked.
	tokens, logIn = life(5)
	last := logIn("file", "alice")
	if err := tokens.Clean(now); err != nil {
		t.Fatal(err)
	}

	if n := files(t, dir); n != 5+2+1 || !good(last) {
		t.Errorf("%d files after a restart, the newest is good: %v", n, good(last))
	}

	for range 20 {
		last = logIn("file", "alice")
	}

	for _, token := range append(others, kept, last) {
		if !good(token) {
			t.Errorf("%.8s has ended", token)
		}
	}

	if s := tokens.limit.ended.Load(); s == 0 {
		t.Error("nothing is counted")
	}

	tokens, logIn = life(-1)
	for range 15 {
		logIn("file", "alice")
	}

	if n := files(t, dir); n < 15+2 {
		t.Errorf("%d files without a limit", n)
	}
}

// TestTokensMadeWhileTheyAreCounted are not forgotten, and the limit holds.
func TestTokensMadeWhileTheyAreCounted(t *testing.T) {
	dir := t.TempDir()
	tokens, err := OpenTokens(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}

	tokens.Limit(10)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := tokens.Make(Token{Name: "alice", Eauth: "file"}, time.Hour, time.Now()); err != nil {
					t.Error(err)
				}
			}
		})

		wg.Go(func() {
			for range 10 {
				if err := tokens.Clean(time.Now()); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	if err := tokens.Clean(time.Now()); err != nil {
		t.Fatal(err)
	}

	if n := files(t, dir); n != 10 {
		t.Errorf("%d files", n)
	}
}
