package peers

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster"
	clusterwire "saltern/master/cluster/wire"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/auth"
	"saltern/master/internal/presence"
	"saltern/master/internal/request"
	"saltern/master/internal/share"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// joinTimeout bounds the time until this master belongs to the cluster, where
// saltern_cluster_join_timeout is not set.
const joinTimeout = time.Minute

// Heartbeats of connections with minions in a cluster. A minion must notice soon that the host of
// its load balancer or master has vanished, since another one can serve it.
const (
	pingEvery = 2 * time.Second
	// RequestTTL and PublishTTL are how long after the last PING a minion gives a connection up.
	// The request connection must be gone before the publish connection may be: a minion that gets
	// a job again can then answer it, and does not wait a minute for the reply to a return that
	// nobody got.
	RequestTTL = 6 * time.Second
	PublishTTL = RequestTTL + pingEvery
	// silentFor is how long a minion may leave PINGs unanswered until its subscription counts as
	// cut: shorter than the time after which the minion itself gives it up.
	silentFor = PublishTTL - pingEvery + pingEvery/4
)

// Membership is a master's place in its cluster. Without a Pool the master is alone, and every
// question is answered as Salt does without a cluster.
type Membership struct {
	Options *conf.Master
	Pool    *cluster.Pool // nil: alone
	Jobs    *jobs.Cluster
	Missed  *presence.Resender
	Started *presence.Started

	link    *Link
	handler *Handler
	share   *share.Share
	problem func(control.Fault, error)
	now     func() time.Time
	log     *slog.Logger

	undelivered *undelivered
	noPeer      atomic.Bool // the last return found no other master that could keep it
}

// degraded reports how returns are kept.
func (m *Membership) degraded(err error) {
	m.noPeer.Store(errors.Is(err, jobs.ErrNoPeer))
	m.problem(control.ClusterFault, err)
}

// peerBack ends the problem that no other master was connected. Without it the problem would last
// until the next job.
func (m *Membership) peerBack() {
	if m.noPeer.CompareAndSwap(true, false) {
		m.problem(control.ClusterFault, nil)
	}
}

// JoinConfig configures Join.
type JoinConfig struct {
	Options  *conf.Master
	Identity auth.Identity
	// Port is used when minions have missed something. It need not be open before.
	Port    presence.PublishPort
	Fire    func(tag string, data *value.Map)
	Problem func(control.Fault, error)
	// Failed reports something that has happened. The report lasts for an hour.
	Failed func(control.Fault, error)
	Now    func() time.Time
	Log    *slog.Logger
}

// Join joins the cluster of the options, or forms it. It returns when this master belongs to it, or
// at once when the options name none.
func Join(ctx context.Context, cfg JoinConfig) (*Membership, error) {
	c := cfg.Options
	m := &Membership{Options: c, problem: cfg.Problem, now: cfg.Now, log: cfg.Log}
	if c.ClusterID == "" {
		return m, nil
	}
	if c.ClusterIsolatedFS {
		return m, errors.New("cluster_isolated_filesystem is set, but masters share cluster_pki_dir here; remove the option")
	}

	wait := joinTimeout
	if s := c.ClusterJoinTimeout; s > 0 {
		wait = s
	}

	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var err error
	m.Pool, err = cluster.Open(ctx, cluster.Config{
		ID:               c.ID,
		Address:          c.Interface,
		Port:             c.ClusterPoolPort,
		Dir:              c.ClusterPKIDir,
		Key:              cfg.Identity.Key,
		Pub:              cfg.Identity.Public,
		KeySize:          c.KeySize,
		KeyPass:          c.ClusterKeyPass,
		Peers:            c.ClusterPeers,
		Secret:           c.ClusterSecret,
		AllowEmptySecret: c.ClusterEmptySecret,
		Fingerprint:      c.ClusterPubFingerprint,
		Suite: clusterwire.Suite{
			Encryption: c.ClusterEncryptionAlgorithm,
			Signing:    c.PublishSigningAlgorithm,
		},
		PublishSession: c.PublishSession,
		PlainPeers:     c.ClusterPlainPeers,
		StateDir:       c.CacheDir,
		Logger:         cfg.Log,
	})
	if err != nil {
		return m, err
	}

	m.link = &Link{Pool: m.Pool, Now: cfg.Now, Log: cfg.Log}
	m.Started = presence.NewStarted()
	m.Missed = presence.NewResender(m.resending(cfg))
	return m, nil
}

