package fileserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// errUnsupportedBackend means that the configuration names a backend of Salt that this master does
// not implement.
var errUnsupportedBackend = errors.New("file server backend is not supported")

// Config configures a Server. Salt's option names follow in comments. A zero value means Salt's
// default unless a comment says otherwise.
type Config struct {
	Roots       map[string][]string // environment → directories, in order of search (file_roots)
	Backends    []string            // fileserver_backend; empty: roots
	Extra       []Backend           // further backends, which Backends may name
	IgnoreRegex []string            // file_ignore_regex, in Python's syntax
	IgnoreGlob  []string            // file_ignore_glob
	// FollowSymlinks is fileserver_followsymlinks. Salt's default is true, so the caller must set
	// it.
	FollowSymlinks bool
	IgnoreSymlinks bool   // fileserver_ignoresymlinks
	HashType       string // hash_type; empty: sha256
	BufferSize     int    // file_buffer_size in bytes; 0: 1 MiB
	// ListCacheTime is how long a list may be used while its directories do not change. 0 means 20
	// s; a negative value disables the cache.
	ListCacheTime time.Duration
	Cachedir      string         // cachedir: files of minions are below <Cachedir>/minions
	Recv          RecvConfig     // limits on the files that minions may send
	MinionFS      MinionFSConfig // used when Backends names minionfs
	// MaxConcurrent is how many requests may access the disk at once; further requests wait. 0
	// means 64.
	MaxConcurrent int
	// Since returns the time as of which lists for a minion must be current. minion is "" for the
	// master itself. Since may be nil: lists must be as new as the request.
	Since func(minion string) time.Time
	Log   *slog.Logger     // nil: no log
	Now   func() time.Time // nil: time.Now
}

// RecvConfig limits the files that minions may store on the master with cp.push.
type RecvConfig struct {
	Enabled  bool  // file_recv
	MaxSize  int64 // largest size of one file, in bytes (file_recv_max_size is in MiB); 0: 100 MiB
	Quota    int64 // largest size of all files of one minion, in bytes; 0: ten times MaxSize
	MaxFiles int   // largest number of files and directories of one minion; 0: 10,000
}

// MinionFSConfig configures the backend minionfs, which serves the pushed files of minions to other
// minions.
type MinionFSConfig struct {
	Env        string // minionfs_env; empty: base
	Mountpoint string // minionfs_mountpoint, with or without salt://
	// Whitelist is minionfs_whitelist: globs of ids, or regular expressions that match the whole
	// id.
	Whitelist []string
	Blacklist []string // minionfs_blacklist
}

// File is a file that a backend has found. Path is the file's path on the master. Rel is its path
// below the root.
type File struct {
	Path, Rel string
	Stat      Stat
	ModeOnly  bool // minions get only the mode from Stat, as with Salt's gitfs
}

// statFor returns the part of Stat that is sent to minions.
func (f File) statFor() []any {
	if f.ModeOnly {
		return []any{f.Stat[0]}
	}
	return f.Stat.List()
}

// Query is one look-up of a file: a cleaned relative path in an environment.
type Query struct {
	Path    string
	Saltenv string
	Index   int // index of the only root to search; -1: search all roots, in order
}

// Handle is an open regular file.
type Handle interface {
	ReadAt(p []byte, off int64) (int, error)
	Close() error
}

// Backend is one source of files. Methods may be called concurrently.
type Backend interface {
	// Name returns the name of the backend in fileserver_backend.
	Name() string
	// Envs returns the environments.
	Envs() []string
	// Find looks up a file. ok is false if there is none.
	Find(ctx context.Context, q Query) (f File, ok bool, err error)
	// Open works like Find, and also opens the file.
	Open(ctx context.Context, q Query) (h Handle, f File, ok bool, err error)
	// List reads the content of an environment without a cache. It returns nil if the backend does
	// not have the environment.
	List(ctx context.Context, saltenv string) (*Listing, error)
	// Times returns the modification time of every file. Update compares these times.
	Times(ctx context.Context) (map[string]int64, error)
}

// Updater is a backend that must fetch changes.
type Updater interface {
	// Update fetches changes, and reports whether there were any.
	Update(ctx context.Context) (changed bool, err error)
	// Version returns a text that changes whenever the result of List may have changed. A cached
	// list is valid while Version returns the same text.
	Version() string
}

// unsupported lists the backends of Salt that this master does not implement, under all names that
// Salt accepts.
var unsupported = []string{"hg", "hgfs", "svn", "svnfs", "s3fs", "s3", "azurefs", "azure"}

func (c *Config) setDefaults() {
	if len(c.Backends) == 0 {
		c.Backends = []string{"roots"}
	}

	c.HashType = cmp.Or(c.HashType, "sha256")
	if c.BufferSize <= 0 {
		c.BufferSize = 1 << 20
	}

	c.ListCacheTime = cmp.Or(c.ListCacheTime, 20*time.Second)
	if c.Recv.MaxSize <= 0 {
		c.Recv.MaxSize = 100 << 20
	}

	if c.Recv.Quota <= 0 {
		c.Recv.Quota = 10 * c.Recv.MaxSize
	}

	if c.Recv.MaxFiles <= 0 {
		c.Recv.MaxFiles = 10000
	}

	c.MinionFS.Env = cmp.Or(c.MinionFS.Env, "base")
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = 64
	}

	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}

	if c.Since == nil {
		c.Since = func(string) time.Time { return c.Now() }
	}
}

// backends returns the configured backends. Its error contains all faults of the configuration.
func (c *Config) backends(ig *Ignore) (out []Backend, err error) {
	var errs []error
	for _, name := range c.Backends {
		i := slices.IndexFunc(c.Extra, func(b Backend) bool { return b.Name() == name })
		switch {
		case i >= 0:
			out = append(out, c.Extra[i])
		case name == "roots":
			out = append(out, newRoots(c, ig))
		case name == "minionfs" || name == "minion":
			if !c.Recv.Enabled {
				c.Log.Warn("minionfs is configured but file_recv is off: nothing will be served by it")
				continue
			}

			mfs, err := newMinionFS(c, ig)
			if err != nil {
				errs = append(errs, err)
				continue
			}

			out = append(out, mfs)
		case slices.Contains(unsupported, name):
			errs = append(errs,
				fmt.Errorf("%w: %s (roots, gitfs and minionfs are; check the files out below a root instead)",
					errUnsupportedBackend, name))
		default:
			errs = append(errs, fmt.Errorf("%w: unknown name %q", errUnsupportedBackend, name))
		}
	}

	return out, errors.Join(errs...)
}
