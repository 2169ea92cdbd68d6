// Package saltfile finds the file with defaults for the options of Salt's commands
// (salt/utils/parsers.py SaltfileMixIn).
package saltfile

import (
	"cmp"
	"os"
	"path/filepath"
)

// Find returns the path of the Saltfile to read, or "" if there is none. As Salt does, it uses the
// first of: the path on the command line, the path in the environment (SALT_SALTFILE), the file in
// the working directory, the file in the user's home folder. home may be "": the user has no home
// folder.
func Find(given, environment, home string) string {
	if path := cmp.Or(given, environment); path != "" {
		return path
	}
	paths := []string{"Saltfile"}
	if home != "" {
		paths = append(paths, filepath.Join(home, ".salt", "Saltfile"))
	}
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
