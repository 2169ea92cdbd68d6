package keys

import (
	"errors"
	"fmt"
	"syscall"
)

// Advise adds advice for the administrator to an error about the folder of keys. It returns any
// other error unchanged.
func Advise(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}

	var next string
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		next = "its disk or volume is full: make room, then try again"
	case syscall.EROFS, syscall.EIO, syscall.ENOTCONN, syscall.ESTALE, syscall.ETIMEDOUT,
		syscall.ECONNABORTED, syscall.EHOSTDOWN, syscall.ENXIO, syscall.ENODEV:
		next = "its disk or shared volume cannot be used now; `applianced storage status` tells why and what to do; then try again"
	case syscall.EACCES, syscall.EPERM:
		next = "run this as root or as the master's user"
	default:
		return err
	}

	return fmt.Errorf("%w; %s", err, next)
}
