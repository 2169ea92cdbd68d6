package jobs

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

	"saltern/master/history"
	"saltern/test/await"
	"saltern/test/check"
)

// childDir tells the test binary to be the process that is killed.
const childDir = "SALTERN_TEST_JOBS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(dir, os.Args[len(os.Args)-1])
		return
	}
	os.Exit(m.Run())
}

// historyArchive is the archive of a cache in a real history.
type historyArchive struct{ *history.Store }

func (h historyArchive) Add(a Archived) error {
	return h.Append(history.Run{Minion: a.Minion, JID: a.JID, Time: a.Time, Return: a.Return})
}

func openHistory(dir string) (historyArchive, error) {
	store, err := history.Open(history.Config{Dir: dir + ".history"})
	return historyArchive{store}, err
}

// writeUntilKilled saves returns from many goroutines and prints each that
// was acknowledged.
func writeUntilKilled(dir, run string) {
	archive, err := openHistory(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	c, err := Open(Config{
		Dir:          dir,
		SegmentBytes: 32 << 10,
		Archive:      archive,
		Files:        os.Getenv("SALTERN_TEST_JOB_FILES") != "",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}

	var out sync.Mutex
	for g := range 16 {
		go func() {
			for i := 0; ; i++ {
				jid := FromTime(time.Unix(int64(i%7), 0))
				id := fmt.Sprintf("r%s-g%d-i%d", run, g, i)
				stored, err := c.SaveReturn(context.Background(), ret(jid, id, strings.Repeat(id, 1+i%40)))
				out.Lock()
				if err != nil || !stored {
					fmt.Println("error", stored, err)
				} else {
					fmt.Println("ack", jid, id, 1+i%40)
				}
				out.Unlock()
			}
		}()
	}

	select {}
}

// A process that saves returns is killed at a random moment, again and again. All returns that it
// acknowledged are found, complete.
func TestKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	acked := map[string]string{} // minion → jid and repeats
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("SALTERN_TEST_KILLS")); err == nil {
		kills = n
	}
	for run := range kills {
		cmd := exec.Command(os.Args[0], strconv.Itoa(run))
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		check.Must(t, err)
		check.Must(t, cmd.Start())

		// The process prints its first line after start and replay; kill it only after that.
		lines := bufio.NewScanner(pipe)
		for n := 0; lines.Scan(); n++ {
			if n == 0 {
				time.AfterFunc(time.Duration(20+rand.IntN(120))*time.Millisecond, func() { cmd.Process.Kill() })
			}

			f := strings.Fields(lines.Text())
			if len(f) == 4 && f[0] == "ack" {
				acked[f[2]] = f[1] + " " + f[3]
			} else if f[0] == "error" {
				t.Error(lines.Text())
			}
		}

		cmd.Wait()
	}

	if len(acked) < 100 {
		t.Fatalf("only %d returns were acknowledged", len(acked))
	}

	archive, err := openHistory(dir)
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, archive.Close()) })
	c := open(t, Config{Dir: dir, Archive: archive})
	lost := 0
	for i := range 7 {
		jid := FromTime(time.Unix(int64(i), 0))
		got, err := c.Returns(await.Context(t), jid)
		check.Must(t, err)
		for id, want := range acked {
			f := strings.Fields(want)
			if f[0] != jid {
				continue
			}

			n, _ := strconv.Atoi(f[1])
			if m := got.Map(id); m == nil || m.Str("return") != strings.Repeat(id, n) {
				lost++
			}
		}
	}

	t.Logf("%d acknowledged returns in %d runs, %d lost", len(acked), kills, lost)
	twice := 0
	for i := range 7 {
		seen := map[string]bool{}
		check.Must(t, c.home.each(FromTime(time.Unix(int64(i), 0)), returnHeads, func(r *record) {
			if seen[r.id] {
				twice++
			}
			seen[r.id] = true
		}))
	}
	flushed(t, c)
	inHistory := map[string]int{}
	for from := history.Cursor(""); ; {
		page, err := archive.Query(await.Context(t), history.Filter{}, 1000, from)
		check.Must(t, err)
		for _, run := range page.Runs {
			inHistory[run.Minion]++
		}
		if from = page.Next; from == "" {
			break
		}
	}
	for id := range acked {
		if inHistory[id] != 1 {
			t.Errorf("the return of %s is %d times in the history", id, inHistory[id])
		}
	}
	if twice > 0 {
		t.Errorf("%d returns are there twice", twice)
	}
	if lost > 0 {
		t.Errorf("%d of %d lost", lost, len(acked))
	}
}
