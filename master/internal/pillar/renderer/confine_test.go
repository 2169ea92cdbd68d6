package renderer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/pyfork"
	"saltern/test/check"
)

// attempts are what a process tries that has called confine, one a line.
const attempts = `
subprocess.run(["/bin/true"])
os.execv("/bin/true", ["true"])
socket.socket()
socket.socketpair()
open("new", "w")
open("there", "a")
os.open("new", os.O_CREAT)
os.remove("there")
os.rename("there", "new")
os.mkdir("new")
os.chmod("there", 0o777)
os.symlink("there", "new")
os.link("there", "new")
os.kill(os.getppid(), 0)
os.truncate("there", 0)
os.utime("there")
os.removexattr("there", "user.x")
os.posix_fallocate(os.open("there", os.O_RDONLY), 0, 1)
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
os.fork()
`

// TestConfinedProcess: a process that has called confine starts no program, opens no socket and
// changes no file.
func TestConfinedProcess(t *testing.T) {
	t.Parallel()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library")
	}

	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "there"), []byte("x"), 0o600))
	program := pyfork.Prelude + confineScript + "\nimport resource, subprocess\nconfine()\n"
	for try := range strings.Lines(strings.TrimSpace(attempts)) {
		program += fmt.Sprintf("try:\n    %s\n    print('DONE', %q)\nexcept OSError as exc:\n    print('refused', exc)\n", strings.TrimSpace(try), try)
	}
	program += "print(open('there').read(), os.listdir('.'))\n"

	command := exec.Command(python, "-I", "-c", program)
	command.Dir = dir
	out, err := command.CombinedOutput()
	want := strings.Count(strings.TrimSpace(attempts), "\n") + 1
	if err != nil || strings.Contains(string(out), "DONE") || strings.Count(string(out), "refused") != want ||
		!strings.Contains(string(out), "x ['there']") {
		t.Errorf("%v: %s", err, out)
	}
}
