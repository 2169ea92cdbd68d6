package web

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
)

// TestHooksKeepTheirOrder: what was answered first is on the bus first (found in the API,
// F1). Others keep the machine busy meanwhile.
func TestHooksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "webhook_disable_auth: true\n")
	sub := a.Parts.Bus.Subscribe("test", 10000, event.Prefix("salt/netapi/hook/"))
	defer sub.Close()

	busy(t)
	const clients, rounds, hooks = 3, 5, 50
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := range rounds * hooks {
				res, err := client.Post(fmt.Sprintf("%s/hook/order/%d", a.URL, c), "application/json",
					strings.NewReader(fmt.Sprintf(`{"i": %d}`, i)))
				if err != nil {
					t.Error(err)
					return
				}

				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != 200 {
					t.Errorf("hook %d of %d: %d", i, c, res.StatusCode)
				}
			}
		})
	}

	all.Wait()
	next := map[string]int64{}
	for range clients * rounds * hooks {
		e := <-sub.C
		if n, _ := e.Data.Map("post").Int("i"); n != next[e.Tag] {
			t.Fatalf("%s: event %d comes where %d should be", e.Tag, n, next[e.Tag])
		}
		next[e.Tag]++
	}

	if len(sub.C) > 0 {
		t.Errorf("%d events too many", len(sub.C))
	}
}

// busy keeps the processors busy until the test ends, in turns so short that others get on.
func busy(t *testing.T) {
	stop := make(chan struct{})
	var loops sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		loops.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}

				for began := time.Now(); time.Since(began) < 200*time.Microsecond; {
				}
				runtime.Gosched()
			}
		})
	}

	t.Cleanup(func() { close(stop); loops.Wait() })
}
