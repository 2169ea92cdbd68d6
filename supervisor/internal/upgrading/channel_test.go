package upgrading

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/image/bundle"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/upgrade"
)

// A node asks once a day, sooner after a question without an answer, and tells of a newer
// version, and of three days without an answer.
func TestChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		st := upgrade.Status{Version: "1", Created: began.Add(-time.Hour), Flavour: "cloud"}
		var mu sync.Mutex // of these three
		offer, fault, asked := bundle.Manifest{Version: "1", Created: st.Created}, error(nil), 0
		answer := func(m bundle.Manifest, err error) {
			mu.Lock()
			defer mu.Unlock()
			offer, fault = m, err
		}

		c := &Channel{env: child.Env{Now: time.Now, Log: slog.New(slog.DiscardHandler)},
			status: func() (upgrade.Status, error) { return st, nil },
			offered: func(context.Context, upgrade.Status) (bundle.Manifest, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return offer, fault
			}}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx)
		}()

		expect := func(after time.Duration, least, most int, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()

			got := ""
			for _, f := range c.Findings() {
				got += string(f.Code) + " " + f.Cause
			}

			if asked < least || asked > most || got != want && (want == "" || !strings.HasPrefix(got, want)) {
				t.Errorf("after %s: asked %d times, %q", time.Since(began), asked, got)
			}
		}

		expect(15*time.Minute, 1, 1, "")
		answer(bundle.Manifest{Version: "2", Created: began}, nil)
		expect(12*time.Hour, 1, 1, "")
		expect(13*time.Hour, 2, 2, "SCA-226 version 2, built 2000-01-01, is offered; 1 runs here")
		answer(bundle.Manifest{}, errors.New("not found"))
		expect(25*time.Hour, 3, 6, "SCA-226 ") // what was offered still is
		expect(48*time.Hour, 40, 60, "SCA-227 no answer since 2000-01-0")
		answer(bundle.Manifest{Version: "1", Created: st.Created}, nil)
		expect(2*time.Hour, 40, 62, "")
		answer(bundle.Manifest{Version: "1", Created: st.Created, Next: began.AddDate(0, 0, 30)}, nil)
		expect(25*24*time.Hour, 60, 90, "")
		expect(7*24*time.Hour, 60, 100,
			"SCA-228 version 1, built 1999-12-31, is offered, and something newer was promised for 2000-01-31")
		answer(bundle.Manifest{Version: "2", Created: time.Now(), Next: time.Now().AddDate(0, 0, 30)}, nil)
		expect(25*time.Hour, 60, 110, "SCA-226 ")
		cancel()
		<-done
	})
}
