package keys_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/check"
)

// childDir is the environment variable that makes the test binary run as the process that is
// killed.
const childDir = "SALTERN_TEST_KEYS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		signInUntilKilled(dir, os.Args[len(os.Args)-1])
		return
	}
	os.Exit(m.Run())
}

// signInUntilKilled stores new keys, removes every fifth key, creates files of the keys at the same
// time, and prints each step that was acknowledged.
func signInUntilKilled(dir, run string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}

	s, err := keys.Open(dir,
		keys.OnVolume(keys.Config{
			Create:   true,
			Incoming: "10.0.0.1",
			NoNotify: true,
			Logger:   slog.New(slog.DiscardHandler),
		}))

	fail(err)
	s.FileAfter(0, 20*time.Millisecond, time.Hour)
	go func() { fail(s.Run(context.Background())) }()
	var out sync.Mutex
	say := func(words ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(words...)
	}

	for g := range 8 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("r%s-g%d-i%d", run, g, i)
				fail(s.Swap(id, keys.Entry{}, keys.Accepted, pem(nil, g*1000+i)))
				if i%5 > 0 {
					say("ack", id, g*1000+i)
					continue
				}

				say("removing", id)
				fail(s.Delete(id))
				say("removed", id)
			}
		}()
	}

	select {}
}

// A master that stores and removes new keys is killed at a random moment, again and again. All keys
// that it acknowledged exist, and none of those whose removal it acknowledged.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	state := map[string]string{}
	for run := range 3 {
		cmd := exec.Command(os.Args[0], strconv.Itoa(run))
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		check.Must(t, err)
		check.Must(t, cmd.Start())
		lines := bufio.NewScanner(pipe)
		for kill := 40 + rand.IntN(200); lines.Scan(); kill-- {
			if kill == 0 {
				check.Must(t, cmd.Process.Kill())
			}

			switch f := strings.Fields(lines.Text()); f[0] {
			case "ack":
				state[f[1]] = f[2]
			case "removing", "removed":
				state[f[1]] = f[0]
			default:
				t.Error(lines.Text())
			}
		}

		_ = cmd.Wait() // killed
	}

	// Another master finds what the killed one has left.
	b := master(t, dir, "10.0.0.2")
	countKeys := func(when string) (kept, gone int) {
		for id, want := range state {
			e, ok := b.Lookup(id)
			switch n, err := strconv.Atoi(want); {
			case err == nil && (!ok || e.PEM != pem(t, n)):
				t.Errorf("%s: %s was acknowledged and is %v", when, id, e.State)
			case err == nil:
				kept++
			case want == "removed" && ok:
				t.Errorf("%s: %s was removed and is %v", when, id, e.State)
			case want == "removed":
				gone++
			}
		}

		return kept, gone
	}

	countKeys("before the files")

	// Make a file that was created and not written old enough that another master may replace it.
	left, err := filepath.Glob(filepath.Join(dir, keys.Accepted.Dir(), "*"))
	check.Must(t, err)
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			check.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Minute)))
		}
	}

	check.Must(t, b.FileAll())
	check.Must(t, b.Rescan())
	kept, gone := countKeys("with the files")
	if n := b.Incoming().Waiting; n != 0 {
		t.Errorf("%d keys are not files", n)
	}

	t.Logf("%d keys kept and %d removed in 3 runs", kept, gone)
}
