package jobs

import (
	"context"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/check"
)

// TestReturnFromClockBehind: returns that a node whose clock is behind hands over reach the others, with the time of
// their job, unless their job is ahead of the time.
func TestReturnFromClockBehind(t *testing.T) {
	const keep = 24 * time.Hour
	ctx := context.Background()
	now := time.Now()
	a := memberOf(t, "10.0.0.1", t.TempDir(), Config{Dir: t.TempDir() + "/jobs"}, now, keep)
	defer a.end(t)
	for jid, want := range map[string]bool{
		FromTime(now.Add(-time.Minute)):      true,
		FromTime(now.Add(-keep - time.Hour)): false,
		FromTime(now.AddDate(1, 0, 0)):       false,
	} {
		r, _, err := a.newReturn(ReturnOf(value.NewMap("jid", jid, "id", "m1", "fun", "test.ping", "return", true,
			"retcode", int64(0), "success", true)))
		check.Must(t, err)
		r.time = now.Add(-2 * keep).UnixNano()
		written, err := a.cacheRecord(ctx, r, nil)
		check.Must(t, err)
		for _, other := range written {
			check.Must(t, other.wait(ctx))
		}
		returns, err := a.Returns(ctx, jid)
		check.Must(t, err)
		if got := returns.Map("m1") != nil; got != want {
			t.Errorf("%s: %t", jid, got)
		}
	}
}
