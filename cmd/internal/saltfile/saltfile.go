// Package saltfile finds the file with defaults for the options of Salt's commands
// (salt/utils/parsers.py SaltfileMixIn).
package saltfile

import (
	"cmp"
	"os"
	"path/filepath"
)

// Find returns the path of the Saltfile to read, in Salt's order: the one that the command line
// gives, that of the environment (SALT_SALTFILE), of the working directory, and of the user,
// whose folder is home; "" for one who has none. "": there is none.
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
