package nodeapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection from an address, for the limiter alone.
type wire struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (w *wire) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(w.from)) }
func (w *wire) Close() error         { w.closed.Store(true); return nil }

// TestFinding16PlacesOfMembers: strangers from everywhere take all the places
// that there are for them. A member gets its own, by its address, and by its
// certificate from any other; who proves nothing is cut.
func TestFinding16PlacesOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := netip.MustParseAddr("192.0.2.2")
		l := newLimiter(time.Now, func(a netip.Addr) bool { return a == own })
		open := func(from string) *wire {
			w := &wire{from: from}
			l.connState(w, http.StateNew)
			if w.closed.Load() { // as the server does
				l.connState(w, http.StateClosed)
			}
			return w
		}

		var all []*wire
		taken := 0
		for i := range 1000 {
			w := open(fmt.Sprintf("10.%d.%d.1:9", i%50, i/50))
			all = append(all, w)
			if !w.closed.Load() {
				taken++
			}
		}

		if taken != maxStrangers {
			t.Errorf("%d places for strangers", taken)
		}

		member, late := open("192.0.2.2:9"), open("198.51.100.1:9")
		if member.closed.Load() {
			t.Error("a member has no place")
		}

		if !late.closed.Load() {
			t.Error("one more stranger has a place")
		}

		// One that is a member by its certificate makes room for a stranger.
		l.proven(all[0], true)
		if w := open("198.51.100.2:9"); w.closed.Load() {
			t.Error("the place of a stranger that turned out a member is not free")
		}

		l.proven(member, true)
		l.proven(all[1], false)
		time.Sleep(unprovenFor + time.Second)
		synctest.Wait()

		if member.closed.Load() || all[0].closed.Load() || all[1].closed.Load() || !all[2].closed.Load() {
			t.Errorf("after a minute: member %v, by certificate %v, joining %v, stranger %v",
				member.closed.Load(), all[0].closed.Load(), all[1].closed.Load(), all[2].closed.Load())
		}

		for _, w := range append(all, member) {
			l.connState(w, http.StateClosed)
		}

		if l.total[1] != 0 || l.total[0] > 1 || len(l.conns) > 1 {
			t.Errorf("left: %v %d", l.total, len(l.conns))
		}
	})
}

// One stranger, or a few, who ask as much as they can keep nobody else from joining
// (finding 26 of the second audit).
func TestStrangersCannotKeepOthersFromJoining(t *testing.T) {
	nobody := func(netip.Addr) bool { return false }
	for _, sources := range []int{1, 5, 12} {
		t.Run(fmt.Sprint("hellos of ", sources), func(t *testing.T) {
			now := frozen()
			l := newLimiter(func() time.Time { return now }, nobody)
			for second := range 120 {
				for range 100 {
					for i := range sources {
						l.takeHello(fmt.Sprintf("10.0.0.%d:9", i))
					}
				}

				if !l.takeHello(fmt.Sprintf("192.0.2.%d:9", second+1)) {
					t.Fatalf("after %d s nobody else can ask", second)
				}

				now = now.Add(time.Second)
			}
		})

		t.Run(fmt.Sprint("wrong secrets of ", sources), func(t *testing.T) {
			now := frozen()
			l := newLimiter(func() time.Time { return now }, nobody)
			for second := range 120 {
				for range 10 {
					for i := range sources {
						if from := fmt.Sprintf("10.0.0.%d:9", i); l.takeHello(from) {
							l.failed(from)
						}
					}
				}

				if !l.takeHello(fmt.Sprintf("192.0.2.%d:9", second+1)) {
					t.Fatalf("after %d s nobody else can ask", second)
				}

				now = now.Add(time.Second)
			}
		})

		t.Run(fmt.Sprint("connections of ", sources), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(time.Now, nobody)
				var open []*wire
				try := func(from string) bool {
					w := &wire{from: from}
					l.connState(w, http.StateNew)
					if w.closed.Load() {
						l.connState(w, http.StateClosed)
						return false
					}

					open = append(open, w)
					return true
				}

				for range 200 {
					for i := range sources {
						try(fmt.Sprintf("10.0.0.%d:9", i))
					}
				}

				if !try("192.0.2.1:9") {
					t.Errorf("%d connections: nobody else has a place", len(open))
				}

				for _, w := range open {
					l.connState(w, http.StateClosed)
				}
			})
		})
	}
}
