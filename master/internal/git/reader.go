package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// reader reads objects of a repository through a `git cat-file --batch` process. The process starts
// when the first object is read, and serves one request at a time. It is stopped when it is idle or
// hangs. It also finds objects that were fetched after it started.
type reader struct {
	dir   string
	limit time.Duration // time limit for reading one object
	turn  chan struct{} // holds one token; the caller that has taken the token may use the fields below

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	used time.Time
}

func newReader(dir string, limit time.Duration) *reader {
	r := &reader{dir: dir, limit: limit, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

var errMissing = errors.New("the object is not there")

// readObject reads an object, and calls yield with the object's content. name is an id, or an id
// with ^{commit} or ^{tree}. If the object is larger than maxBytes, readObject returns an error
// without calling yield.
func (r *reader) readObject(ctx context.Context, name string, maxBytes int64, yield func(h header, body io.Reader) error) error {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}

	h, err := r.requestObject(name)
	// The process may have ended since the last request. Start a new one.
	if err != nil && !h.missing {
		r.stopProcess()
		h, err = r.requestObject(name)
	}

	if err != nil {
		r.stopProcess()
		return fmt.Errorf("read object %s: %w", name, err)
	}
	if h.missing {
		return fmt.Errorf("read object %s: %w", name, errMissing)
	}
	if h.size > maxBytes {
		r.stopProcess() // otherwise the process would write all bytes of the object
		return tooLarge(fmt.Sprintf("object %s has %d bytes, more than %d", h.id, h.size, maxBytes))
	}

	late := r.killWhenLate()
	defer late.Stop()
	body := &io.LimitedReader{R: r.out, N: h.size}
	err = yield(h, body)
	if _, e := io.Copy(io.Discard, body); e != nil || body.N > 0 {
		err = errors.Join(err, io.ErrUnexpectedEOF)
		r.stopProcess()
	} else if b, e := r.out.ReadByte(); e != nil || b != '\n' {
		err = errors.Join(err, io.ErrUnexpectedEOF)
		r.stopProcess()
	}

	if err != nil {
		return fmt.Errorf("read object %s: %w", name, err)
	}

	return nil
}

// requestObject sends the name of an object to the process, and reads the first line of the answer.
func (r *reader) requestObject(name string) (h header, err error) {
	if r.cmd == nil {
		if err := r.startProcess(); err != nil {
			return h, err
		}
	}

	late := r.killWhenLate()
	defer late.Stop()
	r.used = time.Now()
	if _, err := io.WriteString(r.in, name+"\n"); err != nil {
		return h, err
	}

	line, err := r.out.ReadSlice('\n')
	if err != nil {
		return h, err
	}

	return parseHeader(string(line))
}

func (r *reader) startProcess() error {
	argv := append(localOptions(r.dir), "cat-file", "--batch")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = append(localEnv(), "LC_ALL=C"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start git: %w", err)
	}

	r.cmd = cmd
	r.in = in
	r.out = bufio.NewReaderSize(out, 64<<10)
	return nil
}

// killWhenLate returns a timer that kills the process when the time limit has passed.
func (r *reader) killWhenLate() *time.Timer {
	p := r.cmd.Process
	return time.AfterFunc(r.limit, func() { _ = p.Kill() }) // the process may have ended
}

// stopProcess ends the process. The caller holds the token of turn.
func (r *reader) stopProcess() {
	if r.cmd == nil {
		return
	}
	_ = r.in.Close()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // its exit status does not matter
	r.cmd = nil
	r.in = nil
	r.out = nil
}

// stopIdle stops the process if it was last used before limit.
func (r *reader) stopIdle(limit time.Time) {
	select {
	case <-r.turn:
		if r.cmd != nil && r.used.Before(limit) {
			r.stopProcess()
		}
		r.turn <- struct{}{}
	default:
	}
}

// close waits for the current read and stops the process. A later read starts a new process.
func (r *reader) close() {
	<-r.turn
	r.stopProcess()
	r.turn <- struct{}{}
}

// isMissing reports whether an error means that an object is missing.
func isMissing(err error) bool { return errors.Is(err, errMissing) }

// readWhole returns an object and its header. It returns an error if the object is larger than
// maxBytes.
func (r *reader) readWhole(ctx context.Context, name string, maxBytes int64) (h header, b []byte, err error) {
	err = r.readObject(ctx, name, maxBytes, func(got header, body io.Reader) (err error) {
		h = got
		b, err = io.ReadAll(body)
		return err
	})
	return h, b, err
}
