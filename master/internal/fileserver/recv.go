package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"saltern/internal/room"
	"saltern/master/internal/fileserver/regular"
	"saltern/master/value"
)

// maxComponents bounds the number of components of a pushed path. maxUsage bounds the number of
// entries in receiver's table of usage.
const (
	maxComponents = 64
	maxUsage      = 20000
)

// receiver stores the files that minions push, below <cachedir>/minions/<id>/files.
type receiver struct {
	cfg RecvConfig
	dir string
	log *slog.Logger
	now func() time.Time
	// locks are chosen by a hash of the minion's id. A lock keeps concurrent pushes of a minion
	// from exceeding its quota.
	locks [64]sync.Mutex

	mu    sync.Mutex
	usage map[string]*usage
}

// usage is the number and the size of the files that one minion has stored. When a usage is too
// old, Recv counts the minion's files again.
type usage struct {
	bytes   int64
	entries int
	counted time.Time
}

func newReceiver(c *Config) *receiver {
	return &receiver{
		cfg:   c.Recv,
		dir:   filepath.Join(c.Cachedir, "minions"),
		log:   c.Log,
		now:   c.Now,
		usage: map[string]*usage{},
	}
}

// Recv stores one chunk of a file that a minion pushes (_file_recv, salt/master.py). It returns
// false if it refuses the chunk; the minion then stops sending. A minion may repeat chunks, but
// must leave no gap.
func (s *Server) Recv(ctx context.Context, id string, load *value.Map) (bool, error) {
	r := s.recv
	if !r.cfg.Enabled || !validMinionID(id) {
		return false, nil
	}

	name, ok := pushedName(load.List("path"))
	data, okData := load.Bytes("data")
	loc, okLoc := load.Int("loc")
	if !ok || !okData || !okLoc || loc < 0 {
		return false, nil
	}
	if loc > r.cfg.MaxSize || int64(len(data)) > r.cfg.MaxSize-loc {
		r.log.Warn("a pushed file exceeds file_recv_max_size", "minion", id, "path", name, "limit", r.cfg.MaxSize)
		return false, nil
	}

	lock := &r.locks[hashID(id)%uint32(len(r.locks))]
	lock.Lock()
	defer lock.Unlock()

	if err := ctx.Err(); err != nil {
		return false, err
	}

	if err := r.storeChunk(id, name, loc, data); err != nil {
		r.log.Warn("a pushed file is refused", "minion", id, "path", name, "error", err)
		return false, nil
	}

	return true, nil
}

func (r *receiver) storeChunk(id, name string, loc int64, data []byte) error {
	root, err := r.openDir(id)
	if err != nil {
		return err
	}
	defer root.Close()

	use := r.usageOf(id, root)
	var was int64
	entries := 0
	switch fi, err := root.Stat(name); {
	case err == nil:
		if !fi.Mode().IsRegular() {
			return errors.New("the name is taken by something that is not a file")
		}
		was = fi.Size()
	case errors.Is(err, fs.ErrNotExist):
		entries = 1 + strings.Count(name, "/") // an upper bound: some of the directories may exist
	default:
		return err
	}

	if loc > was {
		return fmt.Errorf("offset %d leaves a gap after %d bytes", loc, was)
	}

	grows := loc + int64(len(data)) - was
	if loc > 0 {
		grows = max(grows, 0)
	}

	if grows > 0 && use.bytes+grows > r.cfg.Quota || use.entries+entries > r.cfg.MaxFiles {
		return fmt.Errorf("quota of the minion (%d bytes, %d files) is used up", r.cfg.Quota, r.cfg.MaxFiles)
	}

	if err := room.Check(r.dir, max(grows, 0), int64(entries), room.Usual()); err != nil {
		return err
	}

	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}

	flags := os.O_WRONLY | os.O_CREATE | regular.Flags
	if loc == 0 {
		flags |= os.O_TRUNC
	}

	f, err := root.OpenFile(name, flags, 0o640)
	if err != nil {
		return err
	}

	f, _, err = regular.Check(f)
	if err != nil {
		return err
	}

	_, err = f.WriteAt(data, loc)
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}

	use.bytes += grows
	use.entries += entries
	if err != nil {
		use.counted = time.Time{}
	}

	return err
}

// openDir creates the directory of one minion if it is missing, and opens it.
func (r *receiver) openDir(id string) (*os.Root, error) {
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return nil, err
	}
	all, err := os.OpenRoot(r.dir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := all.MkdirAll(id+"/files", 0o750); err != nil {
		return nil, err
	}
	return all.OpenRoot(id + "/files")
}

// usageOf returns how much a minion has stored. The caller holds the minion's lock.
func (r *receiver) usageOf(id string, root *os.Root) *usage {
	r.mu.Lock()
	u := r.usage[id]
	r.mu.Unlock()

	if u != nil && r.now().Sub(u.counted) < time.Minute {
		return u
	}

	u = &usage{counted: r.now()}

	// The quota bounds the number of entries, so the walk is bounded.
	fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return nil
		}

		u.entries++
		if u.entries > 2*r.cfg.MaxFiles {
			return fs.SkipAll
		}

		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() {
			u.bytes += fi.Size()
		}

		return nil
	})

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.usage) >= maxUsage {
		clear(r.usage)
	}

	r.usage[id] = u
	return u
}

// pushedName joins the components of a pushed path. ok is false if the result is not a relative
// path below the minion's directory.
func pushedName(parts []any) (name string, ok bool) {
	if len(parts) == 0 || len(parts) > maxComponents {
		return "", false
	}

	names := make([]string, len(parts))
	for i, p := range parts {
		s, isText := p.(string)
		if !isText || len(s) > 255 || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00") {
			return "", false
		}

		for _, c := range strings.Split(s, "/") {
			if c == ".." {
				return "", false
			}
		}

		names[i] = s
	}

	joined := strings.Join(names, "/")
	name = path.Clean(joined)
	if len(joined) > maxPath || name == "." || path.IsAbs(name) || !filepath.IsLocal(name) {
		return "", false
	}

	return name, true
}

// validMinionID reports whether an id may be part of a path. Package request has already checked
// the id; this is a second check.
func validMinionID(id string) bool {
	return id != "" && len(id) <= 255 && id != "." && id != ".." && !strings.ContainsAny(id, "/\\\x00\n")
}

func hashID(id string) uint32 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return h
}
