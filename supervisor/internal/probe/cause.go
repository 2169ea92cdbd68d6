package probe

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"saltern/supervisor/status"
)

// explanation is what an errno means for whoever has to mend it.
type explanation struct {
	errnos []syscall.Errno
	text   string
}

// diskExplanations are about files.
func diskExplanations() []explanation {
	return []explanation{
		{[]syscall.Errno{syscall.EIO, syscall.ENXIO, syscall.ENODEV, syscall.EUCLEAN}, "the disk, or the way to it, fails, or its file system has shut down after an error; the kernel says more: journalctl -k"},
		{[]syscall.Errno{syscall.EROFS}, "it is mounted so, or the kernel has stopped all writes after an error of the disk: journalctl -k"},
		{[]syscall.Errno{syscall.ENOSPC}, "a new file finds no room, whatever is said to be free: look at df -i, too, and at a thin pool below"},
		{[]syscall.Errno{syscall.EDQUOT}, "the quota of the account or the project is used up; the disk itself may have room"},
		{[]syscall.Errno{syscall.EACCES, syscall.EPERM}, "owner, mode or attributes (lsattr) of the folder forbid it, or what confines the service"},
		{[]syscall.Errno{syscall.ENOTDIR, syscall.ELOOP, syscall.EISDIR}, "something else lies where the folder belongs"},
		{[]syscall.Errno{syscall.ESTALE, syscall.ENOTCONN, syscall.ECONNABORTED, syscall.ESHUTDOWN, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ETIMEDOUT, syscall.EREMOTEIO},
			"whoever serves this file system has gone away; it has to be mounted anew"},
	}
}

// DiskCause says what an error of a file means: its text, and for an errno that has a known
// cause that one.
func DiskCause(err error) string { return explained(err, diskExplanations()) }

// FileFinding is the finding for files below path that could not be read or written: there is no
// room, or something else stands against it.
func FileFinding(path string, err error) status.Finding {
	code := status.StorageUnusable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code = status.DiskFull
	}
	return status.Finding{Code: code, Subject: path, Cause: DiskCause(err)}
}

// IsOfDisk reports whether err is about a disk or its file system, whatever was done there, and
// not about the file.
func IsOfDisk(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(diskErrnos(), errno)
}

func diskErrnos() []syscall.Errno {
	return []syscall.Errno{
		syscall.EIO, syscall.ENXIO, syscall.EUCLEAN, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT,
		syscall.ESTALE, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.EREMOTEIO,
	}
}

func explained(err error, list []explanation) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return text
	}
	i := slices.IndexFunc(list, func(e explanation) bool { return slices.Contains(e.errnos, errno) })
	if i < 0 {
		return text
	}
	return text + ": " + list[i].text
}
