// Package proctree measures a process and all its descendants: processor time,
// memory, descriptors and threads, out of proc(5).
package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Usage is what a tree of processes has used and holds.
type Usage struct {
	Procs       int     `json:"procs"`
	Threads     int     `json:"threads"`
	Descriptors int     `json:"descriptors"`
	CPU         float64 `json:"cpu_s"` // with that of children that have ended
	PSS         float64 `json:"pss_mib"`
	RSS         float64 `json:"rss_mib"`
}

// hertz is USER_HZ, which Linux fixes for what it shows to programs.
const hertz = 100

// Fields of /proc/PID/stat behind the name of the program, which may hold
// blanks and parentheses.
const (
	fieldParent  = 1
	fieldUser    = 11 // and three more: system, and both of ended children
	fieldThreads = 17
)

// Look measures the tree below pid. A process that ends meanwhile counts as
// far as it was seen; that pid itself is gone is an error.
func Look(pid int) (Usage, error) {
	var u Usage
	pids, stats, err := tree(pid)
	if err != nil {
		return u, err
	}
	for _, p := range pids {
		if err := u.add(p, stats[p]); err != nil && !gone(err) {
			return u, fmt.Errorf("measure process %d: %w", p, err)
		}
	}
	return u, nil
}

// Pids lists pid and its descendants, parents first.
func Pids(pid int) ([]int, error) {
	pids, _, err := tree(pid)
	return pids, err
}

// tree finds pid and its descendants with their fields of stat.
func tree(pid int) ([]int, map[int][]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, err
	}

	children, stats := map[int][]int{}, map[int][]string{}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}

		fields, err := stat(p)
		if err != nil {
			continue // it has ended
		}

		parent, _ := strconv.Atoi(fields[fieldParent])
		children[parent] = append(children[parent], p)
		stats[p] = fields
	}

	if stats[pid] == nil {
		return nil, nil, fmt.Errorf("there is no process %d", pid)
	}

	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}

	return pids, stats, nil
}

func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= fieldThreads {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

func (u *Usage) add(pid int, stat []string) error {
	u.Procs++
	threads, _ := strconv.Atoi(stat[fieldThreads])
	u.Threads += threads
	for _, f := range stat[fieldUser : fieldUser+4] {
		ticks, _ := strconv.ParseFloat(f, 64)
		u.CPU += ticks / hertz
	}

	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}

	u.Descriptors += len(descriptors)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return err
	}

	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}

		kib, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "Pss:":
			u.PSS += kib / 1024
		case "Rss:":
			u.RSS += kib / 1024
		}
	}

	return nil
}

// gone reports whether err says that a process has ended: its files vanish, or
// a zombie is left that has no memory.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
