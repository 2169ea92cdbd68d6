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
	"sync"
	"syscall"
	"time"
)

// worker is a child process that touches the volume for us. It is asked one
// thing at a time. When it does not answer in time it is killed and given up;
// a child that hangs in the kernel goes away only when the volume answers or
// its connection is aborted, and until then no second one is started.
type worker struct {
	command []string

	mu   sync.Mutex // one question at a time
	live *liveChild
	gone chan struct{} // of a child given up: closed when it is reaped; nil: none

	stuckMu sync.Mutex
	stuck   time.Time // since when a child that was given up has not gone away; zero: none
}

// hangsFor tells for how long a child that was killed has not gone away: it is
// inside a call on the volume that does not end.
func (w *worker) hangsFor() time.Duration {
	w.stuckMu.Lock()
	defer w.stuckMu.Unlock()
	if w.stuck.IsZero() {
		return 0
	}
	return time.Since(w.stuck)
}

func (w *worker) setStuck(t time.Time) {
	w.stuckMu.Lock()
	defer w.stuckMu.Unlock()
	w.stuck = t
}

type liveChild struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte
	done  chan struct{} // reaped
}

// errHangs is in the chain when the child, or one before it, hangs on the
// volume.
var errHangs = errors.New("the volume does not answer")

// errStuck: nothing was asked, since the child before hangs still.
var errStuck = fmt.Errorf("%w: it holds a call of before", errHangs)

// maxAnswer bounds one line of an answer.
const maxAnswer = 1 << 20

// ask sends one question and decodes the answer into reply. The child answers
// {"error": …} when the question could not be answered.
func (w *worker) ask(ctx context.Context, limit time.Duration, question, reply any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone != nil {
		select {
		case <-w.gone:
			w.gone = nil
		default:
			return errStuck
		}
	}

	if w.live == nil {
		var err error
		if w.live, err = start(w.command); err != nil {
			return err
		}
	}

	q, err := json.Marshal(question)
	if err != nil {
		return err
	}

	sent := make(chan error, 1)
	live := w.live
	go func() {
		_, err := live.in.Write(append(q, '\n'))
		sent <- err
	}()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line, ok := <-live.lines:
		<-sent
		if !ok {
			w.drop()
			return errors.New("the helper ended")
		}

		var fault struct {
			Error string `json:"error"`
		}
		if err := errors.Join(json.Unmarshal(line, &fault), json.Unmarshal(line, reply)); err != nil {
			w.drop()
			return fmt.Errorf("the helper answered with something else: %w", err)
		}
		if fault.Error != "" {
			return errors.New(fault.Error)
		}

		return nil
	case <-timer.C:
		w.drop()
		return fmt.Errorf("%w: no answer within %v", errHangs, limit)
	case <-ctx.Done():
		w.drop()
		return ctx.Err()
	}
}

// drop kills the child and remembers it until it is reaped.
func (w *worker) drop() {
	if w.live == nil {
		return
	}
	_ = syscall.Kill(-w.live.cmd.Process.Pid, syscall.SIGKILL) // it may be gone
	_ = w.live.in.Close()
	w.gone = w.live.done
	w.live = nil
	w.setStuck(time.Now())
	go func(done <-chan struct{}) { // ends with the child
		<-done
		w.setStuck(time.Time{})
	}(w.gone)
}

// finish lets the child end by itself, as it does without a parent, and ends it
// when it takes longer than a moment.
func (w *worker) finish() {
	w.mu.Lock()
	if w.live != nil {
		_ = w.live.in.Close()
		select {
		case <-w.live.done:
			w.live = nil
		case <-time.After(time.Second):
		}
	}
	w.mu.Unlock()
	w.close()
}

// close ends the child. It waits a little, but not for one that hangs.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
	if w.gone == nil {
		return
	}
	select {
	case <-w.gone:
	case <-time.After(2 * time.Second):
	}
}

func start(command []string) (*liveChild, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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

	c := &liveChild{cmd: cmd, in: in, lines: make(chan []byte, 1), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		s := bufio.NewScanner(out)
		s.Buffer(nil, maxAnswer)
		for s.Scan() {
			select {
			case c.lines <- slices.Clone(s.Bytes()):
			default: // nobody asked: it is left out
			}
		}

		close(c.lines)
		_ = cmd.Wait() // how it ended is of no use
	}()

	return c, nil
}

// serve is the child's side: one line in, one line out, until the parent is
// gone.
func serve(in io.Reader, out io.Writer, answer func(line []byte) (any, error)) int {
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
