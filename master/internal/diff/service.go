package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// Bounds of comparisons.
const (
	maxWaiting     = 4 // comparisons that wait for the one that runs
	defaultTakes   = 5 * time.Minute
	rendererMemory = 768 << 20        // address space of a renderer, in bytes
	renderTakes    = 20 * time.Second // time for one template
	startTakes     = 2 * time.Minute
	memoBytes      = 32 << 20 // results of templates that each side keeps
	rendererNice   = 5
	rendererReply  = 4 << 20 // bytes of one result
)

// Fleet lists the minions and their grains, for a comparison.
type Fleet interface {
	// Match returns the accepted minions that a target selects.
	Match(target any, targetType string) ([]string, error)
	// Groups returns everything that a target may name as a nodegroup. The caller must not change it.
	Groups() *value.Map
	// Grains returns the grains of a minion from the cache, or false.
	Grains(id string) (*value.Map, bool)
}

// Config configures a Service.
type Config struct {
	Pillar   pillar.Config   // as the master compiles pillars
	Renderer renderer.Config // as the master renders
	States   StateFiles
	Fleet    Fleet
	Dir      string // directory for copies of folders; only this Service may use it
	// Trusted means that refs may run code on this master (saltern_diff_trusted).
	Trusted bool
	// Folders are the directories below which a folder may be compared (saltern_diff_folders).
	Folders []string
	Takes   time.Duration // longest time of a comparison (saltern_diff_timeout); 0: defaultTakes
	// Newest brings the files of this master up to date. It may be nil: they are.
	Newest func(context.Context)
	Log    *slog.Logger
}

// Service compares. It is safe for concurrent use.
type Service struct {
	cfg     Config
	names   secretNames
	turn    chan struct{} // holds one token; who has taken it may compare
	waiting chan struct{} // holds a token for each comparison that runs or waits
}

// New returns a Service. It removes what a killed process has left in cfg.Dir.
func New(cfg Config) *Service {
	cfg.Takes = cmp.Or(cfg.Takes, defaultTakes)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := os.RemoveAll(cfg.Dir); err != nil {
		cfg.Log.Warn("copies of former comparisons cannot be removed", "path", cfg.Dir, "error", err)
	}

	s := &Service{cfg: cfg, turn: make(chan struct{}, 1), waiting: make(chan struct{}, 1+maxWaiting)}
	s.turn <- struct{}{}
	return s
}

// ErrBusy is the error of a comparison when too many others wait.
var ErrBusy = fmt.Errorf("another comparison is running and %d wait for it; try again later", maxWaiting)

// takeTurn waits until no other comparison runs. The caller must call done.
func (s *Service) takeTurn(ctx context.Context, tell func(string)) (done func(), err error) {
	select {
	case s.waiting <- struct{}{}:
	default:
		return nil, ErrBusy
	}

	select {
	case <-s.turn:
	default:
		tell("waiting for another comparison to end")
		select {
		case <-s.turn:
		case <-ctx.Done():
			<-s.waiting
			return nil, ctx.Err()
		}
	}

	return func() {
		s.turn <- struct{}{}
		<-s.waiting
	}, nil
}

// Compare compares. It ends when ctx ends. tell is called with a text when Compare waits.
func (s *Service) Compare(ctx context.Context, r Request, tell func(string)) (report *Report, err error) {
	err = s.inTurn(ctx, r.Target, r.TargetType, tell, func(ctx context.Context, ids []string) error {
		report, err = s.compare(ctx, r, ids)
		return err
	})
	return report, err
}

// inTurn runs work with the minions that a target selects, when its turn has come and within the bounds of
// a comparison.
func (s *Service) inTurn(
	ctx context.Context,
	target any,
	targetType string,
	tell func(string),
	work func(ctx context.Context, ids []string) error,
) error {
	done, err := s.takeTurn(ctx, tell)
	if err != nil {
		return err
	}
	defer done()

	late := fmt.Errorf("%w than %v (saltern_diff_timeout); compare fewer minions with tgt=", ErrLate, s.cfg.Takes)
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Takes, late)
	defer cancel()

	if s.cfg.Newest != nil {
		s.cfg.Newest(ctx)
	}

	ids, err := s.cfg.Fleet.Match(target, targetType)
	if err != nil {
		return fmt.Errorf("find the minions: %w", err)
	}
	err = work(ctx, ids)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

func (s *Service) compare(ctx context.Context, r Request, ids []string) (*Report, error) {
	began := time.Now()
	pool := s.renderers(!s.cfg.Trusted)
	defer pool.Close()

	work, err := s.workDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)

	from, err := s.side(ctx, r, r.From, filepath.Join(work, "from"), pool)
	defer from.close()
	if err != nil {
		return nil, err
	}
	to, err := s.side(ctx, r, r.To, filepath.Join(work, "to"), pool)
	defer to.close()
	if err != nil {
		return nil, err
	}
	for side, what := range map[*side]What{from: r.From, to: r.To} {
		if what.Ref != "" && side.refs == 0 {
			return nil, fmt.Errorf("%w %.100q; see salt-run git.status", ErrNoRef, what.Ref)
		}
	}

	run := &comparison{
		service:   s,
		request:   r,
		from:      from,
		to:        to,
		decrypted: decryptedPlaces(s.cfg.Pillar.Opts.Value("decrypt_pillar"), s.cfg.Pillar.Opts.Str("decrypt_pillar_delimiter")),
		report:    newReport(r, len(ids), s.notes()),
	}
	if err := run.all(ctx, ids); err != nil {
		return nil, err
	}

	run.report.Seconds = time.Since(began).Seconds()
	run.report.finish()
	return run.report, nil
}

// renderers returns the renderers of one comparison. They start when they are needed. Confined ones run
// nothing with an effect.
func (s *Service) renderers(confined bool) *renderer.Pool {
	c := s.cfg.Renderer
	c.MaxWorkers = workers()
	c.MemoryLimit = rendererMemory
	c.RequestTimeout = renderTakes
	c.StartTimeout = startTakes
	c.Nice = rendererNice
	c.MaxMessage = rendererReply
	c.Confined = confined
	c.Log = slog.New(slog.DiscardHandler) // what templates log may hold what is not shown
	return renderer.New(c)
}

// workers returns how many minions are compared at the same time: half of the processors serve
// minions meanwhile.
func workers() int { return max(1, runtime.NumCPU()/2) }

func (s *Service) workDir() (string, error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return "", fmt.Errorf("make a directory for the comparison: %w", err)
	}
	dir, err := os.MkdirTemp(s.cfg.Dir, "run-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the comparison: %w", err)
	}
	return dir, nil
}

// notes returns what the configuration keeps from being compared.
func (s *Service) notes() (notes []string) {
	if s.cfg.Trusted {
		return nil
	}
	for _, entry := range s.cfg.Pillar.ExtPillar {
		m, _ := entry.(*value.Map)
		for _, name := range m.Keys() {
			if name != "git" {
				notes = append(notes, fmt.Sprintf("the ext_pillar %.60q is not run: it is left out on both sides", name))
			}
		}
	}
	return notes
}

// ErrLate is the error of a comparison that takes too long.
var ErrLate = errors.New("the comparison took longer")

// ErrNoRef is the error for a ref that nothing of what is compared has.
var ErrNoRef = errors.New("no git remote of what is compared has the branch, tag or commit")

// errNothing is the error of a request without anything to compare.
var errNothing = errors.New("name what to compare: a branch, tag or commit (ref=), or a folder (folder=)")
