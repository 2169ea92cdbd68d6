package master

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"saltern/control"
	"saltern/master/auth"
	"saltern/master/cluster"
	clusterwire "saltern/master/cluster/wire"
	"saltern/master/jobs"
	"saltern/master/peers"
	"saltern/master/presence"
	"saltern/master/publish"
	"saltern/master/request"
	"saltern/master/zmtp"
)

// times of a master in a cluster.
const (
	// clusterJoin is how long a start may take until this master belongs to
	// the cluster (saltern_cluster_join_timeout, in seconds).
	clusterJoin = time.Minute
)

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
	m.missed = presence.NewResender(presence.ResenderConfig{
		Recent: func(since time.Time) []publish.Recent { return m.publisher.Recent(since) },
		Resend: func(ctx context.Context, id uint64, r publish.Recent) error { return m.publisher.Resend(ctx, id, r) },
		Peers:  m.cluster, Now: m.now, Log: m.log,
	})
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

// serving reports whether minions may be served.
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

// mayAct reports whether this master does what only one of a cluster may do.
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
	m.handler = peers.NewHandler(peers.Config{
		Key: m.cluster.ClusterKey(), Secrets: m.secrets, Bus: m.bus, Fire: m.fire, Launch: m.launch, Publish: m.publisher.Publish, Jobs: m.clusterJobs,
		KeepReturns: m.cfg.JobCache && m.cfg.ExtJobCache == "", Pillars: m.pillars, Keys: m.keys, Nonces: m.nonces, Missed: m.missed,
		Problem: m.problems.Report, Log: m.log,
	})
	return m.cluster.Serve(m.handler)
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
		m.problems.Set(control.KeyRotationFault, err)
		return
	}
	m.problems.Clear(control.KeyRotationFault)
}

// openClusterJobs makes the job cache that all masters share.
func (m *Master) openClusterJobs(local *jobs.Local) error {
	m.link = &peers.Link{Pool: m.cluster, Now: m.now, Log: m.log}
	c, err := jobs.OpenCluster(jobs.ClusterConfig{
		ID: m.cluster.ID(), Dir: filepath.Join(m.cfg.ClusterPKIDir, cluster.JobsDir), Local: local, Peers: m.link, Keep: m.cfg.KeepJobs,
		Degraded: func(err error) { m.problems.Report(control.ClusterFault, err) }, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.jobs, m.clusterJobs, m.closeJobs = c, c, c.Close
	return nil
}

// shareNonce tells the peers of a request that is taken here.
func (m *Master) shareNonce(k request.NonceKey) {
	if m.cluster != nil {
		m.cluster.Taken(k)
	}
}
