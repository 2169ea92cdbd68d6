// Package orphan tests that the programs that a process runs end with the process, also when it is
// killed.
package orphan

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"saltern/test/await"
	"saltern/test/check"
)

// dirName is the environment variable that tells a process of the test binary that it is to be killed.
const dirName = "SALTERN_TEST_ORPHAN"

// Check starts the test t once more, in a process of its own, and kills that process while run in it
// waits for a program. The program has to end. run is called in that process alone, and must run a program
// of the given name by the PATH path.
func Check(t *testing.T, name string, run func(path string)) {
	t.Helper()
	if dir := os.Getenv(dirName); dir != "" {
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		run(os.Getenv("PATH"))
		t.Fatal("the program has ended before this process was killed")
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%[1]s.new\nmv %[1]s.new %[1]s\nexec sleep 600\n", file)
	check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))

	process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), dirName+"="+dir)
	check.Must(t, process.Start())
	var pid int
	await.That(t, "the start of "+name, func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	_ = process.Process.Kill()
	_ = process.Wait()
	await.That(t, "the end of "+name, func() bool {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}
