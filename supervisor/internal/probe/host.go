package probe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Disk describes the free space of a file system.
type Disk struct {
	Total, Free   uint64  // bytes; Free: without the part that only root can use
	FreePercent   float64 // Free in percent of Total
	InodesPercent float64 // free inodes in percent; 100 if the file system does not count inodes
	ReadOnly      bool
}

// StatDisk describes the file system that holds path. It blocks while the file system hangs, which
// is most likely for a network file system.
func StatDisk(path string) (Disk, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Disk{}, fmt.Errorf("statfs %s: %w", path, err)
		}

		break
	}

	size := uint64(st.Bsize)
	d := Disk{
		Total:         st.Blocks * size,
		Free:          st.Bavail * size,
		InodesPercent: 100,
		ReadOnly:      st.Flags&unix.ST_RDONLY != 0,
	}

	if st.Blocks > 0 {
		d.FreePercent = 100 * float64(st.Bavail) / float64(st.Blocks)
	}

	if st.Files > 0 {
		d.InodesPercent = 100 * float64(st.Ffree) / float64(st.Files)
	}

	return d, nil
}

// Keys counts the minion keys in a Salt pki directory.
type Keys struct{ Accepted, Pending, Rejected, Denied int }

// CountKeys counts the files in the four key directories. A missing directory counts as empty.
// Files whose names begin with a dot are Salt's own (.key_cache) and do not count.
func CountKeys(pki string) (k Keys, err error) {
	var faults []error
	for name, n := range map[string]*int{
		"minions":          &k.Accepted,
		"minions_pre":      &k.Pending,
		"minions_rejected": &k.Rejected,
		"minions_denied":   &k.Denied,
	} {
		var err error
		if *n, err = countFiles(filepath.Join(pki, name)); err != nil {
			faults = append(faults, err)
		}
	}
	return k, errors.Join(faults...)
}

func countFiles(dir string) (int, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count keys: %w", err)
	}
	defer f.Close()

	n := 0
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if !strings.HasPrefix(name, ".") {
				n++
			}
		}

		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("count keys: %w", err)
		}
	}
}

// PortFree returns nil if a program could listen on address (ip:port). If another program has the
// port, the error names that program, if its name can be found.
func PortFree(address string) error {
	ln, err := net.Listen("tcp", address)
	if err == nil {
		return ln.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on %s: %w", address, shortenError(err))
	}
	if program := holder(address); program != "" {
		return fmt.Errorf("%w: %s is held by %s", errPortInUse, address, program)
	}
	return fmt.Errorf("%w: %s", errPortInUse, address)
}

// errPortInUse is wrapped by [PortFree]'s error when another program listens.
var errPortInUse = errors.New("address in use")

// IsTaken reports whether an error of [PortFree] means that another program has the port.
func IsTaken(err error) bool {
	return errors.Is(err, errPortInUse) || errors.Is(err, syscall.EADDRINUSE)
}

// holder returns the process that listens at address: it finds the socket's inode in
// /proc/net/tcp*, then the process that has this socket open. It returns "" if it finds none.
func holder(address string) string {
	want, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}

	inodes := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := readBounded(file, 8<<20)
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" { // state 0A is LISTEN
				continue
			}
			if got, ok := procAddress(f[1]); ok && cannotShare(want, got) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}

	if len(inodes) == 0 {
		return ""
	}

	return processWith(inodes)
}

// cannotShare reports whether sockets at a and b cannot both listen.
func cannotShare(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && (a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// procAddress parses an address of /proc/net/tcp or tcp6: the IP address as 32-bit numbers in the
// machine's byte order, a colon, the port. It returns false for another form.
func procAddress(s string) (netip.AddrPort, bool) {
	hexIP, hexPort, _ := strings.Cut(s, ":")
	port, err := strconv.ParseUint(hexPort, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}

	raw, err := hex.DecodeString(hexIP)
	if err != nil {
		return netip.AddrPort{}, false
	}

	for word := raw; len(word) >= 4; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}

	ip, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), ok
}

func processWith(inodes map[string]bool) string {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		fds, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue
		}

		for _, fd := range fds {
			if to, err := os.Readlink(p + "/fd/" + fd.Name()); err == nil && inodes[to] {
				comm, _ := readBounded(p+"/comm", 64)
				return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), filepath.Base(p))
			}
		}
	}

	return ""
}

func readBounded(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}
