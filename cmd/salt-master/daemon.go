package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"saltern/cmd/internal/daemon"
)

// daemonMark is the environment variable that marks the background process.
const daemonMark = "SALTERN_DAEMON"

// daemonize starts the program again in a new session without a terminal, because a running Go
// program cannot fork. It returns the exit status for this process.
func daemonize(stderr io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "salt-master: going to the background: %v\n", err)
		return daemon.ExitFailure
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), daemonMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "salt-master: going to the background: %v\n", err)
		return daemon.ExitFailure
	}
	return daemon.ExitOK
}
