// Package localsock creates the unix sockets on which the programs of a machine talk to each other.
// The sockets are private from their creation, the kernel identifies callers, and the number of
// connections is bounded.
package localsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse means that another program answers on a socket. It wraps EADDRINUSE.
var ErrInUse = fmt.Errorf("somebody answers there: %w", unix.EADDRINUSE)

// Free returns nil if a socket may be created at path: either the path does not exist, or it is a
// socket on which nobody answers. For a file of another kind it returns an error.
func Free(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("there is something that is not a socket (%s)", st.Mode().Type())
	}

	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil // no process answers: an earlier one has left the socket
	}

	_ = c.Close()
	return ErrInUse
}

// Listen creates a socket with this mode at path, and replaces an unused socket there; see [Free].
// The socket also gets the group gid unless gid is -1. Listen creates the socket in a temporary
// folder and renames it, so that it never has a wider mode and the name always exists. Closing the
// listener does not remove the socket file.
func Listen(path string, mode fs.FileMode, gid int) (*net.UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	fresh := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}

	ln.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, mode)
	if err == nil && gid >= 0 {
		err = os.Chown(fresh, -1, gid)
	}

	if err == nil {
		err = os.Rename(fresh, path)
	}

	if err != nil {
		_ = ln.Close()
		return nil, err
	}

	return ln, nil
}

// Peer returns the credentials of the process that connected; the kernel
// vouches for them (unix(7), SO_PEERCRED).
func Peer(c net.Conn) (cred unix.Ucred, err error) {
	u := Unix(c)
	if u == nil {
		return cred, errors.New("peer credentials: not a unix connection")
	}

	raw, err := u.SyscallConn()
	if err == nil {
		var got *unix.Ucred
		var inner error
		err = raw.Control(func(fd uintptr) {
			got, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		})
		if err = errors.Join(err, inner); err == nil {
			return *got, nil
		}
	}

	return cred, fmt.Errorf("peer credentials: %w", err)
}
