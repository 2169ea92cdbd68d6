package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"saltern/master/auth"
	"saltern/master/cluster"
	clusterwire "saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/request"
	"saltern/master/runner"
	"saltern/master/zmtp"
)

// times of a master in a cluster.
const (
	// clusterJoin is how long a start may take until this master belongs to
	// the cluster (saltern_cluster_join_timeout, in seconds).
	clusterJoin  = time.Minute
	forwardDepth = 16384
)

// clusterJobs is what a master in a cluster remembers.
type clusterJobs struct {
	removed chan struct{} // closed when this master was removed
	once    sync.Once
	cache   *jobs.Cluster

	mu  sync.Mutex
	key string // last cluster key that was taken
	// kept holds the tags of returns that peers got with Keep, so that the
	// event of the same return is not sent to them a second time. It forgets
	// when it is full: then an event goes twice, which peers notice.
	kept map[string]bool
}

// maxKept bounds clusterJobs.kept.
const maxKept = 16384

// sent notes that peers get the return of this tag without its event.
func (c *clusterJobs) sent(tag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxKept {
		c.kept = map[string]bool{}
	}
	c.kept[tag] = true
}

// wasSent asks for what sent noted, once.
func (c *clusterJobs) wasSent(tag string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := c.kept[tag]
	delete(c.kept, tag)
	return ok
}

// openCluster joins the cluster, or forms it. It returns when this master
// belongs to it.
func (m *Master) openCluster(ctx context.Context) error {
	c := m.cfg
	if c.ClusterIsolatedFS {
		return errors.New("cluster_isolated_filesystem is set, but masters share cluster_pki_dir here; remove the option")
	}
	wait := clusterJoin
	if s := c.ClusterJoinTimeout; s > 0 {
		wait = s
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var err error
	m.clusterJob.removed, m.missed = make(chan struct{}), newMissed(m)
	m.cluster, err = cluster.Open(ctx, cluster.Config{
		ID: c.ID, Address: c.Interface, Port: c.ClusterPoolPort, Dir: c.ClusterPKIDir, Key: m.identity.Key, Pub: m.identity.Public,
		KeySize: c.KeySize, KeyPass: c.ClusterKeyPass, Peers: c.ClusterPeers, Secret: c.ClusterSecret, AllowEmptySecret: c.ClusterEmptySecret,
		Fingerprint: c.ClusterPubFingerprint, Suite: clusterwire.Suite{Encryption: c.ClusterEncryptionAlgorithm, Signing: c.PublishSigningAlgorithm},
		PublishSession: c.PublishSession, PlainPeers: c.ClusterPlainPeers, StateDir: c.CacheDir, Logger: m.log,
	})
	if err != nil {
		return err
	}
	m.identity = m.cluster.Identity()
	return nil
}

// clusterSecrets makes the secrets those of the cluster.
func (m *Master) clusterSecrets(sc *auth.SecretsConfig) {
	if m.cluster != nil {
		sc.ClusterKey, sc.Seed, sc.SessionDir = m.cluster.ClusterKey(), m.cluster.Seed(), m.sessionDir()
	}
}

// minionKeys is the folder of the minions' keys.
func (m *Master) minionKeys() string {
	if m.cluster != nil {
		return m.cfg.ClusterPKIDir
	}
	return m.cfg.PKIDir
}

// incomingKeys is the name under which new keys are taken together; "" with
// Salt's own masters, who look for the file of a key at once.
func (m *Master) incomingKeys() string {
	if m.cluster == nil || m.cfg.ClusterPlainPeers {
		return ""
	}
	return m.cluster.ID()
}

// serving tells whether minions may be served.
func (m *Master) serving() bool { return m.cluster == nil || m.cluster.Serving() }

// In a cluster minions shall notice soon that the host of their load balancer
// or master has vanished, since another one is there to serve them.
const (
	pingEvery = 2 * time.Second
	// requestTTL and publishTTL are how long after the last PING a minion gives
	// a connection up. That for requests is gone before the other one may be:
	// who is sent a job again has a way to answer, and does not wait a minute
	// for the reply to a return that nobody got.
	requestTTL = 6 * time.Second
	publishTTL = requestTTL + pingEvery
)

// heartbeat is how connections with minions are looked after; Salt's way in a
// master of its own.
func (m *Master) heartbeat(ttl time.Duration) zmtp.Heartbeat {
	if m.cluster == nil {
		return zmtp.Heartbeat{}
	}
	return zmtp.Heartbeat{Interval: pingEvery, TTL: ttl}
}

// mayAct tells whether this master does what only one of a cluster may do.
func (m *Master) mayAct() bool {
	if m.cluster == nil {
		return true
	}
	_, ok := m.cluster.Own()
	return ok
}

// serveCluster lets peers in, when everything that they reach is there.
func (m *Master) serveCluster() error {
	if m.cluster == nil {
		return nil
	}
	m.clusterJob.key = m.cluster.ClusterKey().String()
	return m.cluster.Serve(clusterHandler{m})
}

// forward sends the events of the local bus to the peers.
func (m *Master) forward(ctx context.Context) {
	sub := m.bus.Subscribe("cluster", forwardDepth, func(tag string) bool { return tag != "key" && !strings.HasPrefix(tag, "cluster/") })
	defer sub.Close()
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}
			if e.Lost > 0 {
				m.log.Error("events were not forwarded to the peers: too many at once", "lost", e.Lost)
			}
			if !m.clusterJob.wasSent(e.Tag) && !secretRunner(e.Data.Str("fun")) {
				m.cluster.Forward(e)
			}
		case <-ctx.Done():
			return
		}
	}
}

