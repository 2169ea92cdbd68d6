package peers

import (
	"context"
	"errors"
	"fmt"
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
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// joinTimeout is how long joining the cluster may take if saltern_cluster_join_timeout is not set.
const joinTimeout = time.Minute

// Heartbeats on connections with minions in a cluster. If the host of a minion's load balancer or
// master goes down, the minion must notice soon, because another master can serve it.
const (
	pingEvery = 2 * time.Second
	// RequestTTL and PublishTTL are how long after the last PING a minion closes a connection.
	// RequestTTL is shorter, so that the request connection is closed first. A minion that then
	// gets a job again can send its return at once, instead of waiting a minute for the reply to a
	// return that nobody received.
	RequestTTL = 6 * time.Second
	PublishTTL = RequestTTL + pingEvery
	// silentFor is how long a minion may leave PINGs unanswered before its subscription is treated
	// as lost. It is shorter than the time after which the minion closes the subscription.
	silentFor = PublishTTL - pingEvery + pingEvery/4
)

// Membership is a master's membership in its cluster. If Pool is nil, the master is not in a
// cluster, and the methods return what Salt does without a cluster.
type Membership struct {
	Options *conf.Master
	Pool    *cluster.Pool // may be nil: the master is not in a cluster
	Jobs    *jobs.Cluster
	Missed  *presence.Resender
	Started *presence.Started

	link    *Link
	handler *Handler
	share   *share.Share
	problem func(control.Fault, error)
	now     func() time.Time
	log     *slog.Logger

	// forwarding counts the goroutines that pass events to the other masters. Run starts them, and Close
	// ends them.
	forwarding     sync.WaitGroup
	stopForwarding context.CancelFunc // nil before Run

	undelivered *undelivered
	noPeer      atomic.Bool // when the last return had to be stored, no other master was connected
}

// degraded reports a fault in storing returns on other masters. If err is nil, the fault has ended.
func (m *Membership) degraded(err error) {
	m.noPeer.Store(errors.Is(err, jobs.ErrNoPeer))
	m.problem(control.ClusterFault, err)
}

// peerBack clears the fault that no other master was connected. Without peerBack only the next
// return would clear it.
func (m *Membership) peerBack() {
	if m.noPeer.CompareAndSwap(true, false) {
		m.problem(control.ClusterFault, nil)
	}
}

// JoinConfig configures Join.
type JoinConfig struct {
	Options  *conf.Master
	Identity auth.Identity
	// Port is used only for resending to minions that have missed something, so it may be opened
	// after Join.
	Port presence.PublishPort
	// Resources knows the resources of minions. Like Port, it is used only for resending.
	Resources presence.Resources
	Fire      func(tag string, data *value.Map)
	Problem   func(control.Fault, error)
	// Failed reports a single failure. The report expires after an hour.
	Failed func(control.Fault, error)
	Now    func() time.Time
	Log    *slog.Logger
}

// Join joins the cluster in the options, or creates that cluster. It returns when this master is a
// member, or at once if the options name no cluster.
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

	// Salt's words, for tools that look for them in the log.
	cfg.Log.Info(fmt.Sprintf("Raft consensus service started for cluster '%s'", c.ClusterID),
		"owner", "by a lease in cluster_pki_dir")

	m.link = &Link{Pool: m.Pool, Log: cfg.Log}
	m.Started = presence.NewStarted()
	m.Missed = presence.NewResender(m.resending(cfg))
	return m, nil
}

// resending returns the configuration for resending publications that minions have missed.
func (m *Membership) resending(cfg JoinConfig) presence.ResenderConfig {
	c := cfg.Options
	u := &undelivered{fire: cfg.Fire, failed: cfg.Failed, log: cfg.Log}
	rc := presence.ResenderConfig{
		Port:        cfg.Port,
		SilentFor:   silentFor,
		Undelivered: u.jobMissed,
		Resources:   cfg.Resources,
		Peers:       m.Pool,
		Now:         cfg.Now,
		Log:         cfg.Log,
	}

	// With order_masters, this master does not know the minions of lower masters.
	if !c.OrderMasters {
		rc.Started = m.Started
		rc.Unheard = m.Pool.Unheard
	}

	// Here all returns are stored in this job cache, and all minions belong to this cluster.
	if c.JobCache && c.ExtJobCache == "" && !c.OrderMasters {
		rc.Returned = func(ctx context.Context, jid string) (map[string]bool, error) { return m.Jobs.Returned(ctx, jid) }
	}

	m.undelivered = u
	return rc
}

