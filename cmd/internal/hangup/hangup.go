// Package hangup keeps SIGHUP from ending a service at a moment at which the service does not handle
// the signal: at its start, at its end, and when it replaces its own program. A service manager may
// send the signal at any of these moments.
package hangup

import (
	"os"
	"os/signal"
	"syscall"
)

// Outlive keeps SIGHUP from ending this process until the process ends. A service calls it first.
// Channels given to [signal.Notify] receive the signal all the same.
func Outlive() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }

// Exec replaces this process by the program at path, as [syscall.Exec] does. The new program ignores
// SIGHUP until it calls Outlive or [signal.Notify]. If Exec returns, no channel receives the signal
// any more: the caller must call [signal.Notify] again.
func Exec(path string, args, env []string) error {
	signal.Ignore(syscall.SIGHUP) // the kernel keeps this across the replacement, but no handler
	err := syscall.Exec(path, args, env)
	Outlive()
	return err
}
