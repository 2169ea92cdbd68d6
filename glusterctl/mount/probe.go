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
)

// Check looks at path from this process and may hang for as long as the file
// system does: it is what the child of a [Prober] runs. writeDir, relative to
// path, is a directory of this node alone where the probe may write; when it
// is "" or does not exist nothing is written.
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
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			h.Text = "write: " + err.Error() // it answers; that it is full is seen from the numbers
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

func failed(what string, err error) Health {
	state := Failed
	for _, e := range []error{unix.ENOTCONN, unix.ECONNABORTED, unix.ESHUTDOWN, unix.EIO} {
		if errors.Is(err, e) {
			state = Stale
		}
	}
	return Health{State: state, Text: what + ": " + err.Error()}
}

func retryInterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeProbe writes one byte, renames and removes it.
func writeProbe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}

	name := f.Name()
	_, err = f.Write([]byte{'.'})
	if cerr := f.Close(); err == nil {
		err = cerr
	}

	if err == nil {
		err = os.Rename(name, name+".r")
	}

	if err != nil {
		_ = os.Remove(name) // it is not renamed; the fault is told
		return err
	}

	return os.Remove(name + ".r")
}

// Main is the child's side: it checks args[0], with args[1] as the directory
// to write in, and prints the result as JSON. It returns the exit status.
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

// Prober asks a child process how a mount is.
type Prober struct {
	Mounter *Mounter
	// Command starts the child, to which the mount point and WriteDir are
	// appended; it has to end in [Main].
	Command  []string
	WriteDir string
	// Timeout after which a mount counts as hung; 0 means 10 s. It has to be
	// longer than the longest stall that is normal when a node is lost (one and
	// a half times the ping timeout of the volume).
	Timeout time.Duration
	Runner  command.Runner // nil: command.Exec
	// Ask asks a child that stays, and returns within limit: a process that starts
	// costs more than the look. Its error wraps [command.ErrTimeout] when there was
	// no answer in time; after any other one Command is started. nil: always Command.
	Ask func(ctx context.Context, limit time.Duration) (Health, error)

	mu       sync.Mutex
	underWay *probing // under way; nil: none
}

// probing is one probe that several callers may wait for.
type probing struct {
	done   chan struct{}
	health Health // written before done is closed
}

// Probe returns within Timeout and a few seconds, whatever the mount does. Who
// asks while a probe is under way is given its result.
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
	out, err := r.Run(ctx, argv) // ends soon after its context, see command.Runner
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
