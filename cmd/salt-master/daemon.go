package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"saltern/cmd/internal/daemon"
)

// daemonMark tells the program that it is the one in the background.
const daemonMark = "SALTERN_DAEMON"

// daemonize starts the program again in a session of its own, without a
// terminal, and leaves. Go cannot fork a running program.
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
