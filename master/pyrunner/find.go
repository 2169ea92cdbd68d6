package pyrunner

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Usual returns the interpreters to try if none is configured: the interpreter of Salt's own
// packages, python3 in PATH, and the interpreters of the Salt programs in PATH. look finds a
// program as exec.LookPath does.
func Usual(look func(program string) (path string, err error)) []string {
	out := []string{"/opt/saltstack/salt/bin/python3", "python3"}
	for _, program := range []string{"salt-call", "salt-minion", "salt-run"} {
		path, err := look(program)
		if err != nil {
			continue
		}
		if p := interpreter(path); p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Of returns the interpreter that runs a salt-run program, or "" if it cannot be determined. It is
// the interpreter that the program's first lines name, or, as in Salt's own packages, the
// interpreter in the program's folder. path may also be the path of an interpreter.
func Of(path string) string {
	if p := interpreter(path); p != "" {
		return p
	}

	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}

	if strings.HasPrefix(filepath.Base(path), "python") && executable(path) {
		return path
	}

	dir := filepath.Dir(path)
	for _, p := range []string{filepath.Join(dir, "python3"), filepath.Join(dir, "bin", "python3")} {
		if executable(p) {
			return p
		}
	}

	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// interpreter returns the interpreter in the first line of a script, or "" if the file is not a
// Python script.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()

	head := bufio.NewReader(io.LimitReader(f, 2048))
	line, err := head.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "#!") {
		return ""
	}

	words := strings.Fields(line[2:])
	if len(words) == 1 && words[0] == "/bin/sh" { // pip writes this form for long paths: the second line starts Python
		line, _ = head.ReadString('\n')
		if line, ok := strings.CutPrefix(line, "'''exec' "); ok {
			words = strings.Fields(strings.ReplaceAll(line, `"`, ""))
		}
	}

	if len(words) == 0 || !filepath.IsAbs(words[0]) || !strings.HasPrefix(filepath.Base(words[0]), "python") {
		return ""
	}

	return words[0]
}
