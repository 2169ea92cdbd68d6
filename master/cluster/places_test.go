package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

// TestFinding16PoolPortPlaces: strangers hold as many connections to a master as they can get, from
// many addresses. A member whose connection breaks can connect again.
func TestFinding16PoolPortPlaces(t *testing.T) {
	ms, _, port := three(t, nil)
	m := ms[0]
	cert, err := certificate("127.251.7.1", testKeys()[3])
	check.Must(t, err)
	conf := tlsConfig(cert)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()

	defer cancel()
	for i := range 320 {
		all.Go(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.251.7.%d", 1+i/16))}}
			for ctx.Err() == nil {
				// Connect with a stranger's key, send no more than a byte for as long as the master
				// permits, and connect again at once.
				if c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(m.ID(), fmt.Sprint(port))); err == nil {
					stop := context.AfterFunc(ctx, func() { _ = c.Close() })
					if s := tls.Client(c, conf); s.HandshakeContext(ctx) == nil {
						_, _ = s.Write([]byte{0})
						_, _ = s.Read(make([]byte, 1))
					}
					stop()
					_ = c.Close()
				}

				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}

	await.That(t, "strangers who are refused", func() bool { return m.Status().Refused > 500 })
	m.inbox.mu.Lock()
	cut := 0
	for k := range m.inbox.conns {
		if k.wasMember.Load() {
			_ = k.Close()
			cut++
		}
	}
	m.inbox.mu.Unlock()

	if cut == 0 {
		t.Fatal("no connection of a member")
	}

	for _, o := range ms[1:] {
		await.That(t, "the member's connection", func() bool {
			o.Pool.mu.Lock()
			l := o.links[m.ID()]
			o.Pool.mu.Unlock()
			return l != nil && l.dials.Load() > 1 && l.up.Load()
		})
	}

	await.That(t, "both members heard again", func() bool {
		m.inbox.mu.Lock()
		defer m.inbox.mu.Unlock()
		n := 0
		for k := range m.inbox.conns {
			if k.wasMember.Load() {
				n++
			}
		}

		return n >= 2
	})
}

// The other masters know the requests that one master has accepted, also those accepted before they
// connected.
func TestTaken(t *testing.T) {
	ms, _, _ := three(t, nil)
	ms[0].Taken([16]byte{9})
	for _, m := range ms[1:] {
		await.That(t, "what a peer has taken", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Contains(m.taken, [16]byte{9}) && slices.Contains(m.taken, [16]byte{1}) &&
				slices.Contains(m.taken, [16]byte{2})
		})
	}

	// No master waits for a peer that does not read these reports, and the memory for them is
	// bounded.
	l := newLink(ms[0].Pool, "nobody", "", false)
	defer l.close()
	for range maxTaken + 5 {
		l.tellTaken([16]byte{7})
	}

	if len(l.taken) != maxTaken || l.lostControl != 5 || len(l.takeTaken()) != takenMessage ||
		len(l.taken) != maxTaken-takenMessage {
		t.Errorf("%d wait, %d lost", len(l.taken), l.lostControl)
	}
}
