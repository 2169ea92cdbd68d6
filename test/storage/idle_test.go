//go:build e2e

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a cluster costs in which nothing happens, with 2000 files for minions:
// processor time by program, and how much is started.
func TestLongIdle(t *testing.T) {
	h := grown(t)
	for i := 1; i <= 3; i++ {
		h.serving(t, i)
	}

	h.on(t, 1, "sh", "-c",
		`cd /srv/cluster/srv/salt; for d in $(seq 40); do mkdir s$d; for f in $(seq 50); do echo "x: {test.nop: []}" >s$d/f$f.sls; done; done`)
	time.Sleep(40 * time.Second) // what follows a change is over
	const minutes = 2
	type use struct {
		cpu     map[string]float64
		started int
	}

	look := func(i int) use {
		u := use{cpu: map[string]float64{}}
		ns, err := os.Readlink("/proc/" + strings.TrimSpace(h.first(t, i)) + "/ns/pid")
		if err != nil {
			t.Fatal(err)
		}

		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range all {
			if n, err := os.Readlink(p + "/ns/pid"); err != nil || n != ns {
				continue
			}

			b, err := os.ReadFile(p + "/stat")
			if err != nil {
				continue
			}

			open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
			name, f := string(b[open+1:end]), strings.Fields(string(b[end+2:]))
			if name == "glusterfs" {
				cmd, _ := os.ReadFile(p + "/cmdline")
				name = "client"
				if strings.Contains(string(cmd), "glustershd") {
					name = "healing"
				}
			}

			if name == "applianced" {
				cmd, _ := os.ReadFile(p + "/cmdline")
				if w := strings.Split(string(cmd), "\x00"); len(w) > 3 && w[1] == "storage" {
					name = "helper " + w[3]
				} else if len(w) > 1 {
					name = w[1]
				}
			}

			for j, field := range []int{11, 12, 13, 14} {
				n, _ := strconv.ParseFloat(f[field], 64)
				if j < 2 {
					u.cpu[name] += n / 100
				} else {
					u.cpu[name+"'s children"] += n / 100
				}
			}
		}

		f := strings.Fields(h.on(t, i, "cat", "/proc/loadavg"))
		u.started, _ = strconv.Atoi(f[4])
		return u
	}

	var before [4]use
	for i := 1; i <= 3; i++ {
		before[i] = look(i)
	}

	time.Sleep(minutes * time.Minute)
	for i := 1; i <= 3; i++ {
		u := look(i)
		var parts []string
		sum := 0.0
		for name, s := range u.cpu {
			if d := (s - before[i].cpu[name]) / minutes; d > 0 {
				sum += d
				parts = append(parts, fmt.Sprintf("%s %.2f", name, d))
			}
		}

		t.Logf("node%d: %.2f s of CPU a minute (%s), %d processes and threads started", i, sum,
			strings.Join(parts, ", "), (u.started-before[i].started)/minutes)
	}
}

// first gives the first process of machine i.
func (h *hosts) first(t *testing.T, i int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(os.TempDir(), "lab-"+h.name, fmt.Sprint(i), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
