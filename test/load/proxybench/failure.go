package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

const (
	victim     = 1               // the backend that fails
	failWait   = 5 * time.Second // for a short request, as a patient client waits
	slowAnswer = 250             // ms
)

// attempt is a short request: when it began, what became of it.
type attempt struct {
	at     time.Duration // since the start
	millis float64
	kind   string
	number int // of the backend that answered
}

// failure makes short requests at a fixed rate and holds connections. After a
// quarter of the time one backend fails, after five eighths it is back.
func failure(ctx context.Context, b *bench, event string) (result, error) {
	if event == "hole" && b.hole[0] == "" {
		return nil, fmt.Errorf(`fail:hole needs the commands "hole" in the configuration`)
	}

	length := 4 * b.o.length
	fails, returns := length/4, length*5/8
	began := time.Now()
	h := newHolders(b, began)
	h.start(ctx)
	var events sync.WaitGroup
	var fault error
	events.Go(func() { fault = b.breakAndMend(ctx, event, began.Add(fails), began.Add(returns)) })
	attempts := b.attempts(ctx, began, length)
	r := result{"event": event}
	h.report(r, fails)
	h.stop()
	events.Wait()

	if fault != nil {
		return nil, fault
	}

	sum(r, attempts, fails, returns)
	return r, ctx.Err()
}

// breakAndMend is the failure and its end; whatever happens it is ended.
func (b *bench) breakAndMend(ctx context.Context, event string, fails, returns time.Time) error {
	if !pause(ctx, time.Until(fails)) {
		return nil
	}
	if err := b.breakVictim(event); err != nil {
		return err
	}
	pause(ctx, time.Until(returns))
	if event == "hole" {
		return shell(b.hole[1])
	}
	_, err := b.backends.do(order{Do: "revive", Number: victim})
	return err
}

func (b *bench) breakVictim(event string) error {
	if event == "hole" {
		return shell(b.hole[0])
	}
	_, err := b.backends.do(order{Do: event, Number: victim})
	return err
}

func shell(command string) error {
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

// attempts makes the short requests and waits for all of them.
func (b *bench) attempts(ctx context.Context, began time.Time, length time.Duration) []attempt {
	var (
		mu    sync.Mutex
		out   []attempt
		group sync.WaitGroup
	)

	gap := time.Second / time.Duration(b.o.failRate)
	for due := began; due.Sub(began) <= length && pause(ctx, time.Until(due)); due = due.Add(gap) {
		group.Go(func() {
			start := time.Now()
			number, err := newRequester().short(b.target, failWait)
			a := attempt{at: start.Sub(began), millis: millis(time.Since(start)), kind: kind(err), number: number}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, a)
		})
	}

	group.Wait()
	return out
}

// sum says what became of the requests.
func sum(r result, attempts []attempt, fails, returns time.Duration) {
	kinds := map[string]int{}
	var during []float64
	var bad []time.Duration // when requests failed
	again := time.Duration(-1)
	slow := 0
	for _, a := range attempts {
		kinds[a.kind]++
		if a.kind != "ok" {
			bad = append(bad, a.at)
		}

		if a.at >= fails && a.at < returns {
			during = append(during, a.millis)
			if a.kind == "ok" && a.millis > slowAnswer {
				slow++
			}
		}

		if a.kind == "ok" && a.number == victim && a.at > returns && (again < 0 || a.at < again) {
			again = a.at
		}
	}

	r["requests"] = len(attempts)
	r["failed"] = len(bad)
	r["during"] = len(during)
	r["kinds"], r["slow_over_250ms"] = kinds, slow

	if len(bad) > 0 {
		first, last := bounds(bad)
		r["first_bad_s"], r["last_bad_s"] = (first - fails).Seconds(), (last - fails).Seconds()
	}

	if again >= 0 {
		r["routed_again_after_s"] = (again - returns).Seconds()
	}

	r.spread("during_ms", during)
}
