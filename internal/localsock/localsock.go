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
