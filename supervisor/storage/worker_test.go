package storage

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
)

// TestMain is also the helper that a worker starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "as-helper" && os.Args[2] == "mirror" {
		os.Exit(mirrorChild(os.Args[3:], os.Stdin, os.Stdout, os.Stderr))
	}

	if len(os.Args) > 3 && os.Args[1] == "storage" && os.Args[2] == "helper" {
		os.Exit(HelperMain(os.Args[3:], os.Stdin, os.Stdout, os.Stderr))
	}

	if len(os.Args) > 2 && os.Args[1] == "as-helper" && os.Args[2] == "hangs" {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}

	if len(os.Args) > 1 && os.Args[1] == "as-helper" {
		os.Exit(serveLines(os.Stdin, os.Stdout, func(line []byte) (any, error) {
			switch s := string(line); {
			case strings.Contains(s, "steps"):
				tellSteps(os.Stdout)()
				_, _ = io.Copy(io.Discard, os.Stdin)
			case strings.Contains(s, "hang"):
				_, _ = io.Copy(io.Discard, os.Stdin) // an empty select may be found to be a deadlock
			case strings.Contains(s, "fault"):
				return nil, errors.New("no such luck")
			case strings.Contains(s, "end"):
				_, _ = os.Stderr.WriteString("out of luck\n" + strings.Repeat("x", 1<<20))
				os.Exit(3)
			}

			return map[string]int{"pid": os.Getpid()}, nil
		}))
	}

	os.Exit(m.Run())
}

func TestWorker(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	w := worker{command: []string{self, "as-helper"}}
	defer w.stopChild()
	ask := func(q string, limit time.Duration) (int, error) {
		var r struct{ PID int }
		err := w.ask(context.Background(), limit, q, &r)
		return r.PID, err
	}

	const plenty = time.Minute
	first, err := ask("a", plenty)
	if err != nil || first == 0 {
		t.Fatalf("%d %v", first, err)
	}

	if again, err := ask("b", plenty); err != nil || again != first {
		t.Errorf("another child for the second question: %d, %d, %v", first, again, err)
	}

	if _, err := ask("fault", plenty); err == nil || err.Error() != "no such luck" {
		t.Errorf("a fault came as %v", err)
	}

	_, err = ask("end", plenty)
	if err == nil || !strings.Contains(err.Error(), "exit status 3: out of luck\nx") || len(err.Error()) > 2*maxSaid {
		t.Errorf("a child that ended: %.200v", err)
	}

	if next, err := askUntil(t, func() (int, error) { return ask("c", plenty) }); err != nil || next == first {
		t.Errorf("after the end of a child: %d %v", next, err)
	}

	if _, err := ask("hang", 50*time.Millisecond); !errors.Is(err, errHangs) {
		t.Errorf("a child that hangs: %v", err)
	}

	if _, err := askUntil(t, func() (int, error) { return ask("d", plenty) }); err != nil {
		t.Errorf("after a child that hung and was killed: %v", err)
	}
	if _, err := ask("steps", 50*time.Millisecond); !errors.Is(err, errHangs) {
		t.Errorf("a child that hangs after its first step: %v", err)
	}
}

// nowhere takes what a child would be asked.
type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

// A child may take any time for its answer while it tells that it gets on: a limit for the
// whole of it would be one for how much there is to do.
func TestLongAnswerOfAChildThatGetsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 * time.Minute
		child := &liveChild{
			in:    nowhere{io.Discard},
			lines: make(chan []byte, 1),
			steps: make(chan struct{}, 1),
		}
		heard, out := io.Pipe()
		var both sync.WaitGroup
		both.Go(func() { child.hear(heard) })
		both.Go(func() {
			defer out.Close()
			step := tellSteps(out)
			for pause := range limit / time.Second {
				step()
				step() // at once again: it is not told
				time.Sleep(pause * time.Second)
			}
			if _, err := io.WriteString(out, `{"pid": 7}`+"\n"); err != nil {
				t.Error(err)
			}
		})

		w := worker{child: child}
		var reply struct{ PID int }
		began := time.Now()
		err := w.ask(t.Context(), limit, "a", &reply)
		if took := time.Since(began); err != nil || reply.PID != 7 || took < 10*limit {
			t.Errorf("an answer of many steps: %v after %v, %+v", err, took, reply)
		}
		both.Wait()
	})
}

// askUntil asks again while the last child is being reaped.
func askUntil(t *testing.T, ask func() (int, error)) (n int, err error) {
	t.Helper()
	await.Within(time.Minute, func() bool { n, err = ask(); return err == nil })
	return n, err
}

func TestHelperRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{nil, {"x"}, {"lease"}, {"mirror", "{"}, {"clocks", "a"}, {"copy"}} {
		if code := HelperMain(args, strings.NewReader("{}\n"), io.Discard, io.Discard); code == 0 {
			t.Errorf("%v: exit 0", args)
		}
	}
	var out strings.Builder // not on a volume: nothing is written there
	dir := t.TempDir()
	if code := HelperMain([]string{"lease", dir, "node1"}, strings.NewReader("{}\n"), &out, io.Discard); code != 0 || !strings.Contains(out.String(), "no volume is mounted") {
		t.Errorf("%d %s", code, out.String())
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("written to a local directory: %v", left)
	}
}
