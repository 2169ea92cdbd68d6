package repos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/conf"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/git"
	"saltern/master/internal/gitfs"
	"saltern/master/internal/gitpillar"
	"saltern/master/value"
)

// Config configures a Service.
type Config struct {
	Options *conf.Master
	Alone   bool // the master is not in a cluster
	Fire    func(tag string, data *value.Map)
	// Problem reports a persistent fault. If err is nil, the fault has ended.
	Problem func(fault control.Fault, err error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Service manages the repositories. If no remotes are configured, it does nothing. It is safe for
// concurrent use.
type Service struct {
	cfg           Config
	store         *git.Store
	files         *gitfs.Backend
	pillars       *gitpillar.Source
	fetchAgain    chan struct{}     // gets an element when another master has asked for a fetch
	reloadAgain   chan struct{}     // gets an element when another master has reloaded its options
	fetchRequests chan fetchRequest // requests of FetchGit, for Run
	requestSlots  chan struct{}     // holds a token for each FetchGit in progress

	reload  sync.Mutex // held while Reload reads the options
	telling sync.Mutex // held while faults are reported

	follow chan struct{} // gets an element when behind has become non-empty

	mu     sync.Mutex
	peers  map[string]*value.Map    // commits that other masters serve, by the master's id
	behind map[*git.Repository]bool // repositories for which another master serves different commits
}

// Open reads the options and opens the store. It does not use the network.
func Open(ctx context.Context, cfg Config) (s *Service, err error) {
	s = &Service{
		cfg:           cfg,
		fetchAgain:    make(chan struct{}, 1),
		reloadAgain:   make(chan struct{}, 1),
		fetchRequests: make(chan fetchRequest, maxAsked),
		requestSlots:  make(chan struct{}, maxAsked),
		peers:         map[string]*value.Map{},
		follow:        make(chan struct{}, 1),
		behind:        map[*git.Repository]bool{},
	}

	c := cfg.Options
	pillars := gitpillar.Entries(c.ExtPillar)
	files := slices.Contains(c.FileserverBackend, "gitfs")
	if len(pillars) == 0 && !files {
		return s, nil
	}

	s.store, err = git.Open(git.Config{
		Dir:        filepath.Join(c.CacheDir, "git"),
		KnownHosts: c.GitKnownHosts,
		Limits:     git.Limits{Size: int64(c.GitMaxSize) << 20},
		Log:        cfg.Log,
		Now:        cfg.Now,
		Prepare: func(ctx context.Context, r *git.Repository, snap *git.Snapshot) {
			if s.pillars != nil {
				s.pillars.Prepare(ctx, r, snap)
			}
		},
		Fetched: s.fetched,
	})
	if err != nil {
		return nil, err
	}

	batch := s.store.Batch()
	if s.files, s.pillars, err = s.buildBackends(ctx, batch, c); err != nil {
		batch.Drop()
		s.Close()
		return nil, err
	}

	batch.Commit()
	return s, nil
}

// buildBackends creates the backends that the options require. files is nil if gitfs is not
// configured, and pillars is nil if no git pillar is configured.
func (s *Service) buildBackends(
	ctx context.Context,
	batch *git.Batch,
	c *conf.Master,
) (files *gitfs.Backend, pillars *gitpillar.Source, err error) {
	if slices.Contains(c.FileserverBackend, "gitfs") {
		if files, err = s.buildFiles(ctx, batch, c); err != nil {
			return nil, nil, err
		}
	}

	if len(gitpillar.Entries(c.ExtPillar)) == 0 {
		return files, nil, nil
	}

	if pillars, err = gitpillar.New(ctx, batch, c.ExtPillar, pillarDefaults(c), s.cfg.Log); err != nil {
		err = fmt.Errorf("option ext_pillar: %w", err)
	}

	if err != nil && !c.GitPillarVerifyConfig {
		s.cfg.Log.Error("git pillars are left out: their options are wrong", "error", err)
		return files, nil, nil
	}

	return files, pillars, err
}

func (s *Service) buildFiles(ctx context.Context, batch *git.Batch, c *conf.Master) (*gitfs.Backend, error) {
	remotes, global, err := fileRemotes(c)
	if err != nil {
		return nil, err
	}
	if len(remotes) == 0 {
		s.cfg.Log.Warn("gitfs serves nothing: gitfs_remotes is empty")
	}
	return gitfs.New(ctx, batch, remotes, global, s.updateFiles)
}

// Reload reloads the options of gitfs and git_pillar, and applies them if they are valid. Enabling
// or disabling gitfs needs a restart, and so does a change of the number of git entries in
// ext_pillar.
func (s *Service) Reload(ctx context.Context) error {
	c, err := conf.Load(s.cfg.Options.Path)
	if err != nil {
		return fmt.Errorf("read the options: %w", err)
	}

	s.reload.Lock()
	defer s.reload.Unlock()
	if s.store == nil {
		return errors.New("the master serves nothing from git yet: restart it to begin with that")
	}

	batch := s.store.Batch()
	files, pillars, err := s.buildBackends(ctx, batch, c)
	switch {
	case err != nil:
	case (files == nil) != (s.files == nil):
		err = errors.New("option fileserver_backend: gitfs comes and goes with a restart of the master")
	case (pillars == nil) != (s.pillars == nil) || pillars != nil && pillars.Len() != s.pillars.Len():
		err = errors.New("option ext_pillar: entries with git come and go with a restart of the master; remotes below one of them do not need it")
	}

	if err != nil {
		batch.Drop()
		return err
	}

	if files != nil {
		s.files.Replace(files)
	}

	if pillars != nil {
		s.pillars.Replace(pillars)
	}

	batch.Commit()
	s.cfg.Log.Info("options of git remotes were read again", "remotes", len(s.store.Repositories()))
	return nil
}

// Backends returns the file server backends that serve git: gitfs, or none.
func (s *Service) Backends() []fileserver.Backend {
	if s.files == nil {
		return nil
	}
	return []fileserver.Backend{s.files}
}

// Files returns the backend that serves files from git, or nil if gitfs is not configured.
func (s *Service) Files() *gitfs.Backend { return s.files }

// Pillars returns the source of git pillars. It returns nil if no git pillars are configured.
func (s *Service) Pillars() *gitpillar.Source { return s.pillars }

// Run fetches the repositories until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if s.store == nil {
		return
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.store.Run(ctx) })
	// Repeat the report of current faults every minute, because a reported fault is listed for a
	// limited time only.
	t := time.NewTicker(time.Minute)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.reportFaults()
			if !s.cfg.Alone { // so that masters that have started since the last announcement receive it
				s.cfg.Fire(Serving, s.serving())
			}
		case <-s.reloadAgain:
			if err := s.Reload(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("options of git remotes stay as they were", "error", err)
			}
		case a := <-s.fetchRequests:
			wg.Go(func() {
				defer func() { <-s.requestSlots }()
				defer close(a.done)
				_, _ = s.store.FetchAll(ctx, a.want)
			})
		case <-s.follow:
			wg.Go(func() { s.catchUp(ctx) })
		case <-s.fetchAgain:
			wg.Go(func() { _, _ = s.store.FetchAll(ctx, nil) }) // the store reports errors
		}
	}
}

// Close ends the processes that read the repositories. s may be nil.
func (s *Service) Close() {
	if s != nil && s.store != nil {
		s.store.Close()
	}
}

// fetched reports the faults and changes of a fetch. The store calls it after each fetch.
func (s *Service) fetched(r *git.Repository, changed bool, err error) {
	if s.files != nil && s.cfg.Options.FileserverEvents && err == nil && slices.Contains(s.files.Repositories(), r) {
		s.cfg.Fire("salt/fileserver/gitfs/update", value.NewMap("changed", changed, "backend", "gitfs"))
	}
	if changed {
		s.cfg.Log.Info("git remote has something new", "url", r.URL())
		s.cfg.Fire(Serving, s.serving())
	}
	s.reportFaults()
}
