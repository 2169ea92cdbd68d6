// Package tty recognises terminals among the input and output of a program.
package tty

import (
	"os"

	"golang.org/x/sys/unix"
)

// Of returns the terminal that a stream reads or writes, or false if the stream is no terminal, such
// as /dev/null.
func Of(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return nil, false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return f, err == nil
}

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	_, ok := Of(stream)
	return ok
}
