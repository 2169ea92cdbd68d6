package git

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// killOrphanFetches kills the fetches below dir that an earlier process left running when it was
// killed. Each such fetch leads its own process group. killOrphanFetches returns when the fetches
// have ended, because no new fetch may start before that.
func killOrphanFetches(dir string) {
	mark := []byte("--git-dir=" + filepath.Join(dir, "remotes") + "/")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		found := false
		list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range list {
			line, err := os.ReadFile(path)
			if err != nil || !bytes.HasPrefix(line, []byte("git\x00")) ||
				!bytes.Contains(line, append([]byte{0}, mark...)) {
				continue
			}

			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil || pid <= 1 || pid == os.Getpid() {
				continue
			}

			if syscall.Kill(-pid, syscall.SIGKILL) == nil || syscall.Kill(pid, syscall.SIGKILL) == nil {
				found = true
			}
		}

		if !found {
			return
		}
	}
}
