package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
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

// settled takes the median of several looks, a second apart.
func settled(pid int) (usage, error) {
	var fds, pss, anon []int
	for range 9 {
		u, err := look(pid)
		if err != nil {
			return u, err
		}
		fds, pss, anon = append(fds, u.fds), append(pss, u.pss), append(anon, u.anon)
		time.Sleep(time.Second)
	}
	mid := func(v []int) int { slices.Sort(v); return v[len(v)/2] }
	return usage{mid(fds), mid(pss), mid(anon)}, nil
}

// differs says by how much b is above a, in percent.
func differs(a, b int) float64 { return 100 * (float64(b)/float64(a) - 1) }
