package pyrunner

import (
	"os"
	"path/filepath"
)

// Layer returns the folder of packages behind the link at path (saltern_python_layer), or "". A
// running Python keeps the folder it was started with when the link changes.
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

// Arguments returns the arguments of a Python that runs one of our programs. The program appends
// the layer to its path, so that nothing in it replaces Python's own packages.
func Arguments(program, layer string) []string {
	args := []string{"-I", "-c", program}
	if layer != "" {
		args = append(args, layer)
	}
	return args
}
