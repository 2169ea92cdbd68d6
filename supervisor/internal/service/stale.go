package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/internal/pause"
)

// staleWait is how long a killed child of an earlier life may take to vanish.
const staleWait = 10 * time.Second

// remember writes the child's process ID and start time to PIDFile. It ignores a failure, which
// only keeps KillStale from finding the child.
func (p *Process) remember(pid int) {
	if p.PIDFile == "" {
		return
	}
	ticks, err := startTicks(pid)
	if err != nil {
		return
	}
	_ = os.WriteFile(p.PIDFile, fmt.Appendf(nil, "%d %s\n", pid, ticks), 0o600)
}

func (p *Process) forget() {
	if p.PIDFile != "" {
		_ = os.Remove(p.PIDFile)
	}
}

// KillStale kills a child of an earlier life, with its group and what KillRest finds: the kernel sent the child SIGTERM
// when that life ended, but the child may be slow or stuck. Call KillStale before each start. The
// recorded start time distinguishes the child from another process with the same ID.
func (p *Process) KillStale(ctx context.Context) error {
	if p.PIDFile == "" {
		return nil
	}

	b, err := os.ReadFile(p.PIDFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an earlier child: %w", err)
	}
	defer p.forget()

	text, ticks, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 1 {
		return nil
	}
	if p.KillRest != nil {
		defer p.KillRest(pid)
	}

	for end := time.Now().Add(staleWait); ; {
		if now, err := startTicks(pid); err != nil || now != ticks {
			return nil
		}

		killGroup(pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if pause.For(ctx, 20*time.Millisecond) != nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("an earlier child, process %d, cannot be killed", pid)
		}
	}
}

// startTicks returns the start time of a running process. A zombie counts as ended.
func startTicks(pid int) (string, error) {
	st, err := statOf(pid)
	if err != nil {
		return "", err
	}
	if st.state == "Z" || st.state == "X" {
		return "", os.ErrProcessDone
	}
	return st.ticks, nil
}
