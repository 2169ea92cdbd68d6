package fileserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"saltern/master/value"
)

// errUnknownCommand is the error of Call for a command that the file server does not have.
var errUnknownCommand = errors.New("not a command of the file server")

// Server answers file requests. Create it with New.
type Server struct {
	cfg      Config
	log      *slog.Logger
	backends []Backend
	hasher   *hasher
	recv     *receiver
	slots    chan struct{}
	lists    singleflight.Group

	mu     sync.Mutex
	cached map[listKey]*cachedList
	times  map[string]map[string]int64 // backend → file → mtime at the last Update
}

// New returns a Server. It returns an error if the configuration names an unknown backend or hash
// type.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()
	ig := NewIgnore(cfg.IgnoreRegex, cfg.IgnoreGlob, cfg.Log)
	backends, err := cfg.backends(ig)
	if err != nil {
		return nil, err
	}

	h, err := newHasher(cfg.HashType, cfg.Now)
	if err != nil {
		return nil, err
	}

	return &Server{
		cfg:      cfg,
		log:      cfg.Log,
		backends: backends,
		hasher:   h,
		recv:     newReceiver(&cfg),
		slots:    make(chan struct{}, cfg.MaxConcurrent),
		cached:   map[listKey]*cachedList{},
		times:    map[string]map[string]int64{},
	}, nil
}

// Call answers one request of the minion id, which the caller has authenticated. The result is the
// answer. It may share memory with caches, so the caller must not change it. If a file does not
// exist or may not be served, the result is Salt's empty answer, not an error. Call returns an
// error after a disk error, or if ctx ends while the request waits for a disk slot. For an unknown
// command it returns errUnknownCommand.
func (s *Server) Call(ctx context.Context, cmd, id string, load *value.Map) (any, error) {
	if cmd == "_file_envs" {
		back, _ := load.Get("back")
		if load.Bool("sources") {
			out := value.NewMap()
			for _, b := range s.chooseBackends(back) {
				out.Set(b.Name(), value.List(b.Envs()))
			}
			return out, nil
		}

		return value.List(s.envsOf(back)), nil
	}

	leave, err := s.waitTurn(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer leave()

	v, err := s.dispatch(ctx, cmd, id, load)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}

	return v, nil
}

// waitTurn waits for a disk slot. The caller must call leave to free the slot.
func (s *Server) waitTurn(ctx context.Context, cmd string) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: waiting for a turn: %w", cmd, ctx.Err())
	}
}

func (s *Server) dispatch(ctx context.Context, cmd, id string, load *value.Map) (any, error) {
	switch cmd {
	case "_file_list":
		return s.answerList(ctx, id, load, func(c *cachedList) []any { return c.files })
	case "_file_list_emptydirs":
		return s.answerList(ctx, id, load, func(c *cachedList) []any { return c.emptyDirs })
	case "_dir_list":
		return s.answerList(ctx, id, load, func(c *cachedList) []any { return c.dirs })
	case "_symlink_list":
		return s.symlinks(ctx, id, load)
	case "_file_find":
		return s.findFile(ctx, load)
	case "_file_hash":
		sum, _, err := s.hashAndStat(ctx, load)
		return sum, err
	case "_file_hash_and_stat":
		sum, stat, err := s.hashAndStat(ctx, load)
		return []any{sum, stat}, err
	case "_serve_file":
		c, missing, err := s.openChunk(ctx, load)
		if c == nil {
			return missing, err
		}
		defer c.file.Close()
		return c.asMap()
	case "_file_recv":
		return s.Recv(ctx, id, load)
	}

	return nil, errUnknownCommand
}

// chooseBackends returns the backends that selection denotes by Salt's rules. selection is a list,
// or a text with commas. If all names start with a minus sign, chooseBackends returns the enabled
// backends except those (Fileserver.backends).
func (s *Server) chooseBackends(selection any) []Backend {
	var names []string
	switch v := selection.(type) {
	case string:
		if v != "" {
			names = strings.Split(v, ",")
		}
	case []any:
		for _, x := range v {
			if t, ok := textOf(x); ok {
				names = append(names, t)
			}
		}
	}

	if len(names) == 0 {
		return s.backends
	}

	for i, n := range names { // accept names from before 2018.3
		switch strings.TrimPrefix(n, "-") {
		case "git", "minion":
			names[i] += "fs"
		}
	}

	subtract := !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "-") })
	var out []Backend
	for _, b := range s.backends {
		if subtract != slices.Contains(names, map[bool]string{true: "-"}[subtract]+b.Name()) {
			out = append(out, b)
		}
	}

	return out
}

func (s *Server) envsOf(back any) (out []string) {
	for _, b := range s.chooseBackends(back) {
		out = append(out, b.Envs()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// queryOf returns the path and the saltenv of a request as a Query. It returns false if the request
// has no valid path or environment.
func queryOf(load *value.Map, needEnv bool) (Query, bool) {
	p := load.Str("path")
	if p == "" {
		return Query{}, false
	}

	env, ok := "base", true
	if v, has := load.Get("saltenv"); has {
		env, ok = textOf(v)
	} else if needEnv {
		return Query{}, false
	}

	if !ok {
		return Query{}, false
	}

	return parseQuery(p, env)
}

func (s *Server) findFile(ctx context.Context, load *value.Map) (any, error) {
	if q, ok := queryOf(load, false); ok {
		for _, b := range s.backends {
			f, ok, err := b.Find(ctx, q)
			if err != nil {
				return nil, err
			}
			if ok {
				return value.NewMap("path", f.Path, "rel", f.Rel, "stat", f.statFor(), "back", b.Name()), nil
			}
		}
	}
	return value.NewMap("path", "", "rel", ""), nil
}

func (s *Server) openFile(ctx context.Context, load *value.Map) (Handle, File, bool, error) {
	q, ok := queryOf(load, true)
	if !ok {
		return nil, File{}, false, nil
	}
	for _, b := range s.backends {
		h, f, ok, err := b.Open(ctx, q)
		if ok || err != nil {
			return h, f, ok, err
		}
	}
	return nil, File{}, false, nil
}

func (s *Server) hashAndStat(ctx context.Context, load *value.Map) (sum, stat any, err error) {
	h, f, ok, err := s.openFile(ctx, load)
	if err != nil || !ok {
		return "", nil, err
	}
	defer h.Close()
	hsum, err := s.hasher.sumOf(h, f.Path)
	if err != nil {
		return "", nil, fmt.Errorf("hash %s: %w", f.Path, err)
	}
	return value.NewMap("hash_type", s.hasher.name, "hsum", hsum), f.statFor(), nil
}

// Stats are counters since the start, for metrics.
type Stats struct {
	HashHits, HashMisses uint64
	Busy                 int // requests that are accessing the disk
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.hasher.mu.Lock()
	defer s.hasher.mu.Unlock()
	return Stats{s.hasher.hits, s.hasher.misses, len(s.slots)}
}
