package pyrunner

import (
	"os"
	"path/filepath"
)

// Layer finds the folder of packages behind the link at path (saltern_python_layer),
// "" if there is none. A Python that was given the folder goes on with it when the
// link leads elsewhere.
func Layer(path string) string {
	if path == "" {
		return ""
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return ""
	}
	return dir
}

// Arguments are those of a Python that runs one of our programs, which puts the
// layer at the end of its path: nothing there takes the place of what Python has.
func Arguments(program, layer string) []string {
	args := []string{"-I", "-c", program}
	if layer != "" {
		args = append(args, layer)
	}
	return args
}
