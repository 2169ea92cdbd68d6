package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/internal/command"
)

// worker runs a child process that touches the volume on behalf of this process, and sends it one
// request at a time. If the child does not answer in time, the worker kills it. A child that hangs
// in the kernel ends only when the volume answers or its connection is aborted, and the worker
// starts no other child until then.
type worker struct {
	command []string

	mu     sync.Mutex // held while a request is under way
	child  *liveChild
	reaped chan struct{} // closed when a killed child has ended; nil: there is none

	stuckMu    sync.Mutex
	stuckSince time.Time // when the child that has not ended yet was killed; zero: there is none
}

// hangsFor returns for how long a killed child has been unable to end because it is inside a call
// on the volume. It returns 0 if there is no such child.
func (w *worker) hangsFor() time.Duration {
	w.stuckMu.Lock()
	defer w.stuckMu.Unlock()
	if w.stuckSince.IsZero() {
		return 0
	}
	return time.Since(w.stuckSince)
}

func (w *worker) setStuck(t time.Time) {
	w.stuckMu.Lock()
	defer w.stuckMu.Unlock()
	w.stuckSince = t
}

type liveChild struct {
	cmd   *exec.Cmd
	said  *command.Head // output of the child on its standard error
	in    io.WriteCloser
	lines chan []byte
	steps chan struct{} // gets a value when the child reports progress
	done  chan struct{} // closed when the child has ended
}

// errHangs is wrapped by the error of ask when this child or an earlier one hangs on the volume.
var errHangs = errors.New("the volume does not answer")

// errStuck means that the request was not sent, because an earlier child still hangs.
var errStuck = fmt.Errorf("%w: an earlier call has not returned", errHangs)

const (
	maxAnswer = 1 << 20 // bytes of one line of an answer
	maxSaid   = 1 << 10 // bytes of a child's standard error that are kept
)

// ask sends question to the child and decodes its answer into reply. A child that fails answers
// {"error": …}, and ask returns that error. limit is how long the child may make no progress. A
// child that reports its steps may take longer in total.
func (w *worker) ask(ctx context.Context, limit time.Duration, question, reply any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reaped != nil {
		select {
		case <-w.reaped:
			w.reaped = nil
		default:
			return errStuck
		}
	}

	if w.child == nil {
		var err error
		if w.child, err = startChild(w.command); err != nil {
			return err
		}
	}

	q, err := json.Marshal(question)
	if err != nil {
		return err
	}

	sent := make(chan error, 1)
	live := w.child
	go func() {
		_, err := live.in.Write(append(q, '\n'))
		sent <- err
	}()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-live.lines:
			<-sent
			return w.decodeAnswer(line, ok, reply)
		case <-live.steps:
			timer.Reset(limit)
		case <-timer.C:
			w.killChild()
			return fmt.Errorf("%w: no answer within %v", errHangs, limit)
		case <-ctx.Done():
			w.killChild()
			return ctx.Err()
		}
	}
}

// passHangs is how long a pass that copies may make no progress. The pass as a whole has no limit:
// a pass that was stopped because it took long would start over for ever.
const passHangs = 2 * time.Minute

// askOnce starts a child, waits for its answer to an empty request, and ends it. The child may take
// any time while it reports progress.
func askOnce(ctx context.Context, argv []string, reply any) error {
	w := worker{command: argv}
	defer w.finish()
	return w.ask(ctx, passHangs, struct{}{}, reply)
}

