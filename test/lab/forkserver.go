package lab

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed forkserver.py
var forkServerCode string

// forkServer starts the minions of one release of Salt. It is a process of Python that has loaded
// what a minion imports, and forks for each minion. A minion that is a program of its own spends a
// third of the processor time of its start on these imports. A forked one runs Salt's own code from
// its main function on, with a process group, an environment, a network namespace and a command line
// of its own. It dies with the server, and the server dies with the test process.
type forkServer struct {
	mu       sync.Mutex
	requests *json.Encoder
	last     int                     // id of a request
	waiting  map[int]chan forkAnswer // by id, of minions that have not ended; nil: the server has ended
}

// forkRequest asks for a minion.
type forkRequest struct {
	ID   int               `json:"id"`
	Args []string          `json:"args"`
	Env  map[string]string `json:"env"` // beside that of all processes
	Out  string            `json:"out"` // path of what it prints
	Net  string            `json:"net"` // network namespace; empty: the test's
}

// forkAnswer comes when a minion has started, and with Status when it has ended.
type forkAnswer struct {
	ID     int
	PID    int
	Status *forkStatus
}

// forkStatus is what wait says of a minion that has ended other than with code 0.
type forkStatus syscall.WaitStatus

func (s forkStatus) Error() string {
	if w := syscall.WaitStatus(s); w.Signaled() {
		return "signal: " + w.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitCode())
}

// ExitCode returns the code, or -1 when a signal has ended the process.
func (s forkStatus) ExitCode() int { return syscall.WaitStatus(s).ExitStatus() }

// forkServers are the servers by their Python program. All tests of a process share them.
var forkServers = struct {
	sync.Mutex
	running map[string]*forkServer
}{running: map[string]*forkServer{}}

// forkServerOf returns the server of a Python program, which it starts for the first test.
func forkServerOf(python string) (*forkServer, error) {
	forkServers.Lock()
	defer forkServers.Unlock()
	if s := forkServers.running[python]; s != nil {
		return s, nil
	}

	s := &forkServer{waiting: map[int]chan forkAnswer{}}
	answers, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(python, "-c", forkServerCode)
	cmd.Env = cleanEnv()
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	requests, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	err = startAndWait(cmd, func(error) {})
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}

	s.requests = json.NewEncoder(requests)
	go s.deliver(answers)
	forkServers.running[python] = s
	return s, nil
}

// deliver passes answers on until the server ends.
func (s *forkServer) deliver(answers io.ReadCloser) {
	defer answers.Close()
	for in := json.NewDecoder(answers); ; {
		var a forkAnswer
		err := in.Decode(&a)
		s.mu.Lock()
		if err != nil {
			for _, w := range s.waiting {
				close(w)
			}
			s.waiting = nil
			s.mu.Unlock()
			return
		}

		w := s.waiting[a.ID]
		if a.Status != nil {
			delete(s.waiting, a.ID)
		}
		s.mu.Unlock()
		w <- a // it has room for both answers
	}
}

var errForkServerEnded = errors.New("the fork server has ended")

// start starts a minion and returns its process id. Its end comes on the channel, which is closed
// when the server ends before.
func (s *forkServer) start(r forkRequest) (pid int, end <-chan forkAnswer, err error) {
	answers := make(chan forkAnswer, 2)
	s.mu.Lock()
	if s.waiting == nil {
		s.mu.Unlock()
		return 0, nil, errForkServerEnded
	}

	s.last++
	r.ID = s.last
	s.waiting[r.ID] = answers
	err = s.requests.Encode(r)
	s.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}

	a, ok := <-answers
	if !ok {
		return 0, nil, errForkServerEnded
	}
	return a.PID, answers, nil
}

// startFork starts a minion by the fork server of a release, and is otherwise like [Start].
func startFork(t testing.TB, python, name string, r forkRequest) *Proc {
	t.Helper()
	p := newProc(name, r.Out)
	environment := map[string]string{tokenEnv: p.tok}
	for _, e := range cleanEnv() {
		k, v, _ := strings.Cut(e, "=")
		environment[k] = v
	}
	for k, v := range r.Env {
		environment[k] = v
	}
	r.Env = environment

	server, err := forkServerOf(python)
	if err != nil {
		t.Fatalf("start the fork server of %s: %v", python, err)
	}

	pid, end, err := server.start(r)
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}

	p.pid = pid
	go func() {
		switch a, ok := <-end; {
		case !ok:
			p.err = errForkServerEnded
		case *a.Status != 0:
			p.err = *a.Status
		}
		close(p.done)
	}()

	p.killAtEnd(t)
	return p
}
