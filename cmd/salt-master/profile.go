package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// profileDir is the environment variable that enables profiles. Its value is the folder for the
// profiles. Python's master also starts and ends a profile at SIGUSR2 (salt/utils/debug.py
// enable_sigusr2_handler).
const profileDir = "SALTERN_PROFILE_DIR"

// profileOnSignal handles SIGUSR2 until stop is called: a first signal starts a CPU profile, and a
// second signal ends it and also writes a memory profile and a goroutine profile. If profileDir is
// not set, profileOnSignal does nothing. It never opens a port.
func profileOnSignal(log *slog.Logger) (stop func()) {
	dir := os.Getenv(profileDir)
	if dir == "" {
		return func() {}
	}

	p := profiles{dir: dir}
	stopToggle := onSignal(syscall.SIGUSR2, func() {
		if err := p.toggle(); err != nil {
			log.Error("profile cannot be written", "path", dir, "error", err)
		}
	})

	return func() {
		stopToggle()
		if err := p.end(); err != nil {
			log.Error("profile cannot be written", "path", dir, "error", err)
		}
	}
}

// profiles writes numbered profiles. Only one goroutine uses it.
type profiles struct {
	dir string
	n   int
	cpu *os.File // nil: no CPU profile is running
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

	runtime.GC() // the memory profile shows the state of the last collection
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
