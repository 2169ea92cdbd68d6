package master

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/health"
	"saltern/master/internal/auth"
	"saltern/master/internal/batch"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/local"
	"saltern/master/internal/peers"
	"saltern/master/internal/presence"
	"saltern/master/internal/repos"
	"saltern/master/internal/syndics"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/redact"
)

func (m *Master) openDirs(context.Context) error {
	c := m.cfg
	for dir, mode := range map[string]os.FileMode{
		c.PKIDir:   0o700,
		c.CacheDir: 0o750,
		c.SockDir:  0o755,

		filepath.Join(c.CacheDir, "jobs"):         0o750,
		filepath.Join(c.CacheDir, "proc"):         0o750,
		filepath.Join(c.CacheDir, "minions"):      0o750,
		filepath.Join(c.CacheDir, "sessions"):     0o700,
		filepath.Join(c.CacheDir, "publish_auth"): 0o700,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("create the folders of the master: %w", err)
		}
	}

	if c.ClusterID != "" {
		if err := health.OwnCache(c.CacheDir, c.ID, m.now()); err != nil {
			return err
		}
	}

	return m.signs.Startup()
}

// openCluster loads this master's own key. If the master belongs to a cluster, openCluster joins
// the cluster.
func (m *Master) openCluster(ctx context.Context) error {
	c := m.cfg
	var err error
	if m.identity, err = auth.OpenMaster(c.PKIDir, c.ID, c.KeyPass, c.KeySize); err != nil {
		return err
	}

	m.cluster, err = peers.Join(ctx, peers.JoinConfig{
		Options:   c,
		Identity:  m.identity,
		Port:      m.missedPort,
		Resources: managed(func(minion string) []string { return m.resources.Managed(minion) }),
		Fire:      m.fire,
		Problem:   m.problems.Report,
		Failed:    m.problems.Set,
		Now:       m.now,
		Log:       m.log,
	})
	if err == nil && !m.cluster.Alone() {
		m.identity = m.cluster.Pool.Identity()
	}

	return err
}

func (m *Master) openSecrets(context.Context) error {
	c := m.cfg
	sc := auth.SecretsConfig{
		Identity:         m.identity,
		MasterID:         c.ID,
		CacheDir:         c.CacheDir,
		PublishSession:   c.PublishSession,
		SigningAlgorithm: c.PublishSigningAlgorithm,
		Logger:           m.log,
	}

	m.cluster.Secrets(&sc)
	if c.MasterSignPubkey {
		signer, err := auth.OpenSigner(c.PKIDir, c.MasterSignKeyName, c.SigningKeyPass, c.KeySize)
		if err != nil {
			return err
		}

		sc.Signer = &signer
		if c.UsePubkeySignature {
			sig, err := os.ReadFile(filepath.Join(c.PKIDir, c.MasterPubkeySig))
			if err != nil {
				return fmt.Errorf("read master_pubkey_signature: %w", err)
			}
			sc.PubkeySignature = string(sig)
		}
	}

	var err error
	m.secrets, err = auth.OpenSecrets(sc)
	return err
}

func (m *Master) openKeys(context.Context) error {
	c := m.cfg
	var err error
	if m.keys, err = keys.Open(m.cluster.KeyDir(),
		keys.Config{
			Create:     true,
			Permissive: c.PermissivePKIAccess,
			Incoming:   m.cluster.Incoming(),
			Logger:     m.log,
		}); err != nil {
		return err
	}

	m.presence = presence.Open(c.CacheDir, presence.View{
		Keys:     m.keys,
		Subs:     presence.On(m.pub),
		HashType: c.HashType,
		Now:      m.now,
		Log:      m.log,
	})

	autosign := keys.NewAutosign(keys.AutosignConfig{
		AutoAccept:     c.AutoAccept,
		AutosignFile:   c.AutosignFile,
		AutorejectFile: c.AutorejectFile,
		Dir:            m.keys.AutosignDir(),
		Timeout:        c.AutosignTimeout,
		GrainsDir:      c.AutosignGrainsDir,
		Permissive:     c.PermissivePKIAccess,
		Logger:         m.log,
	})

	port := c.FrontPublishPort
	port = cmp.Or(port, c.PublishPort)
	m.signin, err = auth.New(auth.Config{
		Keys:          m.keys,
		Secrets:       m.secrets,
		Autosign:      autosign,
		PublishPort:   port,
		OpenMode:      c.OpenMode,
		MaxMinions:    c.MaxMinions,
		Presence:      m.presence,
		NoEvents:      !c.AuthEvents,
		EventGrains:   c.AuthEventsAutosignGrains,
		ClusterEvents: !m.cluster.Alone(),
		Events:        m.fire,
		Logger:        m.quiet,
		Admit:         m.cluster.Admit,
		Trouble:       m.conditions.Reason,
		Decided:       local.AutosignRecord(m.audit),
	})

	return err
}

