package adminsocket

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/rpc"
	"saltern/supervisor/status"
)

// TestAcceptedRestartsAreMade: whenever a life ends, each restart that was accepted is made, and one
// that comes later is refused.
func TestAcceptedRestartsAreMade(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			restarted := make(withoutAPI, 100)
			r := NewRestarts(slog.New(slog.DiscardHandler), restarted)
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Second))
			defer cancel()
			ended := make(chan struct{})
			go func() { defer close(ended); r.Run(ctx) }()

			accepted, refused := 0, 0
			for range 20 {
				time.Sleep(rand.N(500 * time.Millisecond))
				err := r.RestartSoon(status.BalancerService)
				var told *rpc.Error
				switch {
				case err == nil:
					accepted++
				case errors.As(err, &told) && told.Code == rpc.CodeBusy:
					refused++
				default:
					t.Error(err)
				}
			}

			<-ended
			if err := r.RestartSoon(status.BalancerService); err == nil {
				t.Error("a restart was accepted after the end")
			}
			if len(restarted) != accepted || accepted+refused != 20 {
				t.Errorf("%d accepted, %d refused, %d made", accepted, refused, len(restarted))
			}
		})
	}
}
