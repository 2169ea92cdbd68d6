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

// errUnsupportedBackend means that the configuration names a file server backend that this master
// does not have.
var errUnsupportedBackend = errors.New("file server backend is not supported")

// Config configures a Server. Names in brackets are Salt's options; the zero value of a field is
// Salt's default unless said otherwise.
type Config struct {
	Roots          map[string][]string // environment → directories, in order of search (file_roots)
	Backends       []string            // fileserver_backend; empty: roots
	Extra          []Backend           // further backends, found by their Name
	IgnoreRegex    []string            // file_ignore_regex, Python syntax
	IgnoreGlob     []string            // file_ignore_glob
	FollowSymlinks bool                // fileserver_followsymlinks; Salt's default is true, so set it
	IgnoreSymlinks bool                // fileserver_ignoresymlinks
	HashType       string              // hash_type; empty: sha256
	BufferSize     int                 // file_buffer_size in bytes; 0: 1 MiB
	// ListCacheTime is how long a list is kept whose directories do not change; 0: 20 s, negative:
	// not at all.
	ListCacheTime time.Duration
	Cachedir      string         // cachedir: files of minions are below <Cachedir>/minions
	Recv          RecvConfig     // Recv limits what minions may send.
	MinionFS      MinionFSConfig // used when Backends names minionfs
	// MaxConcurrent is how many requests touch the disk at once; others wait; 0: 64.
	MaxConcurrent int
	// Since returns how new the lists for a minion must be; "" is the master itself. It may be nil:
	// as new as the request.
	Since func(minion string) time.Time
	Log   *slog.Logger     // nil: no log
	Now   func() time.Time // nil: time.Now
}

// RecvConfig limits what minions may store on the master with cp.push.
type RecvConfig struct {
	Enabled  bool  // file_recv
	MaxSize  int64 // bytes of one file (file_recv_max_size is in MiB); 0: 100 MiB
	Quota    int64 // bytes of all files of one minion; 0: ten times MaxSize
	MaxFiles int   // files and directories of one minion; 0: 10,000
}

// MinionFSConfig exposes pushed files to other minions.
type MinionFSConfig struct {
	Env        string   // minionfs_env; empty: base
	Mountpoint string   // minionfs_mountpoint, with or without salt://
	Whitelist  []string // minionfs_whitelist: globs or whole-match expressions of ids
	Blacklist  []string // minionfs_blacklist
}

// File is a file found by a backend. Path is on the master, Rel below its root.
type File struct {
	Path, Rel string
	Stat      Stat
	ModeOnly  bool // ModeOnly: minions get only the mode of Stat, as from Salt's gitfs.
}

// statFor returns the part of Stat that minions get.
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
	Index   int // only this root of the environment; -1: all, in order
}

// Handle is an open regular file.
type Handle interface {
	ReadAt(p []byte, off int64) (int, error)
	Close() error
}

// Backend is one source of files. Methods may be called concurrently.
type Backend interface {
	// Name is the name in fileserver_backend.
	Name() string
	// Envs lists the environments.
	Envs() []string
	// Find looks a file up. ok is false when there is none.
	Find(ctx context.Context, q Query) (f File, ok bool, err error)
	// Open is Find that also opens the file.
	Open(ctx context.Context, q Query) (h Handle, f File, ok bool, err error)
	// List reads the content of an environment, uncached. It returns nil
	// when the backend does not have the environment.
	List(ctx context.Context, saltenv string) (*Listing, error)
	// Times returns the modification time of every file, for Update.
	Times(ctx context.Context) (map[string]int64, error)
}

// Updater is a backend that must fetch changes.
type Updater interface {
	// Update fetches, and reports whether anything changed.
	Update(ctx context.Context) (changed bool, err error)
	// Version changes when the result of List may have changed. As long as it does not, a list does
	// not age.
	Version() string
}

// unsupported are backends of Salt that this master does not have, by all the names that Salt
// accepts.
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

// backends makes the configured backends. It reports all faults at once.
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
