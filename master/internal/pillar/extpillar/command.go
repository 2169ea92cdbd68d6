package extpillar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"saltern/internal/command"
	"saltern/master/internal/fileserver/regular"
	"saltern/master/value"
)

const (
	maxOutput = 8 << 20  // bytes that a command may write
	maxAsked  = 64 << 20 // bytes of outputs that are kept for all pillars
)

// Asked holds what commands have said for one pillar, for when the pillar is compiled again from the
// beginning: a command does not run twice for it. When too much is kept for all pillars, an output is
// not kept. A nil *Asked keeps nothing. It is not safe for concurrent use.
type Asked struct {
	runner  *Runner
	outputs map[*Entry][]byte
	bytes   int
}

// Ask returns an Asked for one pillar. The caller ends it. r may be nil.
func (r *Runner) Ask() *Asked {
	if r == nil {
		return nil
	}
	return &Asked{runner: r, outputs: map[*Entry][]byte{}}
}

// End forgets the outputs. a may be nil.
func (a *Asked) End() {
	if a == nil {
		return
	}
	a.runner.mu.Lock()
	defer a.runner.mu.Unlock()
	a.runner.askedBytes -= a.bytes
	a.bytes = 0
	a.outputs = nil
}

// keep keeps the output of an entry, if there is room.
func (a *Asked) keep(e *Entry, output []byte) {
	if a == nil || a.outputs == nil {
		return
	}
	a.runner.mu.Lock()
	defer a.runner.mu.Unlock()
	if a.runner.askedBytes+len(output) > maxAsked {
		return
	}
	a.runner.askedBytes += len(output)
	a.bytes += len(output)
	a.outputs[e] = output
}

// ask returns what the command of an entry says for a minion.
func (r *Runner) ask(ctx context.Context, e *Entry, m Minion, asked *Asked) ([]byte, error) {
	if asked != nil {
		if output, known := asked.outputs[e]; known {
			return output, nil
		}
	}

	output, err := r.runCommand(ctx, e, m)
	if err != nil {
		return nil, err
	}
	asked.keep(e, output)
	return output, nil
}

// runCommand runs the command of an entry once.
func (r *Runner) runCommand(parent context.Context, e *Entry, m Minion) ([]byte, error) {
	line := strings.ReplaceAll(e.command, "%s", m.ID)
	exe, argv, err := r.commandOf(e, line)
	if err == nil && e.Name == "cmd_json" {
		err = r.checkProgram(parent, argv[0], exe.Dir)
	}
	if err != nil {
		return nil, err
	}

	leave, err := r.takePlace(parent, line)
	if err != nil {
		return nil, err
	}
	ctx, end, err := r.begin(parent, e, line)
	if err != nil {
		leave()
		return nil, err
	}
	defer end()
	if !r.enter() {
		leave()
		return nil, errClosed
	}

	// A command that cannot be killed, or has left a process behind, keeps its place.
	exe.Ended = func() {
		leave()
		r.work.Done()
	}
	out, err := exe.Run(ctx, bounds(argv))
	switch {
	case errors.Is(err, command.ErrOutput):
		return nil, fmt.Errorf("the command wrote more than %d MiB; let it write less", maxOutput>>20)
	case errors.Is(err, command.ErrTimeout) || ctx.Err() != nil:
		err := r.outOfTime(parent, e, line)
		if errors.Is(err, errHangs) {
			r.suspects.note(line, time.Now())
		}
		return nil, err
	case command.MayStartLater(err):
		return nil, errShort
	case err != nil:
		return nil, ErrInexact // it did not start; Salt's module says why
	}

	r.noteAnswer(e)
	r.suspects.clear(line)
	if out.Exit != 0 {
		r.noteFailedExit(e, m, out.Exit)
	}
	if out.Stdout == nil {
		out.Stdout = []byte{}
	}
	return out.Stdout, nil
}

// takePlace waits for a place among the commands that run at once, and among the suspects if the command is one.
// The caller must call leave when the command no longer runs.
func (r *Runner) takePlace(ctx context.Context, line string) (leave func(), err error) {
	leaveSuspects, ok := r.suspects.admit(line, r.cfg.AtOnce, time.Now())
	if !ok {
		return nil, errHangs
	}

	select {
	case r.commands <- struct{}{}:
		return func() {
			leaveSuspects()
			<-r.commands
		}, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-r.ctx.Done():
		err = errClosed
	}
	leaveSuspects()
	return nil, err
}