// decodeAnswer decodes the line that a child answered. If received is false, the child ended
// without an answer: decodeAnswer then kills it and returns the cause.
func (w *worker) decodeAnswer(line []byte, received bool, reply any) error {
	if !received {
		err := w.child.cause()
		w.killChild()
		return err
	}

	var fault struct {
		Error string `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(line, &fault), json.Unmarshal(line, reply)); err != nil {
		w.killChild()
		return fmt.Errorf("the helper answered with something else: %w", err)
	}
	if fault.Error != "" {
		return errors.New(fault.Error)
	}

	return nil
}

// killChild kills the child, if there is one, and records it as stuck until it has ended.
func (w *worker) killChild() {
	if w.child == nil {
		return
	}
	_ = syscall.Kill(-w.child.cmd.Process.Pid, syscall.SIGKILL) // the process may have ended
	_ = w.child.in.Close()
	w.reaped = w.child.done
	w.child = nil
	w.setStuck(time.Now())
	go func(done <-chan struct{}) { // this goroutine ends with the child
		<-done
		w.setStuck(time.Time{})
	}(w.reaped)
}

// finish closes the child's input and kills the child if it has not ended after a second.
func (w *worker) finish() {
	w.mu.Lock()
	if w.child != nil {
		_ = w.child.in.Close()
		select {
		case <-w.child.done:
			w.child = nil
		case <-time.After(time.Second):
		}
	}
	w.mu.Unlock()
	w.stopChild()
}

// stopChild kills the child and waits up to two seconds for its end.
func (w *worker) stopChild() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killChild()
	if w.reaped == nil {
		return
	}
	select {
	case <-w.reaped:
	case <-time.After(2 * time.Second):
	}
}

func startChild(argv []string) (*liveChild, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &liveChild{
		cmd:   cmd,
		lines: make(chan []byte, 1),
		steps: make(chan struct{}, 1),
		done:  make(chan struct{}),
		said:  command.NewHead(maxSaid),
	}

	cmd.Stderr = c.said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the helper: %w", err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the helper: %w", err)
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the helper: %w", err)
	}

	c.in = in
	go func() {
		defer close(c.done)
		c.hear(out)
		_ = cmd.Wait() // cause returns the exit status
	}()

	return c, nil
}

// cause returns why a child ended without an answer: its exit status, and the beginning of what it
// wrote to its standard error.
func (c *liveChild) cause() error {
	select {
	case <-c.done:
	case <-time.After(time.Second): // the child hangs in a call on the volume
		return errors.New("the helper ended its answers")
	}

	err := fmt.Errorf("the helper ended: %v", c.cmd.ProcessState)
	if said := strings.TrimSpace(string(c.said.Take())); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// hear forwards the lines that a child writes, until the child ends. An empty line reports
// progress; any other line is an answer.
func (c *liveChild) hear(out io.Reader) {
	defer close(c.lines)
	s := bufio.NewScanner(out)
	s.Buffer(nil, maxAnswer)
	for s.Scan() {
		if len(s.Bytes()) == 0 {
			select {
			case c.steps <- struct{}{}:
			default: // the parent has not received the last step yet: one pending step is enough
			}

			continue
		}

		select {
		case c.lines <- slices.Clone(s.Bytes()):
		default: // the parent has sent no request: drop the line
		}
	}
}

// tellSteps returns a function for a child to call at each step of a long answer, always from the
// same goroutine, so that its parent sees the progress. It writes a line at most once a second; the
// other calls only read the clock.
func tellSteps(out io.Writer) func() {
	var lastTold time.Time
	return func() {
		now := time.Now()
		if now.Sub(lastTold) < time.Second {
			return
		}

		lastTold = now
		_, _ = out.Write([]byte("\n")) // if the parent has ended, the child ends anyway
	}
}

// serveLines is the main loop of a child: it answers each line of in with a line on out, until in
// ends. It returns the exit status.
func serveLines(in io.Reader, out io.Writer, answer func(line []byte) (any, error)) int {
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxAnswer)
	for s.Scan() {
		reply, err := answer(s.Bytes())
		if err != nil {
			reply = map[string]string{"error": err.Error()}
		}

		b, err := json.Marshal(reply)
		if err != nil {
			return 1
		}

		if _, err := out.Write(append(b, '\n')); err != nil {
			return 1
		}
	}

	return 0
}
