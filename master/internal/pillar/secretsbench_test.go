package pillar

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// BenchmarkSecrets compiles the pillar of a minion, of a top file, twenty plain SLS and one of #!yaml|gpg with
// five secrets: with Salt's renderer, which is how it was, and with gpg run from Go; both without
// gpg_cache and with it. It measures the CPU time of all programs, gpg and its agent included.
func BenchmarkSecrets(b *testing.B) {
	k := newKeyring(b)
	names := []string{"secret"}
	files := map[string]string{}
	for i := range 20 {
		name := fmt.Sprint("s", i)
		names = append(names, name)
		files["p/"+name+".sls"] = fmt.Sprintf("service%d: {port: %d, tags: [a, b], workers: [{name: w, queue: q}]}\n", i, 8000+i)
	}
	var sls strings.Builder
	sls.WriteString("#!yaml|gpg\n")
	for i := range 5 {
		fmt.Fprintf(&sls, "password%d: %s", i, indented(k.encrypt(fmt.Sprint("secret ", i))))
	}
	files["p/secret.sls"] = sls.String()
	files["p/top.sls"] = "base:\n  '*': [" + strings.Join(names, ", ") + "]\n"
	root := tree(b, files)

	python := python(b)
	inPython := func(cached bool) *Compiler {
		pool := renderer.New(renderer.Config{
			Python:     []string{python},
			MaxWorkers: 1,
			WorkerIdle: time.Hour, // a worker that ends takes its CPU time with it
			Overrides: value.NewMap("root_dir", root, "id", "m", "gpg_keydir", k.home, "gpg_cache", cached,
				"pillar_roots", value.NewMap("base", []any{root + "/p"})),
		})
		b.Cleanup(pool.Close)
		return New(Config{Roots: base(root + "/p"), Renderers: pool})
	}
	inGo := func(ttl time.Duration) *Compiler {
		d := gpg.New(gpg.Config{Keydir: k.home, MustSucceed: true, TTL: ttl})
		b.Cleanup(d.Close)
		return New(Config{Roots: base(root + "/p"), GPG: d})
	}

	const minions = 100
	for _, run := range []struct {
		name     string
		compiler *Compiler
	}{
		{"python", inPython(false)},
		{"go", inGo(0)},
		{"python-cache", inPython(true)},
		{"go-cache", inGo(time.Hour)},
	} {
		b.Run(run.name, func(b *testing.B) {
			compile(b, run.compiler, Request{ID: "first", Grains: benchGrains(0)}) // Python and the agent start
			before := k.cpuTimeOfAll()
			begun := time.Now()
			pillars := 0
			for b.Loop() {
				for i := range minions {
					p := compile(b, run.compiler, Request{ID: fmt.Sprint("m", i), Grains: benchGrains(i)})
					if p.Str("password4") != "secret 4" {
						b.Fatal(plainText(p))
					}
					pillars++
				}
			}
			b.ReportMetric(float64((k.cpuTimeOfAll()-before).Microseconds())/1000/float64(pillars), "cpu-ms/pillar")
			b.ReportMetric(float64(time.Since(begun).Microseconds())/1000/float64(pillars), "ms/pillar")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTimeOfAll is the time that this process, all below it and the agents of the keyring have computed, with
// that of programs that have ended.
func (k *keyring) cpuTimeOfAll() time.Duration {
	k.t.Helper()
	var self, ended syscall.Rusage
	for who, usage := range map[int]*syscall.Rusage{syscall.RUSAGE_SELF: &self, syscall.RUSAGE_CHILDREN: &ended} {
		if err := syscall.Getrusage(who, usage); err != nil {
			k.t.Fatal(err)
		}
	}
	sum := time.Duration(self.Utime.Nano() + self.Stime.Nano() + ended.Utime.Nano() + ended.Stime.Nano())

	parents := map[int]bool{os.Getpid(): true}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for range 3 { // this process, the first Python, its workers, their programs
		for _, path := range stats {
			text, _ := os.ReadFile(path)
			command, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			_, rest, _ := strings.Cut(string(text), ") ")
			fields := strings.Fields(rest)
			if len(fields) < 15 || parents[pid] {
				continue
			}

			parent, _ := strconv.Atoi(fields[1])
			agent := bytes.HasPrefix(command, []byte("gpg-agent")) && bytes.Contains(command, []byte(k.home))
			if !parents[parent] && !agent {
				continue
			}
			parents[pid] = true
			for _, field := range fields[11:15] { // utime, stime, and those of children that have ended
				ticks, _ := strconv.Atoi(field)
				sum += time.Duration(ticks) * 10 * time.Millisecond
			}
		}
	}
	return sum
}
