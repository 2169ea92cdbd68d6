package mount

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"saltern/glusterctl/layout"
	"saltern/internal/command"
	"saltern/internal/room"
)

// Check returns the health of the mount at path, which it examines in this process. It may hang as
// long as the file system does, so only the child of a [Prober] calls it. writeDir, relative to
// path, is a directory in which only this node's probe writes. If writeDir is "" or does not exist,
// Check writes nothing.
func Check(path, writeDir string) Health {
	start := time.Now()
	var st unix.Statfs_t
	if err := retryInterrupted(func() error { return unix.Statfs(path, &st) }); err != nil {
		return failed("statfs", err)
	}

	h := Health{State: OK, Inodes: st.Files, InodesFree: st.Ffree}
	h.Total, h.Free = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	tree, err := layout.Read(path)
	if err != nil {
		return failed("read", err)
	}

	h.Layout, h.Nodes = tree.Version, tree.Nodes
	if writeDir != "" {
		switch err := writeProbe(filepath.Join(path, writeDir)); {
		case errors.Is(err, os.ErrNotExist):
		case room.IsFull(err):
			h.Text = "write: " + err.Error() // the mount is not hung; the numbers show whether it is full
		case err != nil:
			f := failed("write", err)
			h.State, h.Text = f.State, f.Text
		default:
			h.Writable = true
		}
	}

	h.Latency = time.Since(start)
	return h
}

func failed(action string, err error) Health {
	state := Failed
	for _, e := range []error{unix.ENOTCONN, unix.ECONNABORTED, unix.ESHUTDOWN, unix.EIO} {
		if errors.Is(err, e) {
			state = Stale
		}
	}
	return Health{State: state, Text: action + ": " + err.Error()}
}

func retryInterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeProbe writes a file of one byte, renames it and removes it.
func writeProbe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}

	name := f.Name()
	_, err = f.Write([]byte{'.'})
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(name, name+".r")
	}

	if err != nil {
		_ = os.Remove(name) // needed after a failed rename, whose error is returned
		return err
	}

	return os.Remove(name + ".r")
}

// Main is the main function of the child: it checks the mount at args[0], writes to the directory
// args[1] if there is one, and prints the result as JSON. It returns the exit status.
func Main(args []string, out io.Writer) int {
	if len(args) == 0 || len(args) > 2 {
		fmt.Fprintln(os.Stderr, "usage: probe PATH [DIRECTORY-TO-WRITE-IN]")
		return 2
	}
	dir := ""
	if len(args) == 2 {
		dir = args[1]
	}
	if err := json.NewEncoder(out).Encode(Check(args[0], dir)); err != nil {
		return 1
	}
	return 0
}

// Prober asks a child process for the health of a mount.
type Prober struct {
	Mounter *Mounter
	// Command is the command of the child, which must call [Main]. Prober appends the mount point
	// and WriteDir to it.
	Command  []string
	WriteDir string
	// Timeout is the time after which a mount is reported as hung. 0 means 10 s. It must be longer
	// than the longest normal stall after the loss of a node, which is one and a half times the
	// ping timeout of the volume.
	Timeout time.Duration
	Runner  command.Runner // nil: command.Exec
	// Ask asks a permanent child instead of starting one, because starting a process costs more
	// than the probe. Ask returns within limit. If no answer came in time, its error wraps
	// [command.ErrTimeout]. After any other error Prober runs Command. Ask may be nil: Prober
	// always runs Command.
	Ask func(ctx context.Context, limit time.Duration) (Health, error)

	mu       sync.Mutex
	underWay *probing // the probe that is running; may be nil
}

// probing is one probe, for which several callers may wait.
type probing struct {
	done   chan struct{}
	health Health // written before done is closed
}

// Probe checks the mount and returns its health. It returns within Timeout and a few seconds, even
// if the mount hangs. If another caller is probing already, Probe returns the result of that probe.
func (p *Prober) Probe(ctx context.Context) Health {
	p.mu.Lock()
	if one := p.underWay; one != nil {
		p.mu.Unlock()
		select {
		case <-one.done:
			return one.health
		case <-ctx.Done():
			return Health{State: Failed, Text: ctx.Err().Error()}
		}
	}

	one := &probing{done: make(chan struct{})}
	p.underWay = one
	p.mu.Unlock()

	one.health = p.probeOnce(ctx)
	if one.health.State == Stale {
		one.health.Ended = p.Mounter.clientEnded()
	}

	p.mu.Lock()
	p.underWay = nil
	p.mu.Unlock()

	close(one.done)
	return one.health
}

func (p *Prober) probeOnce(ctx context.Context) Health {
	e, ok, err := p.Mounter.Entry()
	switch {
	case err != nil:
		return Health{State: Failed, Text: err.Error()}
	case !ok:
		return Health{State: Absent}
	case e.Type != FSType || !sameVolume(e.Source, p.Mounter.Volume):
		return Health{State: Foreign, Text: fmt.Sprintf("%s, %s", e.Source, e.Type)}
	}

	timeout := p.Timeout
	timeout = cmp.Or(timeout, 10*time.Second)
	hung := Health{State: Hung, Text: fmt.Sprintf("no answer within %v", timeout)}
	if p.Ask != nil {
		h, err := p.Ask(ctx, timeout)
		switch {
		case err == nil && h.State != "":
			return h
		case ctx.Err() != nil:
			return Health{State: Failed, Text: ctx.Err().Error()}
		case errors.Is(err, command.ErrTimeout):
			return hung
		}
	}

	var r command.Runner = command.Exec{MaxOutput: 64 << 10}
	if p.Runner != nil {
		r = p.Runner
	}

	argv := append(append([]string{}, p.Command...), p.Mounter.Point)
	if p.WriteDir != "" {
		argv = append(argv, p.WriteDir)
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := r.Run(ctx, argv) // Run ends soon after its context, see command.Runner
	if err != nil {
		if errors.Is(err, command.ErrTimeout) {
			return hung
		}
		return Health{State: Failed, Text: err.Error()}
	}

	var h Health
	if err := json.Unmarshal(out.Stdout, &h); err != nil || h.State == "" {
		return Health{State: Failed, Text: fmt.Sprintf("the probe said nothing of use (exit %d)", out.Exit)}
	}

	return h
}