// failedExits counts the runs of a command that failed.
type failedExits struct {
	logged   time.Time // when the last line was written
	unlogged int       // runs that failed since
}

// logExitsEach is how often a command that fails is logged: it may fail for each minion.
const logExitsEach = time.Minute

func (r *Runner) noteFailedExit(e *Entry, m Minion, exit int) {
	now := time.Now()
	r.mu.Lock()
	failed := r.exits[e.key()]
	isDue := now.Sub(failed.logged) >= logExitsEach
	before := failed.unlogged
	if isDue {
		failed = failedExits{logged: now}
	} else {
		failed.unlogged++
	}
	r.exits[e.key()] = failed
	r.mu.Unlock()

	if isDue {
		r.cfg.Log.Warn("a command of ext_pillar failed; its output is used, as in Salt",
			"minion", m.ID, "ext_pillar", e.Name, "exit", exit, "more_before", before)
	}
}

// commandOf returns how Salt starts the command of an entry: cmd_yaml by a shell and without standard
// error (cmd.run_stdout with python_shell), cmd_json without a shell and with standard error
// (cmd.run), both in the home directory (salt/modules/cmdmod.py _run).
func (r *Runner) commandOf(e *Entry, line string) (command.Exec, []string, error) {
	exe := command.Exec{
		Limit:      r.cfg.Limit,
		MaxOutput:  maxOutput,
		AllOutput:  true,
		EndsWithUs: true,
		Env:        commandEnv(),
		Add:        []string{"LC_ALL=C.UTF-8"}, // as the processes of the renderers have it
		Dir:        homeDir(),
	}
	if strings.ContainsRune(line, 0) || strings.TrimSpace(line) == "" {
		return exe, nil, ErrInexact
	}
	if e.Name == "cmd_yaml" {
		return exe, []string{"/bin/sh", "-c", line}, nil
	}

	exe.MergeStderr = true
	argv, ok := splitWords(line)
	if !ok || len(argv) == 0 {
		return exe, nil, ErrInexact
	}
	return exe, argv, nil
}

// checkProgram returns ErrInexact if the kernel would not run a program. The file system of the program may
// hang. It has hangs of its own: what it answers is no answer of the command.
func (r *Runner) checkProgram(ctx context.Context, name, dir string) error {
	_, err := r.bounded(ctx, &Entry{Name: "program of cmd_json"}, name, func(context.Context) (*value.Map, error) {
		if !isProgram(name, dir) {
			return nil, ErrInexact
		}
		return nil, nil
	})
	return err
}

// bounds returns a command that runs argv with what a command beneath a renderer inherits: no rights
// for others on new files, 2 GiB of address space, and an end before the master when memory is short
// (renderer/worker.py start_worker, main; pyfork's Parent).
func bounds(argv []string) []string {
	const set = `umask 077; ulimit -v 2097152 2>/dev/null; { echo 300 >/proc/self/oom_score_adj; } 2>/dev/null; exec "$@"`
	return append([]string{"/bin/sh", "-c", set, "sh"}, argv...)
}

// isProgram reports whether the kernel, and not the shell of bounds, would run a program: a shell tries
// more than Python does.
func isProgram(name, dir string) bool {
	if name == "" || name[0] == '-' {
		return false
	}
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return false
	}

	f, _, err := regular.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	n, _ := io.ReadFull(f, magic[:])
	return string(magic[:n]) == "\x7fELF" || n > 2 && string(magic[:2]) == "#!"
}

// commandEnv returns the environment in which Salt's cmd module runs a command beneath a renderer.
func commandEnv() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "LANGUAGE=C"}
	for _, name := range []string{"CTYPE", "NUMERIC", "TIME", "COLLATE", "MONETARY", "MESSAGES", "PAPER", "NAME",
		"ADDRESS", "TELEPHONE", "MEASUREMENT", "IDENTIFICATION"} {
		env = append(env, "LC_"+name+"=C")
	}
	return env
}

// homeDir returns the directory in which a command runs.
func homeDir() string {
	const readable = 4
	home := strings.TrimRight(os.Getenv("HOME"), "/")
	fi, err := os.Stat(home)
	if err != nil || !fi.IsDir() || syscall.Access(home, readable) != nil {
		return "/"
	}
	return home
}
