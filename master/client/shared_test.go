package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/fakemaster"
)

// sharing makes clients of one program.
func sharing(t *testing.T, m *fakemaster.Master) func(*client.Config) {
	t.Helper()
	s := client.NewShared(m.SockDir)
	t.Cleanup(s.Close)
	return func(cfg *client.Config) { cfg.Shared = s }
}

// Clients that share their connections get each their own answers, both at the same time and one
// after the other, and open no more connections for that.
func TestSharedClients(t *testing.T) {
	m := fakemaster.New(t, "a", "b")
	m.Minion = func(id, _ string, load *value.Map) fakemaster.Answer {
		return fakemaster.Answer{Reply: true, Return: id + value.Str(load.Value("fun"))}
	}
	share := sharing(t, m)
	var all sync.WaitGroup
	for i := range 8 {
		c := connect(t, m, share)
		all.Go(func() {
			for range 5 {
				fun := fmt.Sprint("f", i)
				got, err := run(t, c, request("*", fun))
				expect(t, got, err, "a=a"+fun, "b=b"+fun)
			}
		})
	}

	all.Wait()
	before := sockets(t)
	for range 5 {
		c := connect(t, m, share)
		got, err := run(t, c, request("a", "x"))
		expect(t, got, err, "a=ax")
		// the other end closes some of its own later
		await.That(t, fmt.Sprintf("no more than %d sockets", before), func() bool { return sockets(t) <= before })
		c.Close()
	}
}

// sockets counts those that this process has open.
func sockets(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); len(to) > 7 && to[:7] == "socket:" {
			n++
		}
	}
	return n
}

// A client that shares its connections asks about late minions and gets the answers. It copes with
// an event bus that closes its connection or loses a return.
func TestSharedLateAndLost(t *testing.T) {
	slow := func(id, _ string, _ *value.Map) fakemaster.Answer {
		a := fakemaster.Answer{Reply: true, Return: id, Out: "txt"}
		if id == "b" {
			a.After, a.Running = 1200*time.Millisecond, 99
		}
		return a
	}

	for name, change := range map[string]func(*fakemaster.Master){
		"late": func(m *fakemaster.Master) { m.Minion = slow },
		"cut":  func(m *fakemaster.Master) { m.Minion, m.Reconnect = slow, true },
		"lost": func(m *fakemaster.Master) {
			m.Lose = true
			m.Minion = func(id, _ string, _ *value.Map) fakemaster.Answer {
				return fakemaster.Answer{
					Reply:  true,
					Return: id,
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := fakemaster.New(t, "a", "b")
			change(m)
			share := sharing(t, m)
			for range 2 {
				got, err := run(t, connect(t, m, share), request("*", "test.ping"))
				expect(t, got, err, "a=a", "b=b")
			}
		})
	}
}

// Where no master listens a shared client says so, as any other.
func TestSharedWithoutMaster(t *testing.T) {
	m := fakemaster.New(t, "a")
	share := sharing(t, m)
	c := connect(t, m, func(cfg *client.Config) {
		share(cfg)
		cfg.Shared = client.NewShared(t.TempDir())
		t.Cleanup(cfg.Shared.Close)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := c.Run(ctx, request("*", "test.ping"), nil, func(client.Return) bool { return true })
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Kind != client.Unavailable {
		t.Errorf("%v", err)
	}
}
