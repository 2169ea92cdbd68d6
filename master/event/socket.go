package event

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Names inside sock_dir. The last two are never spoken on; Salt's tools only
// ask whether they exist (salt/netapi/__init__.py).
const (
	pubName        = "master_event_pub.ipc"
	pullName       = "master_event_pull.ipc"
	publishMarker  = "publish_pull.ipc"
	workersMarker  = "workers.ipc"
	maxSocketPath  = 107 // sun_path without its final zero
	temporaryStart = ".tmp."
)

// ErrInUse means that another master answers on the socket.
var ErrInUse = errors.New("event: another master is using the socket directory")

// listen binds a Unix socket with the given mode. The socket is made under a
// temporary name and renamed, so that the path never has a wider mode and a
// socket left over from a crash is replaced in one step. A socket that still
// answers, and anything that is not a socket, is left alone.
func listen(dir, name string, mode fs.FileMode) (*net.UnixListener, error) {
	path := filepath.Join(dir, name)
	if n := len(path); n > maxSocketPath {
		return nil, fmt.Errorf("event socket %s: path has %d bytes, the system allows %d: choose a shorter sock_dir", path, n, maxSocketPath)
	}
	if err := replaceable(path); err != nil {
		return nil, err
	}
	tmp := filepath.Join(dir, temporaryStart+name[len(name)-8:])
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("event socket %s: remove left-over: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("event socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, mode)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		l.Close()
		os.Remove(tmp)
		return nil, fmt.Errorf("event socket %s: %w", path, err)
	}
	return l, nil
}

func replaceable(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("event socket %s: %w", path, err)
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("event socket %s: there is something that is not a socket (%s)", path, st.Mode().Type())
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("%w: %s", ErrInUse, path)
	}
	return nil
}

// marker makes an empty file with mode 0600 if nothing has that name.
func marker(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("event: make marker: %w", err)
	}
	return f.Close()
}

// PeerUID asks the kernel which user opened the other end of a Unix socket
// (SO_PEERCRED, unix(7)).
func PeerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("event: peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return 0, fmt.Errorf("event: peer credentials: %w", err)
	}
	return cred.Uid, nil
}

// mayFire tells whether a user may write to the pull socket: root, the user
// of this process, and those that are configured.
func (s *Server) mayFire(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(s.cfg.PullUIDs, uid)
}
