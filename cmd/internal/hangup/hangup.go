// Package hangup prevents SIGHUP from ending a service while the service does not handle the
// signal: at its start, at its end, and when it replaces its own program. A service manager may
// send the signal at any time.
package hangup

import (
	"os"
	"os/signal"
	"syscall"
)

// Outlive prevents SIGHUP from ending this process. Call it before anything else in a service.
// Channels that were passed to [signal.Notify] still receive the signal.
func Outlive() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }

// Exec replaces this process by the program at path, as [syscall.Exec] does. The new program
// ignores SIGHUP until it calls Outlive or [signal.Notify]. If Exec returns, the replacement has
// failed, and no channel receives SIGHUP any more: the caller must call [signal.Notify] again.
func Exec(path string, args, env []string) error {
	signal.Ignore(syscall.SIGHUP) // the new program inherits an ignored signal, but no handler
	err := syscall.Exec(path, args, env)
	Outlive()
	return err
}