// resending returns how missed publications are sent again.
func (m *Membership) resending(cfg JoinConfig) presence.ResenderConfig {
	c := cfg.Options
	u := &undelivered{fire: cfg.Fire, failed: cfg.Failed, log: cfg.Log}
	rc := presence.ResenderConfig{
		Port:        cfg.Port,
		SilentFor:   silentFor,
		Undelivered: u.jobMissed,
		Peers:       m.Pool,
		Now:         cfg.Now,
		Log:         cfg.Log,
	}

	if !c.OrderMasters { // with order_masters, lower masters have minions of which nothing is known here
		rc.Started = m.Started
		rc.Unheard = m.Pool.Unheard
	}

	if c.JobCache && c.ExtJobCache == "" && !c.OrderMasters { // returns are kept, and all minions are ours
		rc.Returned = func(ctx context.Context, jid string) (map[string]bool, error) { return m.Jobs.Returned(ctx, jid) }
	}

	m.undelivered = u
	return rc
}

// Alone reports whether this master belongs to no cluster.
func (m *Membership) Alone() bool { return m.Pool == nil }

// Secrets puts the secrets of the cluster into a configuration.
func (m *Membership) Secrets(sc *auth.SecretsConfig) {
	if m.Pool == nil {
		return
	}
	sc.ClusterKey, sc.Seed = m.Pool.ClusterKey(), m.Pool.Seed()
	// Salt's own masters share session keys by files; ours derive them.
	switch c := m.Options; {
	case !c.ClusterPlainPeers:
	case c.ClusterSessions != "":
		sc.SessionDir = c.ClusterSessions
	default:
		sc.SessionDir = filepath.Join(c.CacheDir, "sessions")
	}
}

// KeyDir is the folder of the minions' keys.
func (m *Membership) KeyDir() string {
	if m.Pool == nil {
		return m.Options.PKIDir
	}
	return m.Options.ClusterPKIDir
}

// Incoming returns the name of the file in which new keys are collected. It is "" together with
// Salt's own masters, which look for the file of a key at once.
func (m *Membership) Incoming() string {
	if m.Pool == nil || m.Options.ClusterPlainPeers {
		return ""
	}
	return m.Pool.ID()
}

// OpenJobs returns the job cache that all masters share, made of this master's own.
func (m *Membership) OpenJobs(local *jobs.Local) (err error) {
	m.Jobs, err = jobs.OpenCluster(jobs.ClusterConfig{
		ID:       m.Pool.ID(),
		Dir:      filepath.Join(m.Options.ClusterPKIDir, cluster.JobsDir),
		Local:    local,
		Peers:    m.link,
		Keep:     m.Options.KeepJobs,
		Degraded: m.degraded,
		Log:      m.log,
	})
	return err
}

// Serving reports whether minions may be served.
func (m *Membership) Serving() bool { return m.Pool == nil || m.Pool.Serving() }

// Own reports whether this master does the work that only one of a cluster may do, and since which
// term. The term grows with each owner.
func (m *Membership) Own() (term uint64, ok bool) {
	if m.Pool == nil {
		return 1, true
	}
	return m.Pool.Own()
}

// ScheduleRecord returns the file in which the masters of a cluster note what they run of the
// schedule, or "" without a cluster.
func (m *Membership) ScheduleRecord() string {
	if m.Pool == nil {
		return ""
	}
	return filepath.Join(m.Options.ClusterPKIDir, cluster.ScheduleFile)
}

