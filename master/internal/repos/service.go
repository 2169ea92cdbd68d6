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

	"saltern/control"
	"saltern/master/conf"
	"saltern/master/internal/fileserver"
	"saltern/master/internal/git"
	"saltern/master/internal/gitfs"
	"saltern/master/internal/gitpillar"
	"saltern/master/internal/gitremote"
	"saltern/master/value"
)

// tellEvery is how often faults that last are reported again, so that they stay
// listed.
const tellEvery = time.Minute

// Config of a Service.
type Config struct {
	Options *conf.Master
	Alone   bool // there are no other masters
	Fire    func(tag string, data *value.Map)
	// Problem reports a lasting fault; nil ends it.
	Problem func(what control.Fault, err error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Service is safe for concurrent use. Without git in the configuration it does
// nothing.
type Service struct {
	cfg     Config
	store   *git.Store
	files   *gitfs.Backend
	pillars *gitpillar.Source
	again   chan struct{} // a peer asks for a fetch

	mu    sync.Mutex
	peers map[string]*value.Map // what other masters serve
}

// Open reads the options and opens the store, without the network.
func Open(ctx context.Context, cfg Config) (s *Service, err error) {
	s = &Service{cfg: cfg, again: make(chan struct{}, 1), peers: map[string]*value.Map{}}
	c := cfg.Options
	pillars := gitpillar.Entries(c.ExtPillar)
	files := slices.Contains(c.FileserverBackend, "gitfs")
	if len(pillars) == 0 && !files {
		return s, nil
	}
	s.store, err = git.Open(git.Config{
		Dir: filepath.Join(c.CacheDir, "git"), KnownHosts: c.GitKnownHosts, Limits: git.Limits{Size: int64(c.GitMaxSize) << 20}, Log: cfg.Log, Now: cfg.Now,
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
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if files {
		if err = s.openFiles(ctx); err != nil {
			return nil, err
		}
	}
	if len(pillars) == 0 {
		return s, nil
	}
	if err = s.openPillars(ctx); err == nil || c.GitPillarVerifyConfig {
		return s, err
	}
	cfg.Log.Error("git pillars are left out: their options are wrong", "error", err)
	s.pillars = nil
	return s, nil
}

func (s *Service) openFiles(ctx context.Context) error {
	defaults, err := filesDefaults(s.cfg.Options)
	if err != nil {
		return err
	}
	var remotes []gitremote.Remote
	var errs []error
	for _, e := range s.cfg.Options.GitfsRemotes {
		r, err := defaults.Parse(gitremote.Files, e)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		remotes = append(remotes, r)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("option gitfs_remotes: %w", err)
	}
	if len(remotes) == 0 {
		s.cfg.Log.Warn("gitfs serves nothing: gitfs_remotes is empty")
	}
	s.files, err = gitfs.New(ctx, s.store, remotes, defaults.Global, s.updateFiles)
	return err
}

func (s *Service) openPillars(ctx context.Context) (err error) {
	c := s.cfg.Options
	if c.PillarMergeStrategy == "aggregate" {
		return errors.New("option pillar_source_merging_strategy: aggregate does not go with git pillars: choose another strategy")
	}
	if s.pillars, err = gitpillar.New(ctx, s.store, c.ExtPillar, pillarDefaults(c), s.cfg.Log); err != nil {
		return fmt.Errorf("option ext_pillar: %w", err)
	}
	return nil
}

// Backends are the file server backends that come from git.
func (s *Service) Backends() []fileserver.Backend {
	if s.files == nil {
		return nil
	}
	return []fileserver.Backend{s.files}
}

// Pillars is the source of git pillars; nil: there are none.
func (s *Service) Pillars() *gitpillar.Source { return s.pillars }

// Run fetches until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if s.store == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.store.Run(ctx) })
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.tell()
			if !s.cfg.Alone { // for those that have come since
				s.cfg.Fire(Serving, s.serving())
			}
		case <-s.again:
			wg.Go(func() { _, _ = s.store.FetchAll(ctx, nil) }) // faults are noted
		}
	}
}

// Close ends what reads the repositories.
func (s *Service) Close() {
	if s != nil && s.store != nil {
		s.store.Close()
	}
}

// fetched is called when a fetch has ended.
func (s *Service) fetched(r *git.Repository, changed bool, err error) {
	if s.files != nil && s.cfg.Options.FileserverEvents && err == nil && slices.Contains(s.files.Repositories(), r) {
		s.cfg.Fire("salt/fileserver/gitfs/update", value.NewMap("changed", changed, "backend", "gitfs"))
	}
	if changed {
		s.cfg.Log.Info("git remote has something new", "url", r.URL())
		s.cfg.Fire(Serving, s.serving())
	}
	s.tell()
}

// tell reports the faults of files and of pillars.
func (s *Service) tell() {
	if s.files != nil {
		s.cfg.Problem(control.GitFilesFault, fault(s.files.Repositories()))
	}
	if s.pillars != nil {
		s.cfg.Problem(control.GitPillarFault, fault(s.pillars.Repositories()))
	}
}

// fault is the first fault of repositories, and how many more have one.
func fault(repos []*git.Repository) error {
	var first string
	n := 0
	for _, r := range repos {
		st := r.Status()
		if st.Fault == nil {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s: %s: %s", st.URL, st.Fault.Kind, st.Fault.Text)
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New(first)
	}
	return fmt.Errorf("%s (and %d more)", first, n-1)
}
