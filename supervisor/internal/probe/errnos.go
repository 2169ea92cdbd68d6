package probe

import (
	"errors"
	"slices"
	"syscall"
)

// DiskFault is the fault of a disk that an errno of a file shows.
type DiskFault int

// The faults of disks. NoDiskFault means that the errno is about something else.
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

// diskErrno are the errnos of one fault, and its explanation.
type diskErrno struct {
	fault         DiskFault
	errnos        []syscall.Errno
	alsoElsewhere []syscall.Errno
	text          string
}

// diskErrnos is the only table of errnos of files: every judgement of a disk's error uses it.
// Those of alsoElsewhere also concern sockets and single files: alone they prove nothing about a
// disk.
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
			text: "whoever serves this file system has gone away; it has to be mounted anew",
		},
	}
}

// FaultOfDisk returns what an error of a file says about its disk.
func FaultOfDisk(err error) DiskFault {
	fault, _ := faultOf(err)
	return fault
}

// IsOfDisk reports whether err is about a disk or its file system, whatever was done there, and
// not about the file.
func IsOfDisk(err error) bool {
	_, ofDisk := faultOf(err)
	return ofDisk
}

// faultOf looks an error up in the table. ofDisk reports whether it can only concern a disk.
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

// IsOfListening reports whether err is an errno of bind and listen that is explained.
func IsOfListening(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.ContainsFunc(listenExplanations(),
		func(e explanation) bool { return slices.Contains(e.errnos, errno) })
}
