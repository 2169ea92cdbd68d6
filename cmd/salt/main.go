// Command salt holds Salt's command line tools for a master: called as salt, salt-key, salt-run or
// salt-cp, it behaves like that tool, with the same options, output and exit codes. It works with
// our master and with Salt's.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"saltern/cmd/internal/tty"
	"saltern/internal/control/toolrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE)
	e := &env{
		stdin:    os.Stdin,
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		getenv:   os.Getenv,
		terminal: tty.Is(os.Stdout),
		columns:  columns(os.Stdout, os.Getenv),
	}
	code := e.runTool(ctx, filepath.Base(os.Args[0]), os.Args[1:])
	stop()
	os.Exit(code)
}

// Exit codes of Salt's tools (salt/defaults/exitcodes.py).
const (
	exitOK          = 0
	exitGeneric     = 1
	exitNoReturn    = 2
	exitArguments   = 42
	exitUsage       = 64
	exitUnavailable = 69
)

// env is the environment of a tool: its streams, variables and terminal.
type env struct {
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	getenv   func(string) string
	terminal bool // stdout is a terminal
	columns  int  // width of the terminal in columns
	// other is set if this process runs the tool for another node, whose master does not answer. It
	// is nil for a call on this node.
	other *otherNode
}

// runTool runs the tool called name, or salt if there is no tool of that name, and returns the exit
// code.
func (e *env) runTool(ctx context.Context, name string, args []string) int {
	switch name {
	case "salt-key":
		return e.saltKey(ctx, args)
	case "salt-run":
		return e.saltRun(ctx, args)
	case toolrun.Program:
		return e.forOther(ctx, args)
	case "salt-cp":
		return e.saltCP(ctx, args)
	}
	return e.runSalt(ctx, args)
}

func columns(f *os.File, getenv func(string) string) int {
	if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 {
		return int(ws.Col)
	}
	return 80
}