// rotateCluster has the cluster key replaced when a tool asks for it. Its age
// is watched by the owner, see package node.
func (m *Master) rotateCluster(ctx context.Context) {
	if !m.secrets.RotationAsked() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clusterJoin)
	defer cancel()
	if err := m.cluster.Rotate(ctx); err != nil && ctx.Err() == nil {
		m.problems.set("key rotation", err)
		return
	}
	m.problems.clear("key rotation")
}

// jobPeers hands returns to the other masters.
type jobPeers struct{ m *Master }

// Keep implements jobs.Peers.
func (p jobPeers) Keep(ctx context.Context, r jobs.Return) error {
	m := p.m
	tag := event.Tag("job", r.JID, "ret", r.ID)
	load := r.Load.Clone()
	load.Set("_stamp", event.Stamp(m.now()))
	m.clusterJob.sent(tag)
	err := m.cluster.Keep(ctx, tag, load)
	if errors.Is(err, cluster.ErrAlone) {
		if len(m.cluster.Status().Peers) == 0 {
			return jobs.ErrSingle
		}
		return jobs.ErrAlone
	}
	return err
}

// openClusterJobs makes the job cache that all masters share.
func (m *Master) openClusterJobs(local *jobs.Local) error {
	c, err := jobs.OpenCluster(jobs.ClusterConfig{
		ID: m.cluster.ID(), Dir: filepath.Join(m.cfg.ClusterPKIDir, cluster.JobsDir), Local: local, Peers: jobPeers{m}, Keep: m.cfg.KeepJobs,
		Degraded: func(err error) {
			if err == nil {
				m.problems.clear("cluster")
				return
			}
			m.problems.set("cluster", err)
		}, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.jobs, m.clusterJob.cache, m.closeJobs = c, c, c.Close
	return nil
}

// clusterHandler is what peers reach of this master.
type clusterHandler struct{ m *Master }

// Keys takes the keys that are in force from now on.
func (h clusterHandler) Keys(key crypt.Key, seed string) error {
	m := h.m
	if err := errors.Join(m.secrets.SetClusterKey(key), m.secrets.SetClusterSeed(seed)); err != nil {
		return err
	}
	m.clusterJob.mu.Lock()
	changed := m.clusterJob.key != key.String()
	m.clusterJob.key = key.String()
	m.clusterJob.mu.Unlock()
	if changed {
		m.fire("key", msgpack.NewMap("rotate_aes_key", true))
	}
	return nil
}

// Event puts an event of a peer on the bus. The start of a job makes it known
// here as well.
func (h clusterHandler) Event(ctx context.Context, peer, tag string, data *msgpack.Map) error {
	if jid := data.Str("jid"); jobs.Valid(jid) && tag == event.Tag("job", jid, "new") {
		h.m.expected.put(jid, data.Bool(onlyField), data.Texts("minions"))
		load := data.Clone()
		for _, k := range []string{"_stamp", clusterwire.PeerField, "minions", "missing"} {
			load.Delete(k)
		}
		// Not waited for: the job itself comes next and must not be late.
		if _, err := h.m.clusterJob.cache.StageCopy(ctx, jid, load, data.Texts("minions")); err != nil {
			h.m.problems.set("job cache", err)
			h.m.log.Error("the job of a peer is not kept", "jid", jid, "peer", peer, "error", err)
		}
	}
	if tag == pillarCleared {
		h.m.forgetPillar(data.Str("id"))
	}
	if err := h.m.bus.Relay(tag, data, event.Peer); err != nil {
		h.m.log.Warn("event of a peer cannot be fired", "peer", peer, "tag", tag, "error", err)
	}
	return nil
}

// Publish sends the job of a peer to our minions, under the same id.
func (h clusterHandler) Publish(ctx context.Context, peer string, load *msgpack.Map) error {
	if !jobs.Valid(load.Str("jid")) {
		h.m.log.Warn("the job of a peer has no valid id", "peer", peer)
		return nil
	}
	j, err := h.m.newJob(ctx, load)
	if err != nil {
		h.m.log.Warn("the target of a peer's job cannot be read", "peer", peer, "jid", load.Str("jid"), "error", err)
		j = &job{}
	}
	if err := h.m.publisher.Publish(ctx, load, j.minions); err != nil {
		return fmt.Errorf("publishing job %s of a peer: %w", load.Str("jid"), err)
	}
	return nil
}

// Return keeps a return that a peer has taken.
func (h clusterHandler) Return(ctx context.Context, peer, tag string, load *msgpack.Map) error {
	m := h.m
	jid, id := load.Str("jid"), load.Str("id")
	if !jobs.Valid(jid) || keys.ValidID(id) != nil || tag != event.Tag("job", jid, "ret", id) {
		m.log.Warn("the return of a peer is not usable", "peer", peer, "tag", tag)
		return nil
	}
	if !m.mayReturn(ctx, jid, id) {
		m.unlisted(jid, id)
		return cluster.ErrRefused
	}
	if !m.cfg.JobCache || m.cfg.ExtJobCache != "" {
		return nil
	}
	kept := load.Clone()
	kept.Delete("_stamp")
	if err := m.clusterJob.cache.SaveCopy(ctx, jobs.ReturnOf(kept)); err != nil && !errors.Is(err, jobs.ErrTooLarge) {
		m.problems.set("job cache", err)
		return fmt.Errorf("keeping the return of %s for job %s: %w", id, jid, err)
	}
	m.problems.clear("job cache")
	return nil
}

// Subscribed, CutOff, Back and Lost tell who may have missed a job.
func (h clusterHandler) Subscribed(peer string, from netip.Addr, s cluster.Subs) {
	h.m.missed.peerHas(peer, from, s)
}
func (h clusterHandler) CutOff(_ string, s cluster.Subs)   { h.m.missed.peerCut(s) }
func (h clusterHandler) Back(_ string, s cluster.Subs)     { h.m.missed.peerBack(s) }
func (h clusterHandler) Lost(peer string, heard time.Time) { h.m.missed.peerLost(peer, heard) }

// KeyChanged has the key of a minion looked at on the folder, if it is another
// one than is known here.
func (h clusterHandler) KeyChanged(id string, st clusterwire.KeyState, pub string) {
	h.m.keys.Hint(id, keyState(st), pub)
}

// keyState is the state that an event of a peer speaks of.
func keyState(st clusterwire.KeyState) keys.State {
	switch st {
	case clusterwire.KeyAccepted:
		return keys.Accepted
	case clusterwire.KeyPending:
		return keys.Pending
	case clusterwire.KeyRejected:
		return keys.Rejected
	case clusterwire.KeyDenied:
		return keys.Denied
	}
	return keys.None
}

// shareNonce tells the peers of a request that is taken here.
func (m *Master) shareNonce(k request.NonceKey) {
	if m.cluster != nil {
		m.cluster.Taken(k)
	}
}

// Taken remembers requests that a peer has taken.
func (h clusterHandler) Taken(list [][16]byte) {
	learned := make([]request.NonceKey, len(list))
	for i, k := range list {
		learned[i] = k
	}
	h.m.nonces.Learn(learned)
}

// AllTaken gives the requests that this master has taken.
func (h clusterHandler) AllTaken(most int) [][16]byte {
	own := h.m.nonces.Own(most)
	out := make([][16]byte, len(own))
	for i, k := range own {
		out[i] = k
	}
	return out
}

// Removed ends this master.
func (h clusterHandler) Removed() {
	h.m.clusterJob.once.Do(func() { close(h.m.clusterJob.removed) })
}

// addClusterRunners adds what cluster.remove and the others do.
func (m *Master) addClusterRunners(t *runner.Table) {
	if m.cluster == nil {
		return
	}
	t.Add("cluster.members", func(context.Context, *runner.Env, []any, *msgpack.Map) (any, error) {
		out := clusterMembers(m.cluster.Status(), m.now())
		j := m.clusterJob.cache.ClusterStats()
		out.Set("job_records", msgpack.NewMap("handed_over", j.Handed, "imported", j.Imported, "held", j.Held, "lost", j.Lost))
		return out, nil
	})
	t.Add("cluster.rotate", func(ctx context.Context, _ *runner.Env, _ []any, _ *msgpack.Map) (any, error) {
		return true, m.cluster.Rotate(ctx)
	})
	t.Add("cluster.remove", func(ctx context.Context, _ *runner.Env, args []any, named *msgpack.Map) (any, error) {
		id := named.Str("id")
		if len(args) == 1 {
			id, _ = args[0].(string)
		}
		if id == "" {
			return nil, &runner.ArgumentError{Reason: "remove() missing 1 required positional argument: 'id'"}
		}
		if err := m.cluster.Remove(ctx, id); err != nil {
			return nil, err
		}
		return msgpack.NewMap("removed", id, "cluster_secret", m.cluster.Secret()), nil
	})
	t.Add("cluster.secret_next", func(ctx context.Context, _ *runner.Env, _ []any, _ *msgpack.Map) (any, error) {
		return true, m.cluster.StageSecret(ctx)
	})
	t.Add("cluster.secret_commit", func(ctx context.Context, _ *runner.Env, args []any, named *msgpack.Map) (any, error) {
		finger := named.Str("finger")
		if len(args) == 1 {
			finger, _ = args[0].(string)
		}
		if finger == "" {
			return nil, &runner.ArgumentError{Reason: "secret_commit() missing 1 required positional argument: 'finger'"}
		}
		return true, m.cluster.CommitSecret(ctx, finger)
	})
	t.Add("cluster.secret", func(context.Context, *runner.Env, []any, *msgpack.Map) (any, error) { return m.cluster.Secret(), nil })
}

// clusterMembers is the answer of cluster.members.
func clusterMembers(s cluster.Status, now time.Time) *msgpack.Map {
	out := msgpack.NewMap("id", s.ID, "state", s.Phase, "version", s.Version, "key_generation", s.KeyGen, "owner", s.Owner)
	peers := msgpack.NewMap()
	for _, p := range s.Peers {
		v := msgpack.NewMap("connected", p.Connected, "alive", p.Alive, "salt", !p.Own, "version", p.Version, "key_generation", p.KeyGen)
		if !p.Heard.IsZero() {
			v.Set("heard_seconds", now.Sub(p.Heard).Seconds())
		}
		if p.Error != "" {
			v.Set("error", p.Error)
		}
		for _, d := range []cluster.Duty{cluster.Jobs, cluster.Returns, cluster.Events} {
			q := p.Queues[d.String()]
			v.Set(d.String(), msgpack.NewMap("waiting", q.Waiting, "bytes", q.Bytes, "lag_seconds", q.Lag.Seconds(), "handled", q.Handled, "lost", q.Lost))
		}
		peers.Set(p.ID, v)
	}
	out.Set("peers", peers)
	out.Set("withheld_events", int64(s.Withheld)) // of minions, on which a peer would have acted
	if c := s.Consensus; c != nil {
		out.Set("salt_consensus", msgpack.NewMap("role", c.Role, "leader", c.Leader, "term", c.Term, "index", c.Index, "commit", c.Commit,
			"voters", c.Voters, "learners", c.Learners))
	}
	return out
}
