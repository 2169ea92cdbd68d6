package master

import (
	"strings"
	"testing"
)

// The reactor hears what happens before its goroutine runs.
func TestReactorHearsTheStart(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "reactor:\n  - 'salt/master/*/start': /nowhere/start.sls\n")
	until(t, "reaction to the start", func() bool { return strings.Contains(r.log.String(), "path=/nowhere/start.sls") })
}
