package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The lease says who changes the pool. It is a lock (flock) on one file of the
// volume, held by a child of the node that has it. A lock on GlusterFS ends on
// the side of the bricks about six to ten seconds after its node was lost
// (glusterctl.DefaultTimers), and the holder is not told. So the child takes
// its lock again each time it is asked, and the holder counts on it for
// leaseFor from the moment it asked: less than the lock lives.
const (
	leaseFile  = ".storage-lease"
	leaseEvery = time.Second
	leaseFor   = 4 * time.Second
)

// lease is the parent's side.
type lease struct {
	child worker

	mu     sync.Mutex
	until  time.Time // the lease is ours until then
	holder string    // as the file says
}

type leaseReply struct {
	Held   bool   `json:"held"`
	Holder string `json:"holder"`
}

// keep asks for the lease until ctx ends. wanted tells whether this node may
// have it now.
func (l *lease) keep(ctx context.Context, wanted func() bool) {
	defer l.child.close()
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for {
		if wanted() {
			asked := time.Now()
			var r leaseReply
			err := l.child.ask(ctx, leaseFor, struct{}{}, &r)
			l.mu.Lock()
			switch {
			case err != nil:
				l.holder = ""
			case r.Held:
				l.until, l.holder = asked.Add(leaseFor), r.Holder
			default:
				l.until, l.holder = time.Time{}, r.Holder
			}
			l.mu.Unlock()
		} else {
			l.child.close() // gives the lock back
			l.mu.Lock()
			l.until, l.holder = time.Time{}, ""
			l.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// held tells whether this node has the lease at this moment, and who else.
func (l *lease) held() (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until), l.holder
}

// leaseChild serves questions for the lease: args are the mount point and this
// node's name.
func leaseChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}
	path, self := filepath.Join(args[0], leaseFile), args[1]
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	named := false
	return serve(in, out, func([]byte) (any, error) {
		if f == nil {
			if err := onVolume(args[0]); err != nil {
				return nil, err
			}
			var err error
			if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
				return nil, fmt.Errorf("open the lease: %w", err)
			}
		}
		err := retryIntr(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		if errors.Is(err, unix.EWOULDBLOCK) {
			named = false
			return leaseReply{Holder: readHolder(path)}, nil
		}
		if err != nil {
			f.Close()
			f, named = nil, false
			return nil, fmt.Errorf("lock the lease: %w", err)
		}
		if !named {
			b, err := json.Marshal(leaseReply{Holder: self})
			if err == nil {
				_, err = f.WriteAt(append(b, []byte(strings.Repeat(" ", 300-len(b)))...), 0)
			}
			if err != nil {
				return nil, fmt.Errorf("write the lease: %w", err)
			}
			named = true
		}
		return leaseReply{Held: true, Holder: self}, nil
	})
}

func readHolder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	var r leaseReply
	if err != nil || json.Unmarshal(b, &r) != nil || len(r.Holder) > 255 {
		return ""
	}
	return r.Holder
}

func retryIntr(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// onVolume refuses a path that is not the root of a mounted volume: what is
// written there would land on the local disk.
func onVolume(path string) error {
	var st unix.Statfs_t
	if err := retryIntr(func() error { return unix.Statfs(path, &st) }); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Type != unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("no volume is mounted at %s", path)
	}
	return nil
}