func (m *Master) openCallers(context.Context) error {
	var err error
	m.callers, err = local.OpenCallers(m.cfg, m.fire, m.log, m.quiet)
	return err
}

// writesJobFiles reports whether all jobs and returns become files. Salt's own masters read nothing else: beside such
// masters this one may be replaced by one of them at any time.
func writesJobFiles(c *conf.Master) bool {
	return !c.JobSegments || c.KeepJobs <= 0 || c.ClusterPlainPeers
}

func (m *Master) openStores(ctx context.Context) error {
	c := m.cfg
	local, err := jobs.Open(jobs.Config{
		Dir:        filepath.Join(c.CacheDir, "jobs"),
		HashType:   c.HashType,
		Endtimes:   c.JobCacheStoreEndtime,
		Shared:     !m.cluster.Alone(),
		Files:      writesJobFiles(c),
		SegmentAge: max(c.KeepJobs/16, 10*time.Minute),
		Archive:    m.openArchive(ctx),
		Unfinished: func() (map[string]bool, error) { return batch.Unfinished(c.CacheDir, c.HashType, m.now()) },
	},
		m.log)
	if err != nil && !m.cluster.Alone() {
		err = health.CacheHint(err)
	}

	if err != nil {
		return err
	}

	m.jobs = local
	m.localJobs = local
	m.closeJobs = local.Close
	m.writes = health.NewWrites(filepath.Join(local.JournalDir(), ".try"), m.problems)
	if !m.cluster.Alone() {
		if err := m.cluster.OpenJobs(local); err != nil {
			return err
		}
		m.jobs, m.closeJobs = m.cluster.Jobs, m.cluster.Jobs.Close
	}

	if err := m.openJobReturners(); err != nil {
		return err
	}

	if m.cache, err = cache.Open(c.CacheDir, cacheMemory, keys.ValidID); err != nil {
		return err
	}

	if err := m.cache.KeepPillars(pillarsKept(c)); err != nil {
		return err
	}

	if err := m.cache.Sweep(time.Now()); err != nil {
		m.log.Warn("what writes cut short have left stays in the minion cache", "error", err)
	}

	if m.repos, err = repos.Open(ctx, repos.Config{
		Options: c,
		Alone:   m.cluster.Alone(),
		Fire:    m.fire,
		Problem: m.problems.Report,
		Now:     m.now,
		Log:     m.log,
	}); err != nil {
		return err
	}

	m.openNewest()
	m.files, err = fileserver.New(fileserver.Config{
		Roots:          c.FileRoots,
		Backends:       c.FileserverBackend,
		Extra:          m.repos.Backends(),
		IgnoreRegex:    c.FileIgnoreRegex,
		IgnoreGlob:     c.FileIgnoreGlob,
		FollowSymlinks: c.FileserverFollowLinks,
		IgnoreSymlinks: c.FileserverIgnoreLinks,
		HashType:       c.HashType,
		BufferSize:     c.FileBufferSize,
		Cachedir:       c.CacheDir,
		Recv:           fileserver.RecvConfig{Enabled: c.FileRecv, MaxSize: int64(c.FileRecvMaxSize) << 20},
		Log:            m.log,
		MinionFS: fileserver.MinionFSConfig{Env: c.MinionFSEnv, Mountpoint: c.MinionFSMountpoint,
			Whitelist: c.MinionFSWhitelist, Blacklist: c.MinionFSBlacklist},
		Since: m.newest.Since,
	})
	if err != nil {
		return err
	}

	if c.OrderMasters {
		m.syndics = syndics.Open(c.CacheDir, m.isAccepted, m.log)
	}
	return m.openFleet()
}

func (m *Master) openBus(context.Context) error {
	m.bus = event.NewBus(time.Now, m.cfg.MaxEventSize)
	mode := os.FileMode(0o660)
	var err error
	m.sockets, err = event.Serve(m.bus, event.Config{
		Dir:          m.cfg.SockDir,
		PubMode:      mode,
		ReaderBuffer: m.cfg.IPCWriteBuffer,
		Later:        true,
		Clean:        redact.Event,
	}, m.log)
	return err
}
