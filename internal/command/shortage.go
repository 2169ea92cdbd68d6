package command

import (
	"errors"
	"syscall"
)

// IsShortage reports whether err says that there is not enough memory, or are too many processes or open files, at
// the moment.
func IsShortage(err error) bool {
	return isOneOf(err, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE)
}

// MayStartLater reports whether a program whose start has failed with err may start later: there is a shortage, its
// file is just being written, a signal came, or its disk could not be read. Any other failure is permanent: the file
// is missing, is no program, or is one for another kind of machine.
func MayStartLater(err error) bool {
	return IsShortage(err) || isOneOf(err, syscall.ETXTBSY, syscall.EINTR, syscall.EIO)
}

func isOneOf(err error, errnos ...syscall.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
