package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// saltfileName is looked for in the working directory.
const saltfileName = "Saltfile"

// takeSaltfile sets the flags that the command line does not give to what a Saltfile says of
// salt-master (salt/utils/parsers.py SaltfileMixIn). What is no flag is refused: an option of
// the master belongs into its configuration.
func takeSaltfile(flags *pflag.FlagSet, path string) error {
	named := path != ""
	if !named {
		path = saltfileName
	}
	text, err := os.ReadFile(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Saltfile: %w", err)
	}
	decoded, err := saltyaml.Decode(text, path)
	if err != nil {
		return fmt.Errorf("read the Saltfile: %w", err)
	}

	whole, _ := decoded.(*value.Map)
	for key, v := range whole.Map("salt-master").All() {
		name := strings.ReplaceAll(value.Str(key), "_", "-")
		flag := flags.Lookup(name)
		if flag == nil {
			return fmt.Errorf("%s: %s is no option of the command salt-master; options of the master belong into its configuration", path, value.Str(key))
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
