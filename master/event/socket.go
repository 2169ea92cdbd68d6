package event

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"saltern/internal/localsock"
)

// File names in sock_dir. The confirming socket (ack) exists only in Saltern. The markers are empty
// files: Salt's tools only check whether they exist (salt/netapi/__init__.py).
const (
	pubName       = "master_event_pub.ipc"
	pullName      = "master_event_pull.ipc"
	ackName       = "master_event_ack.ipc"
	publishMarker = "publish_pull.ipc"
	workersMarker = "workers.ipc"
	maxSocketPath = 107 // size of sun_path without its final zero byte
)

// errInUse means that another master listens on the socket.
var errInUse = errors.New("event: another master is using the socket directory")

// Listen binds a Unix socket with the given mode. It atomically replaces a socket that a crash left
// behind. It returns an error if a process listens on the path, or if the path is no socket.
func Listen(dir, name string, mode fs.FileMode) (*localsock.Listener, error) {
	path := filepath.Join(dir, name)
	if n := len(path); n > maxSocketPath {
		return nil, fmt.Errorf("event socket %s: path has %d bytes, the system allows %d: choose a shorter sock_dir",
			path, n, maxSocketPath)
	}

	if err := localsock.Free(path); errors.Is(err, localsock.ErrInUse) {
		return nil, fmt.Errorf("%w: %s", errInUse, path)
	} else if err != nil {
		return nil, fmt.Errorf("event socket %s: %w", path, err)
	}

	l, err := localsock.Listen(path, mode, -1)
	if err != nil {
		return nil, fmt.Errorf("event socket %s: %w", path, err)
	}

	return l, nil
}

// marker creates an empty file with mode 0600 unless the path exists.
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

// peerUID returns the user who opened the other end of a Unix socket, as the kernel reports it.
func peerUID(c *net.UnixConn) (uint32, error) {
	cred, err := localsock.Peer(c)
	if err != nil {
		return 0, fmt.Errorf("event: %w", err)
	}
	return cred.Uid, nil
}

// mayFire reports whether a user may fire events through a socket: root, the user of this process
// and the users in Config.PullUIDs may.
func (s *Server) mayFire(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(s.cfg.PullUIDs, uid)
}
