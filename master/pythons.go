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

// interpreter returns the Python that a script names in its first line, "" if
// it is no Python script.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 512)).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "#!") {
		return ""
	}
	words := strings.Fields(line[2:])
	if len(words) == 0 || !filepath.IsAbs(words[0]) || !strings.HasPrefix(filepath.Base(words[0]), "python") {
		return ""
	}
	return words[0]
}
