package pyrunner

import (
	"os"
	"path/filepath"
)

// Layer returns the folder of packages to which the link at path (saltern_python_layer) leads, or
// "". If the link changes, a running Python continues with the folder with which it was started.
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

// Arguments returns the arguments of a Python interpreter that runs one of Saltern's programs. The
// program appends the layer to its search path, so that the layer cannot replace Python's own
// packages.
func Arguments(program, layer string) []string {
	args := []string{"-I", "-c", program}
	if layer != "" {
		args = append(args, layer)
	}
	return args
}
