// Package check ends tests at the first thing that goes wrong with what they need.
package check

import "testing"

// Must ends the test when err is not nil. Only the goroutine of the test may call it.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
