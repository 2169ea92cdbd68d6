package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// lot is an account whose places can be left.
type lot struct{ parked atomic.Int64 }

func (*lot) Take(int64) bool         { return true }
func (*lot) Prove(func() bool)       {}
func (l *lot) Park() (resume func()) { l.parked.Add(1); return func() { l.parked.Add(-1) } }

// A request that waits is parked: it holds no worker and no decoded load, does not
// count as one at work, and is whole afterwards, however long it has waited.
func TestParkedRequest(t *testing.T) {
	kr := twoMinions(t)
	synctest.Test(t, func(t *testing.T) {
		account := &lot{}
		var s *Server
		s = newServer(kr, Table{"_pillar": {Do: func(ctx context.Context, c *Call) (any, error) {
			if c.Size() < 100 {
				t.Errorf("it takes %d bytes", c.Size())
			}

			err := c.Park(ctx, func(asked context.Context) error {
				time.Sleep(time.Hour)
				if old, n := s.Oldest(); n != 0 || c.Load != nil || account.parked.Load() != 1 || asked.Err() != nil {
					t.Errorf("while it waits: %d at work for %s, load %v, parked %d, asked %v", n, old,
						c.Load, account.parked.Load(), asked.Err())
				}
				return nil
			})

			if old, n := s.Oldest(); n != 1 || old != 0 || account.parked.Load() != 0 {
				t.Errorf("afterwards: %d at work for %s", n, old)
			}

			_, tok := c.Load.Get("tok")
			_, nonce := c.Load.Get("nonce")
			if tok || nonce || c.Load.Str("id") != "a" {
				t.Errorf("load %v", c.Load)
			}

			return c.Load.Value("grains"), err
		}}})

		in := sealedRequest(t, kr.sessions["a"], "a", 3,
			request("a", "token of a", "_pillar", "grains", value.NewMap("os", "Debian")))
		got, _ := decode(t, kr, "a", s.Handle(t.Context(), from, in, account), nonce).(*value.Map)
		if got.Str("os") != "Debian" {
			t.Errorf("answered %v", got)
		}
	})
}

// Who hangs up while he waits is not answered, and nothing counts as failed.
func TestParkedRequestOfWhoHangsUp(t *testing.T) {
	kr := twoMinions(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(kr, Table{"_pillar": {Do: func(ctx context.Context, c *Call) (any, error) {
			return true, c.Park(ctx, func(asked context.Context) error {
				<-asked.Done()
				return ErrLeft
			})
		}}})

		in := sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "_pillar"))
		conn, hangUp := context.WithTimeout(t.Context(), time.Minute)
		defer hangUp()

		if got := s.Handle(Asked(conn), from, in, &lot{}); got != nil || s.Stats().Failed != 0 {
			t.Errorf("answered %x, %+v", got, s.Stats())
		}
	})
}

// A request with an effect that is repeated while it waits: the second sender waits
// parked, gets the answer of the first, and does it himself when the first has hung up
// before it was begun.
func TestRepeatedRequestThatWaits(t *testing.T) {
	kr := twoMinions(t)
	for _, hangsUp := range []bool{false, true} {
		t.Run(fmt.Sprintf("the first hangs up %v", hangsUp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var done atomic.Int64
				s := newServer(kr,
					Table{"minion_runner": {Once: true, Do: func(ctx context.Context, c *Call) (any, error) {
						err := c.Park(ctx, func(asked context.Context) error {
							select {
							case <-time.After(time.Minute):
								return nil
							case <-asked.Done():
								return ErrLeft
							}
						})
						if err != nil {
							return nil, err
						}

						return done.Add(1), nil
					}}})

				payload := func() []byte {
					return sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "minion_runner"))
				}
				conn, hangUp := context.WithCancel(t.Context())
				defer hangUp()

				first := make(chan []byte)
				go func() { first <- s.Handle(Asked(conn), from, payload(), &lot{}) }()
				synctest.Wait()
				account := &lot{}
				second := make(chan []byte)
				go func() { second <- s.Handle(t.Context(), from, payload(), account) }()
				synctest.Wait()

				if account.parked.Load() != 1 {
					t.Error("the second is not parked")
				}

				for range 2 * maxSharers { // hostile
					go s.Handle(t.Context(), from, payload(), account)
				}

				synctest.Wait()
				if n := account.parked.Load(); n != maxSharers {
					t.Errorf("%d are parked", n)
				}

				if hangsUp {
					hangUp()
				}

				answer := <-first
				if hangsUp != (answer == nil) {
					t.Errorf("the first is answered %x", answer)
				}

				if got := decode(t, kr, "a", <-second, nonce); got != int64(1) || done.Load() != 1 {
					t.Errorf("the second: %v, done %d times", got, done.Load())
				}
			})
		})
	}
}

// What was not done in its time is not answered; what has failed is.
func TestLateIsSilence(t *testing.T) {
	kr := twoMinions(t)
	s := newServer(kr, Table{"_mine_get": {Do: func(ctx context.Context, c *Call) (any, error) {
		switch c.Load.Str("how") {
		case "late":
			return "part of it", fmt.Errorf("ask: %w", context.DeadlineExceeded)
		case "cut":
			return nil, fmt.Errorf("ask: %w", context.Canceled)
		}
		return nil, errors.New("broken")
	}}})

	for how, silent := range map[string]bool{"late": true, "cut": true, "broken": false} {
		in := sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "_mine_get", "how", how))
		if got := s.Handle(t.Context(), from, in, nil); (got == nil) != silent {
			t.Errorf("%s: answered %x", how, got)
		}
	}
}

// Nobody has time: a sealed request is left alone, since "bad load" would have its minion
// fail; who signs in, and a tool, are told.
func TestBusyAnswer(t *testing.T) {
	kr := twoMinions(t)
	clear, err := msgpack.Marshal(value.NewMap("enc", "clear", "load",
		value.NewMap("cmd", "_auth", "id", "a"), "version", 3),
		msgpack.Raw)
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		payload []byte
		silent  bool
	}{
		"sealed": {sealedRequest(t, kr.sessions["a"], "a", 3, request("a", "token of a", "_return", "return", strings.Repeat("x", 1<<20))),
			true},
		"sign-in": {clear, false},
		"nothing": {nil, false},
		"no map":  {[]byte{0xc3}, false},
		"torn":    {clear[:len(clear)/2], false},
	} {
		if got := Busy(tt.payload); (got == nil) != tt.silent {
			t.Errorf("%s: %x", name, got)
		}
	}
}
