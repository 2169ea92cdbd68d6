package observe

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A clock that is not synchronised, or cannot be asked about, is asked about
// again soon; one that is, seldom.
func TestClockIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int32
		answers := []struct {
			yes bool
			err error
		}{{err: errors.New("no bus")}, {}, {yes: true}, {}}

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.keepAsking(ctx, func(context.Context) (bool, error) {
				a := answers[asked.Add(1)-1]
				return a.yes, a.err
			})
		}()

		told := func() string {
			synctest.Wait()
			switch v := c.Load(); {
			case v == nil:
				return "?"
			case *v:
				return "yes"
			}

			return "no"
		}

		for i, step := range []struct {
			want string
			then time.Duration
		}{{"?", clockSoon}, {"no", clockSoon}, {"yes", clockEvery}, {"no", 0}} {
			if got := told(); got != step.want || int(asked.Load()) != i+1 {
				t.Errorf("after %d answers: %s, want %s after %d", asked.Load(), got, step.want, i+1)
			}
			time.Sleep(step.then)
		}

		cancel()
		<-ended
	})
}
