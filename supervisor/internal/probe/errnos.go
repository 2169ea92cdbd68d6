package probe

import (
	"errors"
	"slices"
	"syscall"
)

// DiskFault is a fault of a disk that the errno of a file operation shows.
type DiskFault int

// Values of DiskFault. NoDiskFault means that the errno does not concern the disk.
const (
	NoDiskFault DiskFault = iota
	DiskFails
	DiskReadOnly
	DiskIsFull
	QuotaIsUsed
	DiskForbids
	DiskMisplaced
	ServerAway
)

// diskErrno lists the errnos of one fault, with its explanation.
type diskErrno struct {
	fault         DiskFault
	errnos        []syscall.Errno
	alsoElsewhere []syscall.Errno
	text          string
}

// diskErrnos is the only table of file errnos: all code that interprets an error of a disk uses it.
// The errnos in alsoElsewhere also occur for sockets and single files, so they alone do not prove
// that a disk is at fault.
func diskErrnos() []diskErrno {
	return []diskErrno{
		{
			fault:         DiskFails,
			errnos:        []syscall.Errno{syscall.EIO, syscall.ENXIO, syscall.EUCLEAN},
			alsoElsewhere: []syscall.Errno{syscall.ENODEV},
			text: "the disk, or the way to it, fails, or its file system has shut down after an error; " +
				"the kernel says more: journalctl -k",
		},
		{
			fault:  DiskReadOnly,
			errnos: []syscall.Errno{syscall.EROFS},
			text:   "it is mounted so, or the kernel has stopped all writes after an error of the disk: journalctl -k",
		},
		{
			fault:  DiskIsFull,
			errnos: []syscall.Errno{syscall.ENOSPC},
			text: "a new file finds no room, whatever is said to be free: " +
				"look at df -i, too, and at a thin pool below",
		},
		{
			fault:  QuotaIsUsed,
			errnos: []syscall.Errno{syscall.EDQUOT},
			text:   "the quota of the account or the project is used up; the disk itself may have room",
		},
		{
			fault:         DiskForbids,
			alsoElsewhere: []syscall.Errno{syscall.EACCES, syscall.EPERM},
			text:          "owner, mode or attributes (lsattr) of the folder forbid it, or what confines the service",
		},
		{
			fault:         DiskMisplaced,
			alsoElsewhere: []syscall.Errno{syscall.ENOTDIR, syscall.ELOOP, syscall.EISDIR},
			text:          "something else lies where the folder belongs",
		},
		{
			fault:  ServerAway,
			errnos: []syscall.Errno{syscall.ESTALE, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.EREMOTEIO},
			alsoElsewhere: []syscall.Errno{
				syscall.ECONNABORTED, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
				syscall.ENETUNREACH, syscall.ETIMEDOUT, syscall.EBADFD,
			},
			text: "whoever serves this file system has gone away; it has to be mounted again",
		},
	}
}

// FaultOfDisk returns the fault of a disk that the error of a file operation shows.
func FaultOfDisk(err error) DiskFault {
	fault, _ := faultOf(err)
	return fault
}

// IsOfDisk reports whether err can only come from a disk or its file system, whatever the operation
// was.
func IsOfDisk(err error) bool {
	_, ofDisk := faultOf(err)
	return ofDisk
}

// faultOf looks up an error in the table. ofDisk reports whether only a disk can cause the error.
func faultOf(err error) (fault DiskFault, ofDisk bool) {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return NoDiskFault, false
	}
	for _, row := range diskErrnos() {
		if slices.Contains(row.errnos, errno) {
			return row.fault, true
		}
		if slices.Contains(row.alsoElsewhere, errno) {
			return row.fault, false
		}
	}
	return NoDiskFault, false
}

// IsOfListening reports whether err is an errno of bind or listen that has an explanation.
func IsOfListening(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.ContainsFunc(listenExplanations(),
		func(e explanation) bool { return slices.Contains(e.errnos, errno) })
}
