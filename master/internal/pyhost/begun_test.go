package pyhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/test/await"
)

// TestTasksThatHaveNotBegun: of callers who leave at random moments, those are told that their task has
// not begun of whose task nothing was carried out, and only those. The first of them come while Python
// starts.
func TestTasksThatHaveNotBegun(t *testing.T) {
	const beginsAfter, tries = 60 * time.Millisecond, 40
	h := startHost(t, func(c *Config) {
		c.Program = tasks + fmt.Sprintf(`
def work(request, begun):
    time.sleep(%v)
    begun()
    open(request["arg"], "w").close()
    time.sleep(600)
`, beginsAfter.Seconds())
	})

	unbegun := 0
	for n := range tries {
		path := filepath.Join(t.TempDir(), fmt.Sprint(n))
		leaveAfter := rand.N(3 * beginsAfter)
		ctx, cancel := context.WithTimeout(t.Context(), leaveAfter)
		_, err := do(ctx, h, "begin", "arg", path)
		cancel()

		var call interface{ NotBegun() bool }
		notBegun := errors.As(err, &call) && call.NotBegun()
		_, missing := os.Stat(path)
		switch {
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("the caller who left was told %v", err)
		case notBegun && missing == nil:
			t.Errorf("a caller who left after %v was told that the task has not begun, and it has", leaveAfter)
		}
		if notBegun {
			unbegun++
		}
	}
	if unbegun == 0 {
		t.Error("nobody was told that his task has not begun")
	}
	t.Logf("%d of %d had not begun", unbegun, tries)
}

// TestTasksAtOnceThatHaveNotBegun: of tasks that are at work at once, and whose callers leave long before
// they begin, each is known not to have begun.
func TestTasksAtOnceThatHaveNotBegun(t *testing.T) {
	h := startHost(t, func(c *Config) {
		c.Program = tasks + "\ndef work(request, begun):\n    open(request['arg'], 'w').close()\n    time.sleep(600)\n"
	})
	dir := t.TempDir()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()

	const callers = 5
	answers := make(chan error, callers)
	for n := range callers {
		go func() {
			_, err := do(ctx, h, "begin", "arg", filepath.Join(dir, fmt.Sprint(n)))
			answers <- err
		}()
	}
	await.That(t, "tasks before their begin", func() bool {
		there, err := os.ReadDir(dir)
		return err == nil && len(there) == callers
	})

	leave()
	for range callers {
		err := <-answers
		var call interface{ NotBegun() bool }
		if !errors.As(err, &call) || !call.NotBegun() {
			t.Errorf("a caller was told %v, and not that the task has not begun", err)
		}
	}
}
