// Package await waits in tests for what real processes, sockets and disks do in
// their own time. Where the clock can be a fake one, testing/synctest is better.
package await

import (
	"context"
	"testing"
	"time"
)

const (
	// patience is how long anything may take on a busy machine.
	patience = time.Minute
	// step is how long is waited between two looks.
	step = 2 * time.Millisecond
	// exchange is how long one call of a test may take: a request, a read, a connection.
	exchange = 20 * time.Second
)

// Context returns a context for one call: it ends after 20 seconds, and with the test.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), exchange)
	t.Cleanup(cancel)
	return ctx
}

// That waits until ok reports true, and ends the test when it does not. It must be
// called by the goroutine of the test.
func That(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Within(patience, ok) {
		t.Fatalf("not in %v: %s", patience, what)
	}
}

// Within waits for at most limit until ok reports true, and reports whether it did.
func Within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(step) {
		if time.Now().After(end) {
			return ok()
		}
	}
	return true
}

// Holds looks for the length of d whether ok goes on reporting true: for what must
// not happen. It ends the test when it does not.
func Holds(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	if Within(d, func() bool { return !ok() }) {
		t.Fatalf("no longer after %v: %s", time.Since(began).Round(time.Millisecond), what)
	}
}
