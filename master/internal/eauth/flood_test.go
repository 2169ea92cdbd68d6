package eauth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/request"
	"saltern/master/value"
)

// flooded is an Authenticator whose system takes a while, and how it is asked.
func flooded(t *testing.T) (login func(user, password, from string) error, a *Authenticator) {
	start := time.Now()
	a = newTest(t, &start)
	a.cfg.Now, a.cfg.Here = time.Now, func(from netip.Addr) bool { return !from.IsValid() }
	a.cfg.FailDelay, a.slowestCheck = time.Second, time.Second
	a.cfg.Backends["sharedsecret"] = func(ctx context.Context, _, password string) (Verdict, error) {
		_ = pause.For(ctx, 50*time.Millisecond) // a directory
		return Verdict{OK: password == "right"}, nil
	}

	return func(user, password, from string) error {
		var addr netip.Addr
		if from != "" {
			addr = netip.MustParseAddr(from)
		}
		_, err := a.Check(t.Context(), value.NewMap(),
			value.NewMap("eauth", "sharedsecret", "username", user, "password", password), addr)
		return err
	}, a
}

// TestAttack23LoginFlood: log-ins are slow on purpose, and each holds a worker of the
// request port. Beyond the bounds they are sent away at once, and nobody is told that
// his password was wrong.
func TestAttack23LoginFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login, a := flooded(t)
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 1000 {
			wg.Go(func() {
				err := login("ann", "right", fmt.Sprintf("192.0.%d.%d", i/250, i%250))
				f, _ := errors.AsType[*Failure](err)
				if err != nil && (!f.Busy || f.Name != "AuthenticationError" || time.Since(began) != 0) {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		}

		synctest.Wait()
		if n := a.logins.Waiting(); int64(n) != loginsInLine.Strangers {
			t.Errorf("%d wait", n)
		}

		wg.Wait()
		if s := a.Stats(); s.Busy != 1000-uint64(loginsAtWork.Strangers+loginsInLine.Strangers) ||
			s.Wrong != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}

		if err := login("ann", "right", ""); err != nil {
			t.Errorf("after the flood: %v", err)
		}
	})
}

// TestLoginsBesideGuesses (second audit, 6): who guesses, with a new name each time and from
// as many connections as he likes, keeps nobody from logging in: not one who comes for the first
// time, not the tools of this host, nor users where they have been before, however many
// guess from elsewhere, or guess there.
func TestLoginsBesideGuesses(t *testing.T) {
	for name, guessers := range map[string]int{"one address": 1, "fifty addresses": 50} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				login, _ := flooded(t)
				if err := login("admin", "right", "198.51.100.1"); err != nil {
					t.Fatal(err)
				}

				var wg sync.WaitGroup
				end := time.Now().Add(30 * time.Second)
				guess := func(i int, from string) {
					wg.Go(func() {
						for n := 0; time.Now().Before(end); n++ {
							if login(fmt.Sprintf("u%d-%d", i, n), "guess", from) == nil {
								t.Error("a wrong password is taken")
							}
							time.Sleep(100 * time.Millisecond)
						}
					})
				}

				for i := range 100 {
					guess(i, fmt.Sprintf("203.0.113.%d", i%guessers))
				}

				for i := range 20 {
					guess(1000+i, "198.51.100.1") // beside the administrator
				}

				for i := range 10 {
					time.Sleep(2 * time.Second)
					try := func(what, user, from string, most time.Duration) {
						began := time.Now()
						if err := login(user, "right", from); err != nil || time.Since(began) > most {
							t.Errorf("%s is answered after %s: %v", what, time.Since(began), err)
						}
					}

					try("a user where he has been before", "admin", "198.51.100.1", time.Second)
					try("a tool of this host", "root", "", time.Second)
					if guessers == 1 {
						try("a newcomer", fmt.Sprint("new", i), fmt.Sprintf("192.0.2.%d", i), 2*time.Second)
					}
				}

				wg.Wait()
			})
		})
	}
}

// TestLoginsAtTheEnd: log-ins that wait, and refusals that take their time, do not keep the
// master from ending; one that nobody waits for any more is not checked.
func TestLoginsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login, a := flooded(t)
		conn, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() { _ = login(fmt.Sprint("u", i), "guess", fmt.Sprintf("203.0.113.%d", i)) })
		}

		synctest.Wait()
		wg.Go(func() {
			_, _ = a.Check(request.Asked(conn), value.NewMap(),
				value.NewMap("eauth", "sharedsecret", "username", "gone", "password", "right"),
				netip.MustParseAddr("192.0.2.1"))
		})

		synctest.Wait()
		before := a.logins.Waiting()
		hangUp()
		synctest.Wait()

		if n := a.logins.Waiting(); n != before-1 {
			t.Errorf("%d wait, after one has left of %d", n, before)
		}

		began := time.Now()
		time.Sleep(200 * time.Millisecond)
		a.Stop()
		wg.Wait()

		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("the end takes %s", took)
		}
	})
}

// TestManyLoginsOfAnOffice: two hundred at once from one address wait for each other.
func TestManyLoginsOfAnOffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login, a := flooded(t)
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for range 3 { // as salt-api: it has so many under way
					if err := login(fmt.Sprint("user", i), "right", "198.51.100.1"); err != nil {
						t.Errorf("user %d: %v", i, err)
					}
				}
			})

			if i%20 == 19 {
				wg.Wait()
			}
		}

		if s := a.Stats(); s.Busy != 0 || s.Right != 600 {
			t.Errorf("%+v", s)
		}
	})
}
