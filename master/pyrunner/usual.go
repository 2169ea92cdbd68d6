package pyrunner

import (
	"cmp"
	"log/slog"
	"os"
	"os/exec"
)

// Pythons returns the interpreters in which to look for Salt's library: the configured interpreter,
// or those of Usual if none is configured.
func Pythons(configured string) []string {
	configured = cmp.Or(configured, os.Getenv("SALTERN_RENDERER_PYTHON"))
	if configured != "" {
		return []string{configured}
	}
	return Usual(exec.LookPath)
}

// OfSaltRun returns the interpreters to try for runners: the interpreter of the salt-run at path
// (saltern_salt_run), or pythons if there is none.
func OfSaltRun(path string, pythons []string, log *slog.Logger) []string {
	if path == "" {
		return pythons
	}
	if p := Of(path); p != "" {
		return []string{p}
	}
	log.Error("saltern_salt_run names a program whose Python cannot be found: its first lines name none, and none is beside it; "+
		"remove the option and set saltern_renderer_python to a Python that can import salt", "path", path)
	return pythons
}
