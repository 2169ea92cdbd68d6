package client

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestErrorsForPeople: a user who has no right, or whose master does not run, gets an error that
// says so and names the next step, and that does not mention sockets (M5 and m20).
func TestErrorsForPeople(t *testing.T) {
	internals := []string{"ipc", "dial", "unix", "zmtp", "socket", "errno", "no such file"}
	check := func(t *testing.T, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}

		for _, word := range internals {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%v has %q", err, word)
			}
		}
	}

	dir := t.TempDir()
	listen := func() error {
		f := &feed{dir: dir}
		_, err := f.addStream(t.Context())
		return err
	}

	check(t, listen(), "does not run")
	ln, err := net.Listen("unix", filepath.Join(dir, "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	check(t, listen(), "does not run")
	check(t,
		errEvents(fmt.Errorf("connect to event socket: %w",
			&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)})),
		"sudo salt")

	check(t, errHungUp(), "does not answer at the moment")
}
