package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// oneID is a source of job ids that knows one only.
type oneID string

func (id oneID) New() string { return string(id) }

// TestOrderNamesTheSchedule: a runner that the schedule calls knows by which entry.
func TestOrderNamesTheSchedule(t *testing.T) {
	var order Order
	table := New()
	table.Add("own.order", func(ctx context.Context, _ *Env, _ []any, _ *value.Map) (any, error) {
		order = OrderOf(ctx)
		return nil, nil
	})
	r := NewRuns(RunsConfig{
		Table: table,
		Env:   &Env{Jobs: lab(t)},
		User:  "salt",
		IDs:   oneID("20260101000000000000"),
		Now:   time.Now,
		Log:   slog.New(slog.DiscardHandler),
	})
	for _, entry := range []string{"", "nightly"} {
		ctx := t.Context()
		if entry != "" {
			ctx = WithSchedule(ctx, entry)
		}
		_, err := r.Call(ctx, "own.order", nil, nil)
		ok(t, err)
		if order.Schedule != entry || order.By.User != "salt" {
			t.Errorf("%+v, want the entry %q", order, entry)
		}
	}
}

// TestSecretsOfRuns: the secrets in a runner's arguments appear neither in the events of its start
// and end, nor in the list of runs in progress (jobs.master), the job cache or the log. The
// function itself gets them.
func TestSecretsOfRuns(t *testing.T) {
	const secret = "hunter2Xyz"
	var told []*value.Map
	cache := lab(t)
	table := New()
	r := NewRuns(RunsConfig{
		Table: table, Env: &Env{Jobs: cache}, ID: "m1", Keep: true, IDs: oneID("20260101000000000000"), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Fire: func(_ string, data *value.Map) { told = append(told, data) },
	})

	for name, c := range map[string]struct {
		fault   error
		success bool
	}{"returns": {nil, true}, "fails": {errors.New("cannot log in with " + secret), false}} {
		t.Run(name, func(t *testing.T) {
			told = nil
			table.Add("own.run", func(_ context.Context, _ *Env, args []any, named *value.Map) (any, error) {
				if named.Str("password") != secret || args[0] != "token="+secret {
					t.Errorf("the function gets %s %s", value.Repr(args), value.Repr(named))
				}
				told = append(told, r.Running()...)
				return m("said", "connected with "+secret, "password", secret), c.fault
			})

			run := r.Announce("own.run", Caller{User: "ann", Eauth: "pam"}, []any{"token=" + secret},
				m("password", secret))
			data := run.Do(t.Context(), func(err error) {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the log is told %v", err)
				}
			})
			if data.Bool("success") != c.success {
				t.Errorf("the caller gets %s", value.Repr(data))
			}

			rets, err := cache.Returns(t.Context(), run.JID)
			ok(t, err)
			load, err := cache.Load(t.Context(), run.JID)
			ok(t, err)

			if len(told) != 3 || rets.Len() != 1 || load.Str("user") != "ann" || load.Str(event.EauthField) != "pam" {
				t.Errorf("%d told, %s, %s", len(told), value.Repr(rets), value.Repr(load))
			}

			for _, v := range append(told, rets, load) {
				if text := value.Repr(v); strings.Contains(text, secret) {
					t.Errorf("shown: %s", text)
				}
			}
		})
	}
}

// TestRunnerReturns (F6): if runner_returns is off, a runner's caller and the bus get the result,
// and the job cache does not store it.
func TestRunnerReturns(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprint(keeps), func(t *testing.T) {
			cache := lab(t)
			fired := 0
			r := NewRuns(RunsConfig{
				Table:  New(),
				Env:    &Env{Jobs: cache},
				ID:     "m1",
				Keep:   true,
				Forget: !keeps,
				IDs:    oneID("20260101000000000000"),
				Now:    time.Now,
				Log:    slog.New(slog.DiscardHandler),
				Fire:   func(string, *value.Map) { fired++ },
			})

			run := r.Announce("test.arg", Caller{User: "root"}, []any{"secretvalue"}, m())
			data := run.Do(t.Context(), func(err error) { t.Error(err) })
			if text := value.Repr(data); fired != 2 || !strings.Contains(text, "secretvalue") {
				t.Errorf("%d events, the caller gets %s", fired, text)
			}

			rets, err := cache.Returns(t.Context(), run.JID)
			ok(t, err)
			if kept := rets.Len() > 0; kept != keeps {
				t.Errorf("kept: %s", value.Repr(rets))
			}
		})
	}
}

// TestExplanationsAreForTheirCallers: an explanation has names of pillar keys and rules of external_auth,
// which not all readers of events may know.
func TestExplanationsAreForTheirCallers(t *testing.T) {
	if !Private("runner.fleet.explain") || !Secret("fleet.explain", nil) {
		t.Error("the result of fleet.explain is an event, and is kept in the job cache")
	}
}