// Heartbeat returns how connections with minions are watched: without a cluster as in Salt.
func (m *Membership) Heartbeat(ttl time.Duration) zmtp.Heartbeat {
	if m.Pool == nil {
		return zmtp.Heartbeat{}
	}
	return zmtp.Heartbeat{Interval: pingEvery, TTL: ttl}
}

// ProxyMember returns a function that reports whether an address belongs to a member, whose load
// balancer may name the addresses of others. It is nil when no proxy is trusted.
func (m *Membership) ProxyMember() func(netip.Addr) bool {
	if m.Pool == nil || len(m.Options.ProxyFrom) == 0 {
		return nil
	}
	return func(a netip.Addr) bool { return m.Pool.IsMember(a.Unmap().String()) }
}

// ShareNonce tells the peers that a request is taken here.
func (m *Membership) ShareNonce(k request.NonceKey) {
	if m.Pool != nil {
		m.Pool.Taken(k)
	}
}

// Admit lets a process of a minion in. A new process is let in when the other masters know of it:
// otherwise it might get a job again that the process before it has run. A report by another master
// does not suffice, since it may not have reached all.
func (m *Membership) Admit(ctx context.Context, id string, p auth.Process) error {
	if m.Pool == nil {
		return nil
	}
	now := m.now()
	since, _ := m.Started.Saw(id, uint64(p), now)
	if now.Sub(since) > presence.KnownFor {
		return nil
	}
	return m.Pool.Announce(ctx, cluster.Start{ID: id, Process: uint64(p), Age: now.Sub(since)})
}

// Spread prepares for the event that publishes a job, see [cluster.Pool.Spread].
func (m *Membership) Spread(jid string) (wait func(context.Context), done func()) {
	if m.Pool == nil {
		return func(context.Context) {}, func() {}
	}
	return m.Pool.Spread(jid)
}

// Forget drops a minion whose key is gone.
func (m *Membership) Forget(id string) {
	if m.Started != nil {
		m.Started.Forget(id)
	}
}

// Rotate replaces the cluster key when a tool asks for it. The owner of the cluster replaces it by
// its age, see package node.
func (m *Membership) Rotate(ctx context.Context, secrets *auth.Secrets) {
	if !secrets.RotationAsked() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := m.Pool.Rotate(ctx); err == nil || ctx.Err() == nil {
		m.problem(control.KeyRotationFault, err)
	}
}

// Serve lets peers in. Call it when the parts that they reach exist.
func (m *Membership) Serve(cfg Config) error {
	if m.Pool == nil {
		return nil
	}

	var err error
	cfg.Cache.ShareTokens(m.Options.TokenDir)
	if m.share, err = share.New(share.Config{Store: cfg.Cache, Send: m.Pool.SendData, Log: m.log}); err != nil {
		return err
	}

	cfg.Key = m.Pool.ClusterKey()
	cfg.Jobs = m.Jobs
	cfg.Missed = m.Missed
	m.handler = newHandler(m, cfg)

	return m.Pool.Serve(m.handler)
}

// Shared returns counters of the minion data that masters have exchanged.
func (m *Membership) Shared() share.Status {
	if m.share == nil {
		return share.Status{}
	}
	return m.share.Status()
}

// Run forwards events and resends missed publications until ctx ends. It returns cluster.ErrRemoved
// when the others have removed this master.
func (m *Membership) Run(ctx context.Context, bus *event.Bus) error {
	if m.Pool == nil {
		<-ctx.Done()
		return nil
	}

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()

	defer cancel()
	wg.Go(func() { m.link.Forward(ctx, bus) })
	wg.Go(func() { m.Missed.Run(ctx) })
	wg.Go(func() { m.share.Run(ctx) })

	select {
	case <-m.handler.WhenRemoved():
		return cluster.ErrRemoved
	case <-ctx.Done():
		return nil
	}
}

// Close leaves the peers, after it has sent them the minion data that only this master has.
func (m *Membership) Close() {
	if m.Pool == nil {
		return
	}
	if m.share != nil {
		m.share.SendLast()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		m.Pool.FlushData(ctx)
		cancel()
	}
	m.Pool.Close()
}
