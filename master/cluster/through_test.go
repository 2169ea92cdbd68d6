package cluster

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestThrough cuts the network between two of three masters: they connect through the third master,
// nothing is lost or handled twice, and they use the direct path again when it works.
func TestThrough(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	ways := map[string]string{} // who must not be dialled by whom; filled before the first dial that is cut
	ms, _, _ := three(t, func(c *Config) {
		id := c.ID
		c.control = func(network, address string, s syscall.RawConn) error {
			if host, _, _ := net.SplitHostPort(address); cut.Load() && host == ways[id] {
				return errors.New("the way is cut")
			}
			return hangUp(network, address, s)
		}
	})

	a, b, c := ms[0], ms[1], ms[2]
	ways[a.cfg.ID], ways[b.cfg.ID] = b.cfg.ID, a.cfg.ID
	through := func(m *member, peer, by string) bool {
		for _, p := range m.Status().Peers {
			if p.ID == peer {
				return p.Connected && p.Alive && p.Through == by
			}
		}
		return false
	}

	job := func(from *member, jid string) {
		from.Forward(event.Event{
			Tag:  "salt/job/" + jid + "/publish",
			Data: value.NewMap("jid", jid, "fun", "test.ping"),
		})
	}

	bad := [3]uint64{a.Status().Bad, b.Status().Bad, c.Status().Bad} // of joining
	cut.Store(true)
	for _, m := range []*member{a, b} {
		m.inbox.mu.Lock()
		for k := range m.inbox.conns {
			if k.id != c.cfg.ID {
				_ = k.Close()
			}
		}
		m.inbox.mu.Unlock()
	}

	job(a, "20260101000000000001")
	await.That(t, "a way through the third",
		func() bool { return through(a, b.cfg.ID, c.cfg.ID) && through(b, a.cfg.ID, c.cfg.ID) })
	job(a, "20260101000000000002")
	job(b, "20260101000000000003")
	await.That(t, "jobs through the third", func() bool {
		return b.has(&b.jobs, "20260101000000000001") && b.has(&b.jobs, "20260101000000000002") &&
			a.has(&a.jobs, "20260101000000000003")
	})

	if err := a.Keep(await.Context(t), "salt/job/20260101000000000002/ret/m",
		value.NewMap("jid", "20260101000000000002", "id", "m")); err != nil {
		t.Error(err)
	}

	await.That(t, "a return through the third", func() bool { return b.count(&b.returns) == 1 })
	cut.Store(false)
	await.That(t, "the direct way", func() bool { return through(a, b.cfg.ID, "") && through(b, a.cfg.ID, "") })
	job(a, "20260101000000000004")
	await.That(t, "jobs on the direct way", func() bool { return b.has(&b.jobs, "20260101000000000004") })

	if n, m := b.count(&b.jobs), b.count(&b.returns); n != 3 || m != 1 {
		t.Errorf("%d jobs and %d returns at b: %v", n, m, b.jobs)
	}

	for i, m := range ms {
		if s := m.Status(); s.Bad != bad[i] {
			t.Errorf("%s: %d bad messages, %d before: %s", m.cfg.ID, s.Bad, bad[i], m.log)
		}
	}

	await.That(t, "nothing goes through the third", func() bool { return c.Pool.count.passed.Load() == 0 })
}

// A master relays a member only to members, and a stranger to nobody.
func TestThroughRefused(t *testing.T) {
	t.Parallel()
	ms, _, _ := three(t, nil)
	a, b, c := ms[0], ms[1], ms[2]
	try := func(p *Pool, to string) {
		t.Helper()
		l := &link{pool: p, id: to, ctx: t.Context()}
		other := &link{pool: p, id: b.cfg.ID, ctx: t.Context()}
		if c, err := l.through(other); err == nil {
			_ = c.Close()
			t.Errorf("connected to %.20q", to)
		}
	}

	for _, to := range []string{"127.0.0.1", a.cfg.ID, b.cfg.ID, "", strings.Repeat("x", 300)} {
		try(a.Pool, to)
	}

	cert, err := certificate(a.cfg.ID, testKeys()[3])
	check.Must(t, err)
	try(&Pool{cfg: a.cfg, tls: tlsConfig(cert)}, c.cfg.ID)
	if n := c.Pool.count.passed.Load() + b.Pool.count.passed.Load(); n != 0 {
		t.Errorf("%d connections are passed on", n)
	}
}
