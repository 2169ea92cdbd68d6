package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"saltern/cmd/internal/tty"
)

// maxStackFiles bounds how many files with stacks are written in one second.
const maxStackFiles = 10

// stacksOnSignal writes the stacks of all goroutines at each SIGUSR1 until stop is called, so that
// an administrator can see what a hanging master waits for: to stderr if it is a terminal, else to
// salt-debug-TIME.log in the folder for temporary files. Python's master does the same
// (salt/utils/debug.py _handle_sigusr1).
func stacksOnSignal(log *slog.Logger, stderr io.Writer) (stop func()) {
	return onSignal(syscall.SIGUSR1, func() {
		if tty.Is(stderr) {
			if err := writeStacks(stderr); err != nil {
				log.Error("stacks cannot be written", "error", err)
			}
			return
		}

		path, err := saveStacks(os.TempDir(), time.Now())
		if err != nil {
			log.Error("stacks cannot be written", "path", path, "error", err)
			return
		}
		log.Info("stacks are written", "path", path)
	})
}

// saveStacks writes the stacks to a new file in dir, which only the user of this process may read,
// and returns its path. Others may write to dir: saveStacks never opens a file that exists.
func saveStacks(dir string, now time.Time) (path string, err error) {
	name := fmt.Sprintf("salt-debug-%d", now.Unix())
	var file *os.File
	for n := range maxStackFiles {
		path = filepath.Join(dir, name+".log")
		if n > 0 {
			path = filepath.Join(dir, fmt.Sprintf("%s-%d.log", name, n))
		}

		file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return path, err
	}

	return path, errors.Join(writeStacks(file), file.Close())
}

func writeStacks(w io.Writer) error {
	if _, err := fmt.Fprintln(w, "======== Salt Debug Stack Trace ========="); err != nil {
		return err
	}
	if err := pprof.Lookup("goroutine").WriteTo(w, 2); err != nil { // 2: in the form of a panic
		return err
	}
	_, err := fmt.Fprintln(w, "=========================================")
	return err
}

// onSignal calls act at each sig until stop is called. stop waits for a call in progress. Of several
// signals during a call, one is handled afterwards.
func onSignal(sig os.Signal, act func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, sig)
	done := make(chan struct{})
	go func() { // ends when stop closes signals
		defer close(done)
		for range signals {
			act()
		}
	}()

	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
