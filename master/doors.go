package master

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"strconv"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/peers"
	"saltern/master/internal/publish"
	"saltern/master/internal/request"
	"saltern/master/zmtp"
)

// listen opens a TCP port of the master.
func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable:   true,
		Idle:     60 * time.Second,
		Interval: 15 * time.Second,
		Count:    3,
	}}

	network := "tcp"
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		network = "tcp4"
	}

	ln, err := lc.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w; another master or program holds it, or interface is not an address of this host",
			port, err)
	}

	return ln, nil
}

// listening returns the settings that the publish port and the request port share.
func (m *Master) listening(ttl time.Duration) zmtp.Listen {
	return zmtp.Listen{
		ProxyFrom:   m.cfg.ProxyFrom,
		ProxyMember: m.cluster.ProxyMember(),
		Heartbeat:   m.cluster.Heartbeat(ttl),
		Sources:     m.sources,
		Log:         m.quiet,
	}
}

// managed is a [presence.Resources]: a function that returns the resources of a minion.
type managed func(minion string) []string

// Managed implements presence.Resources.
func (f managed) Managed(minion string) []string { return f(minion) }

// resendPort is a [presence.PublishPort]: the publish port together with its Publisher.
type resendPort struct {
	*publish.Publisher
	*zmtp.Pub
}

// openPublish opens the port at which minions subscribe. After ctx has ended, the port remains open
// until the requests in progress have ended.
func (m *Master) openPublish(ctx context.Context) error {
	ln, err := listen(ctx, m.cfg.Interface, m.cfg.PublishPort)
	if err != nil {
		return err
	}

	pc := zmtp.PubConfig{Listen: m.listening(peers.PublishTTL), MaxQueue: m.cfg.PubHWM}
	if !m.cluster.Alone() {
		pc.OnSubscribe = m.cluster.Missed.OnSubscribe
		pc.OnDisconnect = m.cluster.Missed.OnDisconnect
	}

	m.pub = zmtp.ListenPub(context.WithoutCancel(ctx), ln, pc)
	c := publish.Config{
		Keys:         m.secrets.NextPublish,
		Algorithm:    m.cfg.PublishSigningAlgorithm,
		Pub:          m.pub,
		Filtering:    m.cfg.ZMQFiltering,
		OrderMasters: m.cfg.OrderMasters,
		Manager:      func(id string) string { return m.resources.Manager(id) },
		Now:          time.Now,
	}

	if m.cfg.SignPubMessages {
		c.Sign = m.secrets.Sign
	}

	m.publisher, err = publish.New(c)
	*m.missedPort = resendPort{m.publisher, m.pub}
	return err
}

// openDoors opens the master to peers, to tools that fire events, to the supervisor and, last of
// all, to minions.
func (m *Master) openDoors(ctx context.Context) error {
	if err := m.cluster.Serve(peers.Config{
		Secrets:     m.secrets,
		Bus:         m.bus,
		Fire:        m.fire,
		Launch:      m.launch,
		Publish:     m.publish,
		KeepReturns: m.cfg.JobCache && m.cfg.ExtJobCache == "",
		Pillars:     m.pillars,
		Repos:       m.repos,
		Cache:       m.cache,
		Keys:        m.keys,
		Nonces:      m.nonces,
		Lockout:     m.callers.Lockout,
		Notify:      m.notify,
		Problem:     m.problems.Report,
		Log:         m.log,
	}); err != nil {
		return err
	}

	m.sockets.Take()
	ctl, err := event.Listen(m.cfg.SockDir, control.Socket, 0o600)
	if err != nil {
		return err
	}

	m.control = control.Serve(ctl, peers.Controlled{
		Pool:      m.cluster.Pool,
		View:      m.presence,
		Repos:     m.repos,
		Scheduled: m.schedule,
		Explainer: m.explain,
		History:   m.recorder,
		JobFiles:  m.localJobs,
		Tokens:    m.callers.Tokens,
	}, m.log)

	ln, err := listen(ctx, m.cfg.Interface, m.cfg.RetPort)
	if err != nil {
		return err
	}

	l := m.listening(peers.RequestTTL)
	// A minion that waits for its key sends a sign-in every 10 s or more (its
	// acceptance_wait_time). If its connection is closed, it connects again without logging a
	// message.
	l.Limits.ProveIn = 10 * time.Minute
	l.Limits.MaxInflight, l.Limits.MaxStrange = memoryBudgets(debug.SetMemoryLimit(-1))

	// Finish a request even if its sender has disconnected: an accepted return must be stored.
	handle := func(ctx context.Context, p zmtp.Peer, payload []byte) ([]byte, bool) {
		answer := m.requests.Handle(request.Asked(ctx), p.Remote, payload, p.Account)
		return answer, answer != nil
	}

	m.router, err = zmtp.ListenRouter(context.WithoutCancel(ctx), ln, zmtp.RouterConfig{
		Listen:      l,
		Busy:        request.Busy,
		Concurrency: maxRequests,
		Strangers:   maxStrangers,
		Handler:     handle,
		Free:        m.requests.Recycle,
	})
	if err != nil {
		return err
	}

	return m.signs.Ready(m.cfg.PidFile)
}

// memoryBudgets returns how many bytes of memory the running requests of authenticated senders
// (proven) and those of other senders (unproven) may take. limit is the memory limit of the Go
// runtime, in bytes. Both budgets together are half of the limit, but no more than the defaults of
// package zmtp.
func memoryBudgets(limit int64) (proven, unproven int64) {
	return min(256<<20, limit*3/8), min(96<<20, limit/8)
}
