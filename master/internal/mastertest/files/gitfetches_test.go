package files

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"saltern/master/crypt"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/test/check"
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

// signInMinions returns accepted minions with keys of their own that have signed in. A key is
// two of some primes, since making thousands of primes takes minutes.
func signInMinions(r *mastertest.Master, b *testing.B, count int) (out []*mastertest.Minion) {
	b.Helper()
	var primes []*big.Int
	for i := 0; len(out) < count; i++ {
		p, err := rand.Prime(rand.Reader, 1024)
		check.Must(b, err)
		if new(big.Int).Mod(p, big.NewInt(65537)).Cmp(big.NewInt(1)) == 0 {
			continue // no such exponent
		}

		for _, q := range primes[:min(len(primes), count-len(out))] {
			one := big.NewInt(1)
			phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
			key := &rsa.PrivateKey{
				PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
				D:         new(big.Int).ModInverse(big.NewInt(65537), phi),
				Primes:    []*big.Int{p, q},
			}

			key.Precompute()
			check.Must(b, key.Validate())
			n := &mastertest.Minion{Master: r, ID: fmt.Sprint("m", len(out)), Key: key}
			n.Token, err = crypt.X931Sign(key, []byte("salt"))
			check.Must(b, err)
			check.Must(b, r.Parts.Keys.Put(n.ID, keys.Accepted, mastertest.PublicPEM(b, key)))

			if s := n.SignIn(); s.Str("enc") != "pub" {
				b.Fatalf("%s is not accepted: %v", n.ID, s)
			}

			b.Cleanup(n.HangUp)
			out = append(out, n)
		}

		primes = append(primes, p)
	}

	return out
}

// BenchmarkGitFetches has 2,000 minions, each with a key and a connection of its own,
// list files and read twenty of 4 KiB, in the 60 environments of 20 remotes. Then the
// master fetches from these 10,000 times, of which one in twenty has something new, while
// the minions in turn list files and read one that is new. It tells by what the fetches
// made memory grow; -benchtime 1x.
func BenchmarkGitFetches(b *testing.B) {
	const remotes, fetches, minions = 20, 10_000, 2000
	dir := b.TempDir()
	url, _ := gitrepo.Daemon(b, dir)
	content := func(parts ...any) string { return fmt.Sprintf("%-4096s", fmt.Sprint(parts...)) }
	var ups []*gitrepo.Repo
	var list []string
	for i := range remotes {
		up := gitrepo.New(b, dir, fmt.Sprint("r", i))
		for k := range 3 {
			var files []string
			for f := range 50 {
				files = append(files, fmt.Sprintf("d%d/f%d", i, f), content(i, " ", k, " ", f))
			}
			up.Commit(fmt.Sprintf("e%d-%d", i, k), files...)
		}

		ups, list = append(ups, up), append(list, "'"+url+up.Dir[len(dir)+1:]+"'")
	}

	r := mastertest.Start(b,
		"fileserver_backend: [gitfs]\ngitfs_update_interval: 86400\ngitfs_remotes: ["+strings.Join(list, ", ")+"]\n")
	all := signInMinions(r, b, minions)
	fetch := func(round int) {
		i := round % remotes
		ups[i].Commit(fmt.Sprintf("e%d-0", i), fmt.Sprintf("d%d/f0", i), content("round ", round))
		if _, err := r.Parts.Repos.FetchGit(b.Context(), ""); err != nil {
			b.Fatal(err)
		}

		env := fmt.Sprintf("e%d-0", i)
		for k := range 4 { // each minion once in all
			n := all[(4*round+k)%minions]
			if got := fileFromGit(n, fmt.Sprintf("d%d/f0", i), env); got != content("round ", round) {
				b.Fatalf("round %d: served %.40q", round, got)
			}
			n.Ask("_file_list", "saltenv", fmt.Sprintf("e%d-1", i))
		}
	}

	read := func(i int) (files int) {
		branch, n := i/remotes%3, all[i]
		env := fmt.Sprintf("e%d-%d", i%remotes, branch)
		if got, _ := n.Ask("_file_list", "saltenv", env).([]any); len(got) < 50 {
			b.Fatalf("%d files of %s", len(got), env)
		}

		for f := 1; f <= 20; f++ {
			name := fmt.Sprintf("d%d/f%d", i%remotes, f)
			n.Ask("_file_hash", "path", name, "saltenv", env)
			if got := fileFromGit(n, name, env); got != content(i%remotes, " ", branch, " ", f) {
				b.Fatalf("%s of %s: %.40q", name, env, got)
			}
			files++
		}

		return files
	}

	for b.Loop() {
		round := 0
		for ; round < remotes; round++ { // each has been served
			fetch(round)
		}

		// All minions look for their states, each in one of the sixty environments.
		files, began := 0, cpuTime(b)
		for i := range all {
			files += read(i)
		}

		perFile := (cpuTime(b) - began).Seconds() * 1e3 / float64(files)
		own, children := memoryOf(b)
		b.Logf("%.3f ms of CPU per file; master and minions %d MiB, git cat-file %d MiB", perFile, own>>20,
			children>>20)

		for ; round < remotes+fetches/remotes; round++ {
			fetch(round)
			if round%100 == 0 {
				o, c := memoryOf(b)
				b.Logf("after %d fetches: master and minions %d MiB, git cat-file %d MiB",
					(round-remotes)*remotes, o>>20, c>>20)
			}
		}

		b.ReportMetric(perFile, "CPU-ms/file")
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
