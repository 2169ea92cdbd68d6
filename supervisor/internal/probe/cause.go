package probe

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"saltern/supervisor/status"
)

// explanation is the meaning of an errno for an administrator.
type explanation struct {
	errnos []syscall.Errno
	text   string
}

// diskExplanations are about files.
func diskExplanations() (list []explanation) {
	for _, row := range diskErrnos() {
		list = append(list, explanation{slices.Concat(row.errnos, row.alsoElsewhere), row.text})
	}
	return list
}

// DiskCause describes an error of a file: its text, and the cause of a known errno.
func DiskCause(err error) string { return explained(err, diskExplanations()) }

// FileFinding is the finding for files below path that could not be read or written: there is no
// room, or something else stands against it.
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
