package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules returns the names of the files with the administrator's own modules of a kind, such as
// "auth" or "output". The name that a module declares may differ from its file's name. modules
// searches the folders that Salt's loader searches (salt/loader/__init__.py _module_dirs): the
// folder of the kind below extension_modules and below each of module_dirs, and dirs.
func (t *tool) modules(kind string, dirs ...string) []string {
	dirs = append(dirs, filepath.Join(t.cfg.ExtensionModules, kind))
	for _, d := range t.cfg.ModuleDirs {
		dirs = append(dirs, filepath.Join(d, kind), filepath.Join(d, "_"+kind))
	}

	var names []string
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			continue
		}

		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}

		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), ".py")
			if ok && !strings.HasPrefix(name, "_") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}

	slices.Sort(names)
	return names
}
