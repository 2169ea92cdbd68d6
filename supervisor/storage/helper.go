package storage

import (
	"fmt"
	"io"

	"saltern/glusterctl"
)

// HelperMain is the main function of the child processes, which alone touch the volume. A program
// that uses a [Manager] calls it with the arguments that follow those of Config.Helper, and exits
// with the status that it returns:
//
//	probe PATH [DIR]     check the mount once
//	layout SPEC          create the directories
//	names VOLUME PATH    list the names for which the copies hold different files
//	clear DIR            remove GlusterFS's attributes from a directory without content
//	probes PATH DIR      check the mount each time when asked
//	lease PATH NODE      hold the lease while asked
//	mirror SPEC          copy the files for minions each time when asked
//	clocks PATH NODE     compare clocks each time when asked
//	copy SPEC            copy a local directory to the volume, one pass when asked
//	recover SPEC         make a directory from this node's copy of a lost volume when asked
func HelperMain(args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "lease":
			return leaseChild(args[1:], in, out)
		case "probes":
			return probesChild(args[1:], in, out)
		case "mirror":
			return mirrorChild(args[1:], in, out, errOut)
		case "clocks":
			return clocksChild(args[1:], in, out)
		case "copy":
			return copyChild(args[1:], in, out, errOut)
		case "recover":
			return recoverChild(args[1:], in, out, errOut)
		case "probe", "layout", "names", "clear":
			return glusterctl.HelperMain(args, out, errOut)
		}
	}

	fmt.Fprintln(errOut, "usage: probe PATH [DIR] | probes PATH DIR | layout SPEC | names VOLUME PATH | clear DIR | "+
		"lease PATH NODE | mirror SPEC | clocks PATH NODE | copy SPEC | recover SPEC")
	return 2
}
