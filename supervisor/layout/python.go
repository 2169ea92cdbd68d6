package layout

import (
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"saltern/internal/durable"
	"saltern/supervisor/python"
	"saltern/supervisor/settings"
)

// Packages returns the place of the Python packages, and of the Python that would run the master.
func Packages(s *settings.Settings) python.Place {
	p := python.Place{Shared: s.SharedPythonDir(), Node: s.PythonDir(), Layers: s.LayersDir(), Pythons: pythons(s)}
	// If the master runs as root, its Python runs as root too.
	if master, err := FindAccount(s.Users.Master); err == nil && master.Credential != nil {
		p.As = python.Nobody()
	}
	return p
}

const pythonOption = "saltern_renderer_python"

// pythons returns the interpreters to try, in this order.
func pythons(s *settings.Settings) []string {
	named, _ := s.Master.Options[pythonOption].(string)
	files, _ := filepath.Glob(filepath.Join(s.UserConfDir(), "*.conf"))
	for _, f := range files[:min(len(files), maxUserFiles)] { // an option in a later file replaces an earlier one
		var o map[string]any
		if b, _, err := durable.ReadFile(f, maxUserFile, durable.Follow); err == nil && yaml.Unmarshal(b, &o) == nil {
			if v, ok := o[pythonOption].(string); ok && v != "" {
				named = v
			}
		}
	}

	if named == "" {
		named = os.Getenv("SALTERN_RENDERER_PYTHON")
	}

	if named != "" {
		return []string{named}
	}

	return []string{"/opt/saltstack/salt/bin/python3", "python3"}
}
