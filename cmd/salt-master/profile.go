package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// profileDir is the environment variable that allows profiles: a folder for
// them. Python's master starts and ends a profile with SIGUSR2 too
// (salt/utils/debug.py enable_sigusr2_handler).
const profileDir = "SALTERN_PROFILE_DIR"

// profileOnSignal lets SIGUSR2 start a CPU profile, and the next SIGUSR2 end
// it and write one of the memory and one of the goroutines beside it. It does
// nothing unless the environment names a folder. No port is opened.
func profileOnSignal(log *slog.Logger) (stop func()) {
	dir := os.Getenv(profileDir)
	if dir == "" {
		return func() {}
	}

	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGUSR2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := profiles{dir: dir}
		defer p.end()

		for range sig {
			if err := p.toggle(); err != nil {
				log.Error("profile cannot be written", "path", dir, "error", err)
			}
		}
	}()

	return func() {
		signal.Stop(sig)
		close(sig)
		<-done
	}
}

// profiles writes numbered profiles. It is used by one goroutine.
type profiles struct {
	dir string
	n   int
	cpu *os.File // nil: none is running
}

func (p *profiles) create(kind string) (*os.File, error) {
	name := filepath.Join(p.dir, fmt.Sprintf("salt-master-%d-%d.%s", os.Getpid(), p.n, kind))
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

func (p *profiles) toggle() error {
	if p.cpu != nil {
		return p.end()
	}

	p.n++
	f, err := p.create("cpu")
	if err != nil {
		return err
	}

	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return err
	}

	p.cpu = f
	return nil
}

func (p *profiles) end() error {
	if p.cpu == nil {
		return nil
	}

	pprof.StopCPUProfile()
	err := p.cpu.Close()
	p.cpu = nil
	if err != nil {
		return err
	}

	runtime.GC() // the memory profile is of the last collection
	for _, kind := range []string{"heap", "goroutine"} {
		f, err := p.create(kind)
		if err != nil {
			return err
		}

		err = errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
		if err != nil {
			return err
		}
	}

	return nil
}
