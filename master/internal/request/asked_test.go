package request

import (
	"context"
	"testing"
)

// TestFinding12Leaves: the work for a request ends when its connection does.
func TestFinding12Leaves(t *testing.T) {
	conn, hangUp := context.WithCancel(t.Context())
	ctx := Asked(conn)
	work, stop := WhileAsked(ctx)
	defer stop()
	hangUp()
	<-work.Done()
	if ctx.Err() != nil {
		t.Error("what was asked is not finished")
	}
}
