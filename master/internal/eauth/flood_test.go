package eauth

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
)

// Attack row 23: logins are slow on purpose, and each holds a worker of the
// request port. More than the bound must be refused at once.
func TestAttack23LoginFlood(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := newTest(t, &now)
	release := make(chan struct{})
	entered := make(chan struct{}, maxQueued)
	a.cfg.Backends["sharedsecret"] = func(context.Context, string, string) (Verdict, error) {
		entered <- struct{}{}
		<-release
		return Verdict{OK: true}, nil
	}
	login := func(ctx context.Context) error {
		_, err := a.Check(ctx, value.NewMap(), value.NewMap("eauth", "sharedsecret", "username", "ann", "password", "x"), netip.Addr{})
		return err
	}
	var wg sync.WaitGroup
	for range maxQueued {
		wg.Go(func() {
			if err := login(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	for range maxLogins {
		<-entered
	}
	await.That(t, "a full queue of logins", func() bool { return len(a.queue) == maxQueued })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := login(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a login beyond the bound: %v, %v", err, ctx.Err())
	}
	close(release)
	wg.Wait()
	if err := login(context.Background()); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}
