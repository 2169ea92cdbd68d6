// Package mount mounts a GlusterFS volume, keeps it mounted, and reports its health without ever
// waiting for the volume.
//
// A call on a mount whose servers are lost can hang for ever and cannot be interrupted. So this
// process never touches the mount point: [Prober] runs a child that does, and abandons a child that
// does not return. The kernel's own data about the mount comes from /proc/self/mountinfo.
package mount

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/internal/command"
	"saltern/internal/mountinfo"

	"golang.org/x/sys/unix"
)

// FSType is the type of a mounted volume in mountinfo.
const FSType = "fuse.glusterfs"

// State is the state of a mount.
type State string

// States of a mount.
const (
	OK      State = "ok"
	Absent  State = "absent"  // nothing is mounted there
	Foreign State = "foreign" // another file system is mounted there
	Hung    State = "hung"    // the mount does not answer in time
	Stale   State = "stale"   // ENOTCONN or similar: the client process has ended, or has no server
	Failed  State = "failed"  // the mount answers with another error
)

// Health is the state of a mount.
type Health struct {
	State State  `json:"state"`
	Text  string `json:"text,omitempty"`
	// Ended means that the client process of a stale mount has ended, so that the mount cannot
	// recover by itself.
	Ended bool `json:"ended,omitempty"`
	// Latency is the time of a lookup, a write, a rename and a removal together.
	Latency time.Duration `json:"latency,omitempty"`
	// Total and Free are in bytes, Inodes and InodesFree are counts. All four are 0 if they are not
	// known.
	Total      uint64 `json:"total,omitempty"`
	Free       uint64 `json:"free,omitempty"`
	Inodes     uint64 `json:"inodes,omitempty"`
	InodesFree uint64 `json:"inodesFree,omitempty"`
	// Writable reports whether the write of the probe succeeded.
	Writable bool `json:"writable,omitempty"`
	// Layout is the version of the tree on the volume, 0 if there is no tree. Nodes lists the nodes
	// that have directories in the tree.
	Layout int      `json:"layout,omitempty"`
	Nodes  []string `json:"nodes,omitempty"`
}

// Entry is one line of mountinfo.
type Entry struct {
	Point, Type, Source string
	Minor               uint32 // minor number of the device, which is the number of the FUSE connection
}

// findMount returns the topmost mount at point in a mountinfo table (proc(5)), or false if there is
// none.
func findMount(table io.Reader, point string) (Entry, bool, error) {
	var found Entry
	var ok bool
	s := bufio.NewScanner(table)
	s.Buffer(nil, 1<<20)

	for s.Scan() {
		m, isMount := mountinfo.ParseLine(s.Text())
		if !isMount || m.Type == "" || m.Point != point {
			continue
		}

		_, minor, _ := strings.Cut(m.Device, ":")
		n, _ := strconv.ParseUint(minor, 10, 32)
		found = Entry{Point: point, Type: m.Type, Source: m.Source, Minor: uint32(n)}
		ok = true // the last mount is on top
	}

	if err := s.Err(); err != nil {
		return Entry{}, false, fmt.Errorf("read mountinfo: %w", err)
	}

	return found, ok, nil
}

// Mounter mounts and unmounts one volume at one mount point. Several goroutines may call Mount,
// Unmount and SetOthers; the calls run one after the other.
type Mounter struct {
	Runner command.Runner // nil: command.Exec
	Volume string
	Point  string
	// Server is this node's own name. If the server does not answer, the client asks Others for the
	// volume's configuration.
	Server string
	Others []string
	// Options are further mount options, e.g. "log-level=WARNING".
	Options []string
	// Timeout of one command; 0 means 30 s.
	Timeout time.Duration
	// Table opens mountinfo; nil means /proc/self/mountinfo.
	Table func() (io.ReadCloser, error)
	// Prepare creates the mount point before the first mount. nil means a directory to which nobody
	// can write while the volume is not mounted.
	Prepare func(point string) error
	// Connections is the directory of FUSE connections; "" means
	// /sys/fs/fuse/connections.
	Connections string
	// Attach mounts the volume so that the client outlives this process, for example through
	// systemd. nil means mount(8).
	Attach func(ctx context.Context, source, point, options string) error
	// Detach unmounts what Attach has mounted. nil means a lazy umount(8).
	Detach func(ctx context.Context, point string) error
	// Processes is the directory of processes. "" means /proc.
	Processes string

	mu sync.Mutex
}

// SetOthers replaces Others.
func (m *Mounter) SetOthers(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Others = names
}

func (m *Mounter) runCommand(ctx context.Context, argv ...string) error {
	d := m.Timeout
	d = cmp.Or(d, 30*time.Second)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	r := m.Runner
	r = cmp.Or[command.Runner](r, command.Exec{})
	out, err := r.Run(ctx, argv)
	if err != nil {
		return err
	}

	if err := out.Err(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}

	return nil
}

