package master

import (
	"os"
	"os/exec"

	"saltern/master/pyrunner"
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
	return pyrunner.Usual(exec.LookPath)
}

// runnerPythons are the Pythons to try for runners: the one of the salt-run
// that saltern_salt_run names, then those of pythons.
func (m *Master) runnerPythons() []string {
	path := m.cfg.Raw.Str("saltern_salt_run")
	if path == "" {
		return m.pythons()
	}
	if p := pyrunner.Of(path); p != "" {
		return []string{p}
	}
	m.log.Error("saltern_salt_run names a program whose Python cannot be found: its first lines name none, and none is beside it; "+
		"remove the option and set saltern_renderer_python to a Python that can import salt", "path", path)
	return m.pythons()
}
