package observe

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// TestEveryErrnoOfALastLine: a child that ends for an address or a disk is told so, whatever its
// exit code, and no errno of one is taken for another.
func TestEveryErrnoOfALastLine(t *testing.T) {
	code := func(line, exit string) (status.Code, string) {
		found := fromLastLine(service.Info{Name: status.MasterService, LastLine: line, LastExit: exit})
		if len(found) == 0 {
			return "", ""
		}
		return found[0].Code, found[0].Subject
	}

	for errno := syscall.Errno(1); errno <= maxErrno; errno++ {
		if got := errnoIn(strings.ToLower(errno.Error())); got.Error() != errno.Error() { // some have one text
			t.Errorf("%v is taken for %v", errno, got)
		}

		line := fmt.Sprintf("ERROR: open ports: listen tcp 192.0.2.7:4506: bind: %v", errno)
		want, subject := status.Code(""), ""
		switch {
		case errno == syscall.EADDRINUSE:
			want, subject = status.PortInUse, "192.0.2.7:4506"
		case errno == syscall.EADDRNOTAVAIL:
			want, subject = status.AddressMissing, "192.0.2.7"
		case probe.IsOfListening(errno):
			want, subject = status.PortRefused, "192.0.2.7:4506"
		case errno == syscall.ENOSPC || errno == syscall.EDQUOT:
			want, subject = status.DiskFull, status.MasterService
		case probe.IsOfDisk(errno):
			want, subject = status.StorageUnusable, status.MasterService
		}

		if c, s := code(line, "exit code 1"); c != want || s != subject {
			t.Errorf("%q: %s %s, want %s %s", line, c, s, want, subject)
		}

		line = fmt.Sprintf("read configuration: open /Data/etc/master: %v", errno)
		want = status.MasterConfig
		switch {
		case errno == syscall.ENOSPC || errno == syscall.EDQUOT:
			want = status.DiskFull
		case probe.IsOfDisk(errno):
			want = status.StorageUnusable
		case errno == syscall.EADDRINUSE:
			want = status.PortInUse
		case errno == syscall.EADDRNOTAVAIL:
			want = status.AddressMissing
		}

		c, s := code(line, exitConfig)
		if c != want || probe.IsOfDisk(errno) && s != "/Data/etc/master" {
			t.Errorf("%q: %s %s, want %s", line, c, s, want)
		}
	}

	for line, want := range map[string]status.Code{
		"listen unix /Data/run/master.ipc: bind: no space left on device": status.DiskFull,
		"listen unix /Data/run/master.ipc: bind: read-only file system":   status.StorageUnusable,
		"accept on the listen socket: too many open files":                "",
		"listen tcp 192.0.2.7:4506: bind: permission denied":              status.PortRefused,
		"listen tcp 192.0.2.7:4506: bind: no such device":                 status.PortRefused,
	} {
		if c, _ := code(line, "exit code 1"); c != want {
			t.Errorf("%q: %s, want %s", line, c, want)
		}
	}

	for _, line := range []string{"", "panic: no", "listen to this: bind: nothing", "exit"} {
		if c, s := code(line, "exit code 1"); c != "" {
			t.Errorf("%q: %s %s", line, c, s)
		}
	}
}
