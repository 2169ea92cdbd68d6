package writable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAdvise: a folder that only this process sees read-only, as a unit with ProtectSystem=strict does, gives the
// next step. One that the kernel has read-only for all, and a healthy one, give none.
func TestAdvise(t *testing.T) {
	if folder := os.Getenv("TEST_SEALED_FOLDER"); folder != "" {
		_, err := os.Create(filepath.Join(folder, "x"))
		deep := os.MkdirAll(filepath.Join(folder, "not there", "tokens"), 0o700)
		fmt.Printf("create: %s\nmkdir: %s\n", advice(err), advice(deep))
		return
	}

	if _, err := exec.LookPath("unshare"); err != nil || os.Getuid() != 0 {
		t.Skip("NOT TESTED: unshare is not installed, or this is not root")
	}

	for name, c := range map[string]struct {
		mount string
		want  bool
	}{
		"sealed":            {`mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"`, true},
		"sealed from above": {`mount --bind "$1/.." "$1/.."; mount -o remount,bind,ro "$1/.."`, true},
		"one of it is opened": {`mount --bind "$1/.." "$1/.."; mount -o remount,bind,ro "$1/.."; mount --bind "$1" "$1"; mount -o remount,bind,rw "$1"`,
			false},
		"read-only for all": {`mount -t tmpfs none "$1"; mount -o remount,ro "$1"`, false},
		"as it was":         {`true`, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "a folder")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}

			cmd := exec.Command("unshare", "--mount", "sh", "-ec", c.mount+`; shift; exec "$@"`, "sh",
				folder, os.Args[0], "-test.run", "^TestAdvise$")
			cmd.Env = append(os.Environ(), "TEST_SEALED_FOLDER="+folder)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			created, made, _ := strings.Cut(string(out), "\nmkdir: ")
			if told := strings.Contains(created, folder); told != c.want {
				t.Errorf("a file in it: %s", out)
			}

			if told := strings.Contains(made, filepath.Join(folder, "not there")); told != c.want {
				t.Errorf("a folder below: %s", out)
			}
		})
	}
}

// TestAdviseOfOtherErrors: only a file system that is read-only can be the sandbox.
func TestAdviseOfOtherErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("no"), syscall.EROFS,
		&fs.PathError{Op: "open", Path: "/x", Err: syscall.EIO}} {
		if got := Advise(err); got != err {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestUnitOf(t *testing.T) {
	for table, want := range map[string]string{
		"0::/system.slice/saltern-api.service\n":                       "saltern-api.service",
		"1:name=systemd:/system.slice/saltern-master.service\n0::/x\n": "saltern-master.service",
		"0::/user.slice/user-0.slice/session-1.scope\n":                "",
		"0::/\n": "",
		"":       "",
	} {
		if got := unitOf(table); got != want {
			t.Errorf("%q: %q", table, got)
		}
	}
}
