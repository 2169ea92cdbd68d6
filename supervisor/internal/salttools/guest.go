package salttools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"saltern/internal/command"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/internal/probe"
)

// Guest runs Salt's tools with this node's master for other nodes, whose own master does not
// answer.
type Guest struct {
	tools   Tools
	account *syscall.Credential
	master  string
	slots   chan struct{}
}

// NewGuest returns a Guest. master is the request address of this node's master. The tools run
// under account. account may be nil: the account of this process.
func NewGuest(tools Tools, account *syscall.Credential, master string) *Guest {
	return &Guest{tools: tools, account: account, master: master, slots: make(chan struct{}, toolrun.MaxRuns)}
}

// masterTakes is how long the master may take to answer the check that it serves. The asking node
// waits longer.
const masterTakes = 2 * time.Second

var errFull = errors.New("too many tools of other nodes run here already")

// Prepare prepares a run. An error says why this node cannot run the tool now. Otherwise the caller
// must call run once; run writes frames until the tool or ctx has ended.
func (g *Guest) Prepare(ctx context.Context, r toolrun.Request) (run func(context.Context, io.Writer), err error) {
	body, err := r.Encode()
	if err != nil {
		return nil, err
	}

	select {
	case g.slots <- struct{}{}:
	default:
		return nil, errFull
	}

	ctx, cancel := context.WithTimeout(ctx, masterTakes)
	defer cancel()
	if err := probe.Ping(ctx, g.master); err != nil {
		<-g.slots
		if _, unwell := errors.AsType[probe.UnwellError](err); unwell {
			return nil, fmt.Errorf("its master cannot either: %w", err)
		}
		return nil, fmt.Errorf("its master does not answer either: %w", err)
	}

	return func(ctx context.Context, w io.Writer) {
		defer func() { <-g.slots }()
		g.runTool(ctx, string(body), w)
	}, nil
}

// exitNotStarted is Salt's exit code for something that is unavailable.
const exitNotStarted = 69

func (g *Guest) runTool(ctx context.Context, body string, w io.Writer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &frames{w: w, failed: cancel}
	defer f.endFrames()

	beats := time.NewTicker(toolrun.Beat)
	defer beats.Stop()
	ended := make(chan struct{})
	var code int
	var err error
	go func() {
		defer close(ended)
		code, err = g.execTool(ctx, body, f)
	}()

	for {
		select {
		case <-beats.C:
			f.writeFrame(toolrun.Alive, nil)
			continue
		case <-ended:
		}
		break
	}

	if err != nil {
		f.writeFrame(toolrun.Stderr, []byte(err.Error()+"\n"))
		code = exitNotStarted
	}

	f.writeFrame(toolrun.Exit, []byte{byte(code)})
}

// execTool runs the tool to its end. It sends the request to the tool's standard input, because
// every user of the machine can see command lines.
func (g *Guest) execTool(ctx context.Context, body string, f *frames) (code int, err error) {
	run := command.Exec{
		Path:       filepath.Join(filepath.Dir(g.tools.Master), "salt"),
		Env:        g.tools.Env,
		Credential: g.account,
		Stdin:      body,
		Limit:      toolrun.Takes,
		Cut:        true,
		Tee:        part{f, toolrun.Stdout},
		TeeErr:     part{f, toolrun.Stderr},
	}

	out, err := run.Run(ctx, []string{toolrun.Program, g.tools.Config})
	if err == nil && out.Exit < 0 {
		err = errors.New("the tool was ended by a signal")
	}

	return out.Exit, err
}

// frames writes the frames of several goroutines to one reader. After endFrames or a failed write
// it drops all frames.
type frames struct {
	failed func() // called when a write to the reader has failed

	mu    sync.Mutex
	w     io.Writer
	ended bool
}

func (f *frames) writeFrame(k toolrun.Kind, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if err := toolrun.WriteFrame(f.w, k, data); err != nil {
		f.ended = true
		f.failed()
	}
}

func (f *frames) endFrames() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// part is a writer of frames of one kind.
type part struct {
	f    *frames
	kind toolrun.Kind
}

// Write implements [io.Writer]. If the reader is gone, Write drops the output and calls failed,
// which stops the tool.
func (p part) Write(b []byte) (int, error) {
	p.f.writeFrame(p.kind, b)
	return len(b), nil
}
