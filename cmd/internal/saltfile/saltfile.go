// Package saltfile finds the file with defaults for the options of Salt's commands
// (salt/utils/parsers.py SaltfileMixIn).
package saltfile

import (
	"cmp"
	"os"
	"path/filepath"
)

// Find returns the path of the Saltfile to read, or "" if there is none. Salt's order is: given by
// the command line, given by the environment (SALT_SALTFILE), in the working directory, in the user's
// home folder. home may be "": the user has none.
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