// Alone reports whether this master is not in a cluster.
func (m *Membership) Alone() bool { return m.Pool == nil }

// Secrets sets the cluster's secrets in the configuration sc.
func (m *Membership) Secrets(sc *auth.SecretsConfig) {
	if m.Pool == nil {
		return
	}
	sc.ClusterKey, sc.Seed = m.Pool.ClusterKey(), m.Pool.Seed()
	// Salt's own masters share session keys as files. Saltern's masters derive them.
	switch c := m.Options; {
	case !c.ClusterPlainPeers:
	case c.ClusterSessions != "":
		sc.SessionDir = c.ClusterSessions
	default:
		sc.SessionDir = filepath.Join(c.CacheDir, "sessions")
	}
}

// KeyDir returns the directory of the minions' keys.
func (m *Membership) KeyDir() string {
	if m.Pool == nil {
		return m.Options.PKIDir
	}
	return m.Options.ClusterPKIDir
}

// Incoming returns the name of the file in which new keys are collected. It returns "" in a cluster
// that contains Salt's own masters, because these expect each key in a separate file at once.
func (m *Membership) Incoming() string {
	if m.Pool == nil || m.Options.ClusterPlainPeers {
		return ""
	}
	return m.Pool.ID()
}

// OpenJobs opens the job cache that all masters share, on top of local, the job cache of this
// master.
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

// Serving reports whether this master may serve minions.
func (m *Membership) Serving() bool { return m.Pool == nil || m.Pool.Serving() }

// Own reports whether this master is the owner, the only master of a cluster that may do certain
// work. term is greater for each new owner.
func (m *Membership) Own() (term uint64, ok bool) {
	if m.Pool == nil {
		return 1, true
	}
	return m.Pool.Own()
}

// SendData sends bytes to a peer, or to all peers if peer is "". It reports whether the queue of each
// of these peers had room.
func (m *Membership) SendData(peer string, b []byte) bool {
	return m.Pool == nil || m.Pool.SendData(peer, b)
}

