package writable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
)

// TestWatchHangs: a try that hangs is told of in time, no second one is begun beside it, and
// the program can end meanwhile.
func TestWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Watch{Every: 3 * time.Second, Takes: 4 * time.Second}
		hangs, under, tries := make(chan struct{}), atomic.Int32{}, atomic.Int32{}
		w.Try = func() error {
			if under.Add(1) > 1 {
				t.Error("two at once")
			}

			defer under.Add(-1)
			if tries.Add(1) == 2 {
				<-hangs
			}

			return nil
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()

		time.Sleep(w.Every + w.Takes - time.Second)
		if err := w.Err(); err != nil {
			t.Errorf("too early: %v", err)
		}

		time.Sleep(2 * time.Second)
		if err := w.Err(); !errors.Is(err, ErrHangs) {
			t.Errorf("too late: %v", err)
		}

		time.Sleep(time.Minute)
		if err := w.Err(); !strings.Contains(err.Error(), "a file of 4 KiB was not written in 6") {
			t.Error(err)
		}

		hangs <- struct{}{}
		synctest.Wait()
		if err := w.Err(); err != nil {
			t.Errorf("it answers again: %v", err)
		}

		tries.Store(1) // the next one hangs
		time.Sleep(2 * w.Every)
		cancel()
		<-ended
		close(hangs)
	})
}

// stoppedEnv is set in the process that [TestWatchOfAStoppedProcess] stops.
const stoppedEnv = "SALTERN_TEST_STOPPED"

// TestWatchOfAStoppedProcess: a machine that is stopped while a try is under way, as for a
// snapshot, has no disk that hangs.
func TestWatchOfAStoppedProcess(t *testing.T) {
	if os.Getenv(stoppedEnv) != "" {
		watchStdin()
		return
	}

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), stoppedEnv+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})

	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "trying" {
		t.Fatalf("it says %q: %v", lines.Text(), lines.Err())
	}

	signal := func(s syscall.Signal) {
		t.Helper()
		if err := child.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}

	signal(syscall.SIGSTOP)
	await.Holds(t, 2*stoppedTakes, "it is stopped", func() bool { return true })
	if _, err := in.Write([]byte{1}); err != nil { // the disk has answered meanwhile
		t.Fatal(err)
	}

	signal(syscall.SIGCONT)
	if !lines.Scan() || lines.Text() != "<nil>" {
		t.Errorf("it says %q: %v", lines.Text(), lines.Err())
	}
}

const stoppedTakes = 400 * time.Millisecond

// watchStdin has a byte of standard input for each try, and says what a Watch notes.
func watchStdin() {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{
		Every: time.Hour,
		Takes: stoppedTakes,
		Try: func() error {
			fmt.Println("trying")
			_, err := os.Stdin.Read(make([]byte, 1))
			return err
		},
		Note: func(err error) {
			fmt.Println(err)
			cancel()
		},
	}

	w.Run(ctx)
}
