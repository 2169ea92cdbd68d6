package writable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"saltern/internal/mountinfo"
)

// Advise adds the next step for the administrator to an error of a write that failed because of the
// sandbox of this process's systemd unit (systemd.exec(5), ProtectSystem): the folder is read-only
// in the sandbox although the disk is writable. Advise returns every other error unchanged. The
// added text names paths, so only logs and terminals may show it.
func Advise(err error) error {
	if text := advice(err); text != "" {
		return fmt.Errorf("%w; %s", err, text)
	}
	return err
}

// advice returns the next step, or "" when the sandbox is not the cause.
func advice(err error) string {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, syscall.EROFS) {
		return ""
	}

	folder := failed.Path
	if failed.Op != "mkdir" {
		folder = filepath.Dir(folder)
	}

	mounts, err := os.ReadFile(mountinfo.Self)
	if err != nil || !sealed(string(mounts), folder) {
		return ""
	}

	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	unit := unitOf(string(cgroup))
	if unit == "" {
		return fmt.Sprintf("%s is read-only for this process alone: "+
			"mount it for writing into its container or name space",
			folder)
	}

	return fmt.Sprintf("the unit %[1]s may not write to %[2]s. "+
		"Make that folder for the unit's user, then: sudo systemctl edit %[1]s, "+
		"with the lines [Service] and ReadWritePaths=%[2]s; sudo systemctl restart %[1]s",
		unit, folder)
}

// sealed reports whether the mount that holds the folder is read-only although its file system is
// not.
func sealed(table, folder string) bool {
	folder = existing(folder)
	longest := ""
	found := false
	for m := range mountinfo.Parse(table) {
		below := m.Point == "/" || folder == m.Point || strings.HasPrefix(folder, m.Point+"/")
		if m.SuperOptions == "" || !below || len(m.Point) < len(longest) {
			continue
		}

		longest = m.Point // of two mounts at one point the later one hides the earlier one
		found = hasOption(m.Options, "ro") && hasOption(m.SuperOptions, "rw")
	}

	return found
}

// existing returns the folder, or the nearest folder above it that exists, with links resolved.
func existing(folder string) string {
	for {
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			return real
		}
		above := filepath.Dir(folder)
		if above == folder {
			return folder
		}
		folder = above
	}
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// unitOf returns the systemd service to which a table of control groups (cgroups(7)) belongs, or "".
func unitOf(table string) string {
	for line := range strings.Lines(table) {
		if unit := path.Base(strings.TrimSpace(line)); strings.HasSuffix(unit, ".service") {
			return unit
		}
	}
	return ""
}
