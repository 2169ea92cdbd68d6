package mount

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// clients returns the processes that serve the mount at point: glusterfs with the point as its last
// argument.
func clients(proc, point string) ([]int, error) {
	proc = cmp.Or(proc, "/proc")
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("look for the client of %s: %w", point, err)
	}

	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid < 2 {
			continue
		}

		b, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue
		}

		args := bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0})
		if len(args) > 2 && filepath.Base(string(args[0])) == "glusterfs" && string(args[len(args)-1]) == point {
			out = append(out, pid)
		}
	}

	return out, nil
}

// clientEnded reports whether certainly no process serves this mount.
func (m *Mounter) clientEnded() bool {
	found, err := clients(m.Processes, m.Point)
	return err == nil && len(found) == 0
}

// killClients kills the client process of this mount, which ends every call that waits for it.
func (m *Mounter) killClients() {
	found, _ := clients(m.Processes, m.Point) // if the look-up fails, aborting the connection is enough
	for _, pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
	}
}
