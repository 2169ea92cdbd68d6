package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"saltern/cmd/internal/saltfile"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// saltNames maps option names in a Saltfile to flags, where the two differ.
var saltNames = map[string]string{"pidfile": "pid-file", "log_level_logfile": "log-file-level"}

// takeSaltfile sets the flags that are missing on the command line to the values for salt-master in
// a Saltfile (salt/utils/parsers.py SaltfileMixIn). If a name in the Saltfile is no flag, it
// returns an error: the master's options belong in the master's configuration.
func takeSaltfile(flags *pflag.FlagSet, path string) error {
	path = saltfile.Find(path, os.Getenv("SALT_SALTFILE"), os.Getenv("HOME"))
	if path == "" {
		return nil
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the Saltfile: %w", err)
	}

	decoded, err := saltyaml.Decode(text, path)
	if err != nil {
		return fmt.Errorf("read the Saltfile: %w", err)
	}

	whole, _ := decoded.(*value.Map)
	for key, v := range whole.Map("salt-master").All() {
		name := cmp.Or(saltNames[value.Str(key)], strings.ReplaceAll(value.Str(key), "_", "-"))
		flag := flags.Lookup(name)
		if flag == nil {
			return fmt.Errorf("%s: %s is no option of the command salt-master; options of the master belong into its configuration",
				path, value.Str(key))
		}
		if flag.Changed {
			continue
		}

		if err := flags.Set(name, strings.TrimSpace(value.Str(v))); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}

	return nil
}
