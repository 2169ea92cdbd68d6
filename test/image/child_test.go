//go:build nspawn || boot

package image

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startChild has start start cmd, which the kernel kills when this process
// is gone, however that ends. The channel is closed when cmd has ended.
func startChild(cmd *exec.Cmd, start func() error) (ended chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended = make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(ended)

		// The parent death signal hangs on the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err

		if err == nil {
			_ = cmd.Wait()
		}
	}()

	return ended, <-started
}
