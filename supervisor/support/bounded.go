package support

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of programs that are asked.
const (
	commandTime = 10 * time.Second
	killTime    = time.Second // for one that was killed to end
)

// run gives what a program printed, at most maxFile bytes. One that does not
// end in time is killed; one that does not even end then, since it waits for a
// file system that hangs, is left behind with the goroutine that waits for it.
func run(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "SYSTEMD_COLORS=0"}
	cmd.WaitDelay = killTime
	out := &limited{room: maxFile}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return out.taken(), err
	case <-timer.C:
	case <-ctx.Done():
	}
	_ = cmd.Process.Kill() // it may have ended now
	select {
	case <-ended:
	case <-time.After(2 * killTime):
	}
	return out.taken(), fmt.Errorf("did not end within %s", limit)
}

// limited keeps the beginning of what is written to it.
type limited struct {
	mu   sync.Mutex
	text []byte
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(p), l.room-len(l.text))
	l.text = append(l.text, p[:n]...)
	return len(p), nil
}

// taken gives what was kept; nothing is kept from then on.
func (l *limited) taken() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	l.room = len(text)
	return text
}

// look tells whether a directory answers; it is asked by a child, since a call
// on a file system that hangs cannot be interrupted. One that is not there
// answers.
func look(ctx context.Context, dir string) error {
	_, err := run(ctx, commandTime, "sh", "-c", `for d in "$0" "$0"/pki; do ls -f "$d" >/dev/null 2>&1; done; true`, dir)
	return err
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