// Entry returns the topmost mount at the mount point, or false if there is none. It does not touch
// the mount.
func (m *Mounter) Entry() (Entry, bool, error) {
	open := m.Table
	if open == nil {
		open = func() (io.ReadCloser, error) { return os.Open(mountinfo.Self) }
	}
	t, err := open()
	if err != nil {
		return Entry{}, false, fmt.Errorf("read mountinfo: %w", err)
	}
	defer t.Close()
	return findMount(t, m.Point)
}

// errForeign is wrapped by the error if another file system is mounted at the mount point.
var errForeign = errors.New("something else is mounted there")

// Mount mounts the volume. If the volume is already mounted, it does nothing. It does not check
// whether the mount answers; [Prober] checks that.
func (m *Mounter) Mount(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok, err := m.Entry()
	if err != nil {
		return err
	}
	if ok {
		if e.Type != FSType || !sameVolume(e.Source, m.Volume) {
			return fmt.Errorf("mount %s: %s of type %s: %w", m.Point, e.Source, e.Type, errForeign)
		}
		return nil
	}

	ready := m.Prepare
	if ready == nil {
		ready = prepare
	}

	if err := ready(m.Point); err != nil {
		return fmt.Errorf("mount volume %s: %w", m.Volume, err)
	}

	opts := append([]string{}, m.Options...)
	if len(m.Others) > 0 {
		opts = append(opts, "backup-volfile-servers="+strings.Join(m.Others, ":"))
	}

	attach := m.Attach
	if attach == nil {
		attach = m.attach
	}

	if err := attach(ctx, m.Server+":/"+m.Volume, m.Point, strings.Join(opts, ",")); err != nil {
		return fmt.Errorf("mount volume %s: %w", m.Volume, err)
	}

	// mount.glusterfs may end with 0 although the client gave up at once.
	if _, ok, err := m.Entry(); err != nil || !ok {
		return errors.Join(fmt.Errorf("mount volume %s: nothing is mounted at %s; see the client's log",
			m.Volume, m.Point),
			err)
	}

	return nil
}

// RemovePoint removes an empty mount point on which nothing is mounted. If the mount point does not
// exist, or may not be removed, RemovePoint returns nil.
func RemovePoint(point string) error {
	d, err := os.OpenFile(point, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the mount point: %w", err)
	}
	defer d.Close()

	if flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS); err == nil && flags&immutable != 0 {
		_ = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags&^immutable)
	}

	err = os.Remove(point)
	for _, harmless := range []error{unix.ENOTEMPTY, unix.EBUSY, unix.EROFS, unix.EPERM, unix.EACCES, unix.ENOENT} {
		if errors.Is(err, harmless) {
			return nil
		}
	}

	return err
}

// attach runs mount(8).
func (m *Mounter) attach(ctx context.Context, source, point, options string) error {
	argv := []string{"mount", "-t", "glusterfs"}
	if options != "" {
		argv = append(argv, "-o", options)
	}
	return m.runCommand(ctx, append(argv, source, point)...)
}

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// prepare creates the mount point. While nothing is mounted, writes to the mount point would go to
// the local disk. To prevent them, the mount point has no permissions and, if the file system
// supports that, is immutable, even for root.
func prepare(point string) error {
	if err := os.MkdirAll(filepath.Dir(point), 0o755); err != nil {
		return fmt.Errorf("make the mount point: %w", err)
	}

	err := os.Mkdir(point, 0)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the mount point: %w", err)
	}

	d, err := os.Open(point)
	if err != nil {
		return nil // without root's rights it cannot be immutable: the missing permissions must suffice
	}
	defer d.Close()

	if flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}

	return nil
}

// sameVolume reports whether source, such as "node1:/cluster", names volume.
func sameVolume(source, volume string) bool {
	_, v, ok := strings.Cut(source, ":")
	return ok && strings.TrimPrefix(v, "/") == volume
}

// Unmount removes the mount even if it hangs. If abort is set, it first aborts the calls that wait
// for the mount: they fail with ENOTCONN or ECONNABORTED. If nothing is mounted, Unmount returns
// nil.
func (m *Mounter) Unmount(ctx context.Context, abort bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range 4 { // mounts can be stacked
		e, ok, err := m.Entry()
		if err != nil || !ok {
			return err
		}
		if e.Type != FSType {
			return fmt.Errorf("unmount %s: %s of type %s: %w", m.Point, e.Source, e.Type, errForeign)
		}

		if abort {
			dir := m.Connections
			dir = cmp.Or(dir, "/sys/fs/fuse/connections")
			// If this file does not exist or cannot be written, killing the client process ends the
			// hanging calls.
			if err := os.WriteFile(fmt.Sprintf("%s/%d/abort", dir, e.Minor), []byte("1"), 0); err != nil {
				m.killClients()
			}
		}

		detach := m.Detach
		if detach == nil {
			detach = func(ctx context.Context, point string) error {
				return m.runCommand(ctx, "umount", "-l",
					"-c", point)
			}
		}

		if err := detach(ctx, m.Point); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Point, err)
		}
	}

	return fmt.Errorf("unmount %s: it is still mounted", m.Point)
}
