package master

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pythons are the Pythons to try for what needs Salt's library: the one that
// was named, or else the one of Salt's own packages, the first in PATH, and
// those that the Salt programs in PATH were installed for.
func (m *Master) pythons() []string {
	if p := m.cfg.RendererPython; p != "" {
		return []string{p}
	}
	if p := os.Getenv("SALTERN_RENDERER_PYTHON"); p != "" {
		return []string{p}
	}
	return usualPythons(exec.LookPath)
}

func usualPythons(look func(program string) (path string, err error)) []string {
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

// runnerPythons are the Pythons to try for runners: the one of the salt-run
// that saltern_salt_run names, then those of pythons.
func (m *Master) runnerPythons() []string {
	path := m.cfg.Raw.Str("saltern_salt_run")
	if path == "" {
		return m.pythons()
	}
	if p := pythonOf(path); p != "" {
		return []string{p}
	}
	m.log.Error("saltern_salt_run names a program whose Python cannot be found: its first lines name none, and none is beside it; "+
		"remove the option and set saltern_renderer_python to a Python that can import salt", "path", path)
	return m.pythons()
}

// pythonOf returns the Python with which a salt-run runs, "" if that cannot be
// told: the one that its first lines name, or the one beside it, as in Salt's
// own packages. A Python may be named itself.
func pythonOf(path string) string {
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

// interpreter returns the Python that a script names in its first line, "" if
// it is no Python script.
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
	if len(words) == 1 && words[0] == "/bin/sh" { // pip's form for long paths: the second line runs Python
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
