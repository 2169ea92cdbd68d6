package probe

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"saltern/supervisor/status"
)

// explanation explains some errnos to an administrator.
type explanation struct {
	errnos []syscall.Errno
	text   string
}

// diskExplanations returns the meanings of the errnos of file operations.
func diskExplanations() (list []explanation) {
	for _, row := range diskErrnos() {
		list = append(list, explanation{slices.Concat(row.errnos, row.alsoElsewhere), row.text})
	}
	return list
}

// DiskCause returns the text of an error of a file operation, and its cause if the errno is known.
func DiskCause(err error) string { return explained(err, diskExplanations()) }

// FileFinding returns the finding that files below path could not be read or written: the disk is
// full, or there is another cause.
func FileFinding(path string, err error) status.Finding {
	code := status.StorageUnusable
	if fault := FaultOfDisk(err); fault == DiskIsFull || fault == QuotaIsUsed {
		code = status.DiskFull
	}
	return status.Finding{Code: code, Subject: path, Cause: DiskCause(err)}
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
