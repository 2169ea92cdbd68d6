package command

import "golang.org/x/sys/unix"

// LowerPriority makes a process count less than this one for the scheduler, by so many steps of nice. If it
// cannot, the process takes more time from others than it should, but works.
func LowerPriority(pid, less int) {
	const highest = 19
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || less <= 0 {
		return
	}
	own = 20 - own // getpriority(2): the kernel returns 40 to 1 for -20 to 19
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, min(own+less, highest))
}
