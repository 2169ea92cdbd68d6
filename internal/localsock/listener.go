package localsock

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is the interval at which a listener looks whether its socket file still exists.
	lookEvery = time.Second
	// drainFor is how long a listener waits for the next connection to a socket whose file was
	// removed. Connections that came before the removal wait in the kernel's queue.
	drainFor = 100 * time.Millisecond
)

// Listener accepts connections to a socket file. If somebody removes the file, for example a
// program that cleans up temporary folders, the listener creates it again within a second or two.
// It leaves the path alone when another file is there, such as the socket of a successor. Its
// methods are safe for concurrent use.
type Listener struct {
	path string
	mode fs.FileMode
	gid  int

	stop    func() // ends watch; may be called repeatedly
	stopped chan struct{}
	watcher sync.WaitGroup

	mu   sync.Mutex
	file fs.FileInfo // the present file
	// sockets holds the socket of the present file last. The files of the other sockets were
	// removed.
	sockets []*net.UnixListener
	closed  bool
}

// Listen creates a socket with this mode at path, and replaces an unused socket there; see [Free].
// The socket also gets the group gid unless gid is -1. Listen creates the socket in a temporary
// folder and renames it, so that it never has a wider mode and the name always exists.
func Listen(path string, mode fs.FileMode, gid int) (*Listener, error) {
	ln, file, err := create(path, mode, gid, os.Rename)
	if err != nil {
		return nil, err
	}

	l := &Listener{
		path:    path,
		mode:    mode,
		gid:     gid,
		stopped: make(chan struct{}),
		file:    file,
		sockets: []*net.UnixListener{ln},
	}
	l.stop = sync.OnceFunc(func() { close(l.stopped) })
	l.watcher.Go(l.watch)

	return l, nil
}

// create binds a socket in a temporary folder beside path, and moves it to path with move. It also
// returns the new socket file, by which watch recognises it.
func create(
	path string,
	mode fs.FileMode,
	gid int,
	move func(from, to string) error,
) (*net.UnixListener, fs.FileInfo, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s-*")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)

	fresh := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}

	ln.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, mode)
	if err == nil && gid >= 0 {
		err = os.Chown(fresh, -1, gid)
	}

	var file fs.FileInfo
	if err == nil {
		file, err = os.Lstat(fresh)
	}

	if err == nil {
		err = move(fresh, path)
	}

	if err != nil {
		_ = ln.Close()
		return nil, nil, err
	}

	return ln, file, nil
}

// moveToFree moves a file to a path and returns an error if the path exists. On a file system that
// cannot check this (NFS, 9p) it replaces the file at the path.
func moveToFree(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return os.Rename(from, to)
	}
	return err
}

// watch creates the socket file again when it is missing, until the listener stops or the path holds
// a file of somebody else.
func (l *Listener) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()

	for {
		select {
		case <-l.stopped:
			return
		case <-tick.C:
		}

		own, err := l.owns()
		switch {
		case err == nil && !own:
			return
		case !errors.Is(err, fs.ErrNotExist):
			continue
		}

		ln, file, err := create(l.path, l.mode, l.gid, moveToFree)
		if err != nil {
			continue // for example, the folder is missing too
		}
		l.adopt(ln, file)
	}
}

// owns reports whether the file at the path is the listener's own.
func (l *Listener) owns() (bool, error) {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	found, err := os.Lstat(l.path)
	return err == nil && os.SameFile(found, file), err
}

// adopt makes ln the socket of the present file, and wakes Accept.
func (l *Listener) adopt(ln *net.UnixListener, file fs.FileInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = ln.Close()
		return
	}
	before := l.sockets[len(l.sockets)-1]
	l.sockets = append(l.sockets, ln)
	l.file = file
	_ = before.SetDeadline(time.Now())
}

// oldest returns the socket to accept from, and whether its file was removed. In that case Accept
// on the socket fails after drainFor.
func (l *Listener) oldest() (ln *net.UnixListener, removed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln = l.sockets[0]
	removed = len(l.sockets) > 1
	if removed && !l.closed {
		_ = ln.SetDeadline(time.Now().Add(drainFor))
	}
	return ln, removed
}

// discard closes ln, whose file was removed.
func (l *Listener) discard(ln *net.UnixListener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sockets) > 1 && l.sockets[0] == ln {
		l.sockets = l.sockets[1:]
		_ = ln.Close()
	}
}

// AcceptUnix returns the next connection.
func (l *Listener) AcceptUnix() (*net.UnixConn, error) {
	for {
		ln, removed := l.oldest()
		c, err := ln.AcceptUnix()
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, os.ErrDeadlineExceeded) && !l.replaced(ln):
			return nil, err
		case removed:
			l.discard(ln)
		}
	}
}

// replaced reports whether another call of AcceptUnix has discarded ln.
func (l *Listener) replaced(ln *net.UnixListener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && l.sockets[0] != ln
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Addr returns the path of the socket file.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Abandon stops creating the socket file again, because a successor is about to have the path. The
// listener still accepts connections.
func (l *Listener) Abandon() {
	l.stop()
	l.watcher.Wait()
}

// Close ends Accept. It does not remove the socket file.
func (l *Listener) Close() error {
	l.Abandon()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true

	var errs error
	for _, ln := range l.sockets {
		errs = errors.Join(errs, ln.Close())
	}
	return errs
}

// Remove removes the socket file, unless a successor has the path, and then closes the listener.
func (l *Listener) Remove() error {
	l.Abandon()
	var err error
	if own, _ := l.owns(); own {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.Close())
}
