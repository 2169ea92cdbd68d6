package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process holds.
type usage struct {
	fds  int
	pss  int // KiB, proportional share
	anon int // KiB of that which is its own memory, no file's
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, PSS %d KiB (anonymous %d KiB)", u.fds, u.pss, u.anon)
}

// look reads the usage of a process (proc(5), fd and smaps_rollup).
func look(pid int) (usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return usage{}, fmt.Errorf("count descriptors: %w", err)
	}

	f, err := os.Open(dir + "/smaps_rollup")
	if err != nil {
		return usage{}, fmt.Errorf("read memory: %w", err)
	}
	defer f.Close()

	u := usage{fds: len(fds)}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, rest, _ := strings.Cut(sc.Text(), ":")
		n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, "kB")))
		if err != nil {
			continue
		}

		switch name {
		case "Pss":
			u.pss = n
		case "Pss_Anon":
			u.anon = n
		}
	}

	if u.pss == 0 {
		return u, errors.New("read memory: no Pss in smaps_rollup")
	}

	return u, nil
}

// resting looks once a second while the process rests and gives the least it
// held. A single look tells where the collector of garbage stands: what it gives
// back comes and goes by some 400 KiB within two minutes, the time after
// which it runs without need.
func resting(ctx context.Context, pid int, rest time.Duration) (usage, error) {
	var least usage
	for end := time.Now().Add(rest); ; {
		u, err := look(pid)
		if err != nil {
			return u, err
		}

		if least.pss == 0 || u.pss < least.pss {
			least = u
		}

		least.fds = u.fds
		if time.Now().After(end) {
			return least, nil
		}
		if !pause(ctx, time.Second) {
			return least, context.Cause(ctx)
		}
	}
}

// differs says by how much b is above a, in percent.
func differs(a, b int) float64 { return 100 * (float64(b)/float64(a) - 1) }
