package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// fleet is the clients and what they have sent.
type fleet struct {
	address string
	clients []*client
	readers []*client
	sent    atomic.Int64 // requests that were begun, and are counted as such by salt-api
	maybe   atomic.Int64 // requests of which salt-api may have seen nothing
	count   *tally
}

func newFleet(o options, address string) *fleet {
	f := &fleet{address: address, count: &tally{kinds: map[string]map[int]int64{}}}
	for i := range o.clients {
		f.clients = append(f.clients, newClient(f, fmt.Sprintf("127.0.1.%d", 1+i), uint64(i)))
	}
	for i := range o.readers {
		f.readers = append(f.readers, newClient(f, fmt.Sprintf("127.0.2.%d", 1+i), uint64(1000+i)))
	}
	return f
}

// open logs all clients in.
func (f *fleet) open(ctx context.Context) error {
	for _, c := range slices.Concat(f.clients, f.readers) {
		token, err := c.logIn(ctx, "right")
		if err != nil {
			return err
		}

		c.token = token
		if token == "" {
			return errors.New("nobody can log in")
		}

		if err := startJob(ctx, c); err != nil {
			return err
		}
	}

	return nil
}

func (f *fleet) close() {
	for _, c := range slices.Concat(f.clients, f.readers) {
		c.hangUp()
	}
}

// round sends until so many requests are sent in all, and waits for the answers.
func (f *fleet) round(ctx context.Context, until int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var clients, readers sync.WaitGroup
	over, end := context.WithCancel(ctx)
	for _, c := range f.readers {
		readers.Go(func() {
			for over.Err() == nil {
				if err := c.readEvents(over); err != nil {
					cancel(fmt.Errorf("/events: %w", err))
				}
			}
		})
	}

	for _, c := range f.clients {
		clients.Go(func() {
			for ctx.Err() == nil && f.sent.Load() < until {
				k := c.choose()
				if err := k.do(ctx, c); err != nil {
					cancel(fmt.Errorf("%s: %w", k.name, err))
				}
			}
		})
	}

	clients.Wait()
	end()
	readers.Wait()
	return context.Cause(ctx)
}

// served asks salt-api how many requests it has seen before this one.
func (f *fleet) served(ctx context.Context) (int64, error) {
	c := f.clients[0]
	code, body, err := c.ask(ctx, "GET", "/stats", c.token, "")
	if err != nil || code != http.StatusOK {
		return 0, fmt.Errorf("ask for /stats: %d %w", code, err)
	}

	var v struct {
		API map[string]float64 `json:"salt-api"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return 0, fmt.Errorf("read /stats: %w", err)
	}

	n := int64(v.API["Total Requests"])
	f.sent.Add(-1) // the question itself
	return n, nil
}

// verdict compares what was sent with what was answered and with what salt-api counts;
// one of its requests is the last question for that.
func (f *fleet) verdict(served int64) error {
	served--
	var errs []error
	if sent, maybe := f.sent.Load()-2*int64(len(f.clients)+
		len(f.readers)), f.maybe.Load(); served < sent || served > sent+maybe {
		errs = append(errs, fmt.Errorf("salt-api counts %d requests; %d to %d were sent", served, sent, sent+maybe))
	}
	return errors.Join(append(errs, f.count.wrong()...)...)
}

// tally counts answers of each kind by their status; 0 is none, as is meant with who
// hangs up.
type tally struct {
	mu    sync.Mutex
	kinds map[string]map[int]int64
}

func (t *tally) add(kind string, code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds[kind] == nil {
		t.kinds[kind] = map[int]int64{}
	}
	t.kinds[kind][code]++
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	b.WriteString("| kind | answers by status |\n| --- | --- |\n")
	for _, k := range slices.Sorted(maps.Keys(t.kinds)) {
		var codes []string
		for _, code := range slices.Sorted(maps.Keys(t.kinds[k])) {
			codes = append(codes, fmt.Sprintf("%d: %d", code, t.kinds[k][code]))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", k, strings.Join(codes, ", "))
	}
	return b.String()
}

// wrong are the answers that their kinds should not have.
func (t *tally) wrong() (errs []error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, codes := range t.kinds {
		for code, n := range codes {
			if want := wanted()[kind]; !slices.Contains(want, code) {
				errs = append(errs, fmt.Errorf("%s: %d times %d instead of %v", kind, n, code, want))
			}
		}
	}
	return errs
}
