package master

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/test/gitrepo"
)

// memoryOf is what this process and the programs that it runs have in memory, in
// bytes.
func memoryOf(b *testing.B) (own, children int64) {
	b.Helper()
	of := func(pid string) int64 {
		text, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			return 0 // it has ended
		}
		m := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB`).FindSubmatch(text)
		if m == nil {
			return 0
		}
		n, _ := strconv.ParseInt(string(m[1]), 10, 64)
		return n << 10
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		b.Fatal("the kernel does not list children")
	}
	for _, l := range lists {
		text, _ := os.ReadFile(l)
		for _, pid := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(name), "cat-file") {
				children += of(pid)
			}
		}
	}
	return of("self"), children
}

// cpuTime is that of this process, in which the master and the minion are.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGitFetches has a master fetch from 20 remotes of three branches each, 60
// environments, 10,000 times, of which one in twenty has something new, while a minion
// lists files and reads one. Then files are listed, and twenty of them read, as often as
// two thousand minions would. It tells what memory has grown by; -benchtime 1x.
func BenchmarkGitFetches(b *testing.B) {
	const remotes, fetches = 20, 10_000
	dir := b.TempDir()
	url, _ := gitrepo.Daemon(b, dir)
	var ups []*gitrepo.Repo
	var list []string
	for i := range remotes {
		up := gitrepo.New(b, dir, fmt.Sprint("r", i))
		for k := range 3 {
			var files []string
			for f := range 50 {
				files = append(files, fmt.Sprintf("d%d/f%d", i, f), fmt.Sprint(i, k, f))
			}
			up.Commit(fmt.Sprintf("e%d-%d", i, k), files...)
		}
		ups, list = append(ups, up), append(list, "'"+url+up.Dir[len(dir)+1:]+"'")
	}
	r := startMaster(b, "fileserver_backend: [gitfs]\ngitfs_update_interval: 86400\ngitfs_remotes: ["+strings.Join(list, ", ")+"]\n")
	n := r.accepted("min1", "min6")
	fetch := func(round int) {
		i := round % remotes
		ups[i].Commit(fmt.Sprintf("e%d-0", i), fmt.Sprintf("d%d/f0", i), fmt.Sprint("round ", round))
		if _, err := r.m.repos.FetchGit(b.Context(), ""); err != nil {
			b.Fatal(err)
		}
		env := fmt.Sprintf("e%d-0", i)
		if got := n.gitFile(fmt.Sprintf("d%d/f0", i), env); got != fmt.Sprint("round ", round) {
			b.Fatalf("round %d: served %q", round, got)
		}
		n.ask("_file_list", "saltenv", fmt.Sprintf("e%d-1", i))
	}
	for b.Loop() {
		round := 0
		for ; round < remotes; round++ { // each has been served
			fetch(round)
		}
		own, children := memoryOf(b)
		for ; round < remotes+fetches/remotes; round++ {
			fetch(round)
			if round%100 == 0 {
				o, c := memoryOf(b)
				b.Logf("after %d fetches: master %d MiB, git cat-file %d MiB", (round-remotes)*remotes, o>>20, c>>20)
			}
		}
		// Two thousand minions look for their states, each in one of the sixty environments.
		files, began := 0, cpuTime(b)
		for i := range 2000 {
			env := fmt.Sprintf("e%d-%d", i%remotes, 1+i/remotes%2)
			if got, _ := n.ask("_file_list", "saltenv", env).([]any); len(got) < 50 {
				b.Fatalf("%d files of %s", len(got), env)
			}
			for f := range 20 {
				name := fmt.Sprintf("d%d/f%d", i%remotes, f)
				n.ask("_file_hash", "path", name, "saltenv", env)
				if got := n.gitFile(name, env); got != fmt.Sprint(i%remotes, 1+i/remotes%2, f) {
					b.Fatalf("%s of %s: %q", name, env, got)
				}
				files++
			}
		}
		b.ReportMetric((cpuTime(b)-began).Seconds()*1e3/float64(files), "CPU-ms/file")
		o, c := memoryOf(b)
		b.ReportMetric(float64(own>>20), "MiB-before")
		b.ReportMetric(float64(o>>20), "MiB-after")
		b.ReportMetric(float64(children>>20), "MiB-git-before")
		b.ReportMetric(float64(c>>20), "MiB-git-after")
		if grown := o + c - own - children; grown > 64<<20 {
			b.Errorf("memory has grown by %d MiB", grown>>20)
		}
	}
}