// AlivePeers returns the ids of the other masters that are alive as far as this master knows.
func (m *Membership) AlivePeers() (ids []string) {
	if m.Pool == nil {
		return nil
	}
	for _, p := range m.Pool.Status().Peers {
		if p.Alive {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// ScheduleRecord returns the path of the file in which the masters of a cluster record their runs of
// the schedule, or "" without a cluster.
func (m *Membership) ScheduleRecord() string {
	if m.Pool == nil {
		return ""
	}
	return filepath.Join(m.Options.ClusterPKIDir, cluster.ScheduleFile)
}

// MergeRecord returns the path of the file in which the masters of a cluster record which commits they
// have reported, or "" without a cluster. id stands for an entry of saltern_merge_reports.
func (m *Membership) MergeRecord(id string) string {
	if m.Pool == nil {
		return ""
	}
	return filepath.Join(m.Options.ClusterPKIDir, "merge-"+id+".saltern")
}

// Heartbeat returns the heartbeat for connections with minions. Without a cluster it returns none,
// as in Salt.
func (m *Membership) Heartbeat(ttl time.Duration) zmtp.Heartbeat {
	if m.Pool == nil {
		return zmtp.Heartbeat{}
	}
	return zmtp.Heartbeat{Interval: pingEvery, TTL: ttl}
}

// ProxyMember returns a function that reports whether an address belongs to the load balancer of a
// member. Such a load balancer is trusted to report the addresses of its clients. It returns nil if
// no proxy is trusted.
func (m *Membership) ProxyMember() func(netip.Addr) bool {
	if m.Pool == nil || len(m.Options.ProxyFrom) == 0 {
		return nil
	}
	return func(a netip.Addr) bool { return m.Pool.IsMember(a.Unmap().String()) }
}

// ShareNonce informs the peers that this master has taken a request.
func (m *Membership) ShareNonce(k request.NonceKey) {
	if m.Pool != nil {
		m.Pool.Taken(k)
	}
}

// Admit waits until a process of a minion may be admitted. A new process must wait until all other
// masters know it: otherwise a job that the previous process has run might be sent to it again. A
// report of the process from one other master does not suffice, because the report may not have
// reached all masters.
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

// Forget drops the data about a minion whose key was removed.
func (m *Membership) Forget(id string) {
	if m.Started != nil {
		m.Started.Forget(id)
	}
}

// Rotate replaces the cluster key if a tool has requested a new one. (The cluster's owner also
// replaces a key that is too old, see package node.)
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

// Serve accepts connections of peers. Call it only when the parts in cfg exist.
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

// NewPauses returns Pauses for the orchestrations of this cluster. env is this master's; it must have
// Running and Pauses when an order of another master comes.
func (m *Membership) NewPauses(bus *event.Bus, fire func(tag string, data *value.Map), env *runner.Env) *Pauses {
	return NewPauses(PausesConfig{Others: m.others(bus, fire), Change: env.ChangeOwnPauses})
}

// NewBatches returns Batches for those of this cluster.
func (m *Membership) NewBatches(bus *event.Bus, fire func(tag string, data *value.Map), own runner.Batches) *Batches {
	return NewBatches(m.others(bus, fire), own)
}

// NewStopOrders returns the orders to stop batches of masters that do not answer.
func (m *Membership) NewStopOrders(bus *event.Bus, fire func(tag string, data *value.Map)) *StopOrders {
	others := m.others(bus, fire)
	others.Peers = m.ownPeers
	return NewStopOrders(m.Options.ClusterPKIDir, others)
}

// ownPeers reports for each other master of this kind whether it is connected. A Salt master leaves no orders.
func (m *Membership) ownPeers() map[string]bool {
	connected := map[string]bool{}
	for _, p := range m.Pool.Status().Peers {
		if p.Own {
			connected[p.ID] = p.Connected
		}
	}
	return connected
}

func (m *Membership) others(bus *event.Bus, fire func(tag string, data *value.Map)) Others {
	return Others{
		ID:   m.Pool.ID(),
		Bus:  bus,
		Fire: fire,
		Peers: func() map[string]bool {
			connected := map[string]bool{}
			for _, p := range m.Pool.Status().Peers {
				connected[p.ID] = p.Own && p.Connected
			}
			return connected
		},
		Log: m.log,
	}
}

// Shared returns the counters of the minion data that masters have exchanged.
func (m *Membership) Shared() share.Status {
	if m.share == nil {
		return share.Status{}
	}
	return m.share.Status()
}

// Run resends missed publications to minions until ctx ends, and forwards events to the peers until Close. It
// returns cluster.ErrRemoved if the other masters have removed this master from the cluster.
func (m *Membership) Run(ctx context.Context, bus *event.Bus) error {
	if m.Pool == nil {
		<-ctx.Done()
		return nil
	}

	// While this master stops, it still starts jobs, which the minions of the others must get.
	forwarding, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stopForwarding = stop
	m.forwarding.Go(func() { m.link.Forward(forwarding, bus) })
	m.forwarding.Go(func() { m.handOverResults(forwarding, bus) })

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()

	defer cancel()
	wg.Go(func() { m.Missed.Run(ctx) })
	wg.Go(func() { m.share.Run(ctx) })

	select {
	case <-m.handler.WhenRemoved():
		return cluster.ErrRemoved
	case <-ctx.Done():
		return nil
	}
}

// leaveWithin bounds how long the end of this master waits until another master owns the cluster.
const leaveWithin = 3 * time.Second

// Leave ends this master's ownership for good, so that another master owns the duties of the cluster at
// once. All duties of this master must have ended.
func (m *Membership) Leave() {
	if m.Pool == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	if err := m.Pool.Leave(ctx); err != nil {
		m.log.Warn("the other masters take over after the term of the lease", "error", err)
	}
}

// Close first sends the peers the events that wait and the minion data that only this master has, and then
// leaves the cluster. Run must have returned.
func (m *Membership) Close() {
	if m.Pool == nil {
		return
	}

	if m.stopForwarding != nil {
		m.stopForwarding()
		m.forwarding.Wait()
	}

	if m.share != nil {
		m.share.SendLast()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		m.Pool.FlushData(ctx)
		cancel()
	}

	m.Pool.Close()
}
