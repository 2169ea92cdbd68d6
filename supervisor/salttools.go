package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/command"
)

// maxToolOutput bounds what one of Salt's tools prints: a line for each of
// more minions than a master has.
const maxToolOutput = 64 << 20

// saltRun runs a runner of our own master.
func (n *node) saltRun(ctx context.Context, args ...string) error {
	_, err := n.saltTool(ctx, "salt-run", append([]string{"--out", "json"}, args...)...)
	return err
}

// saltTool runs one of Salt's tools on our own master and gives what it
// printed. Secrets must not be among args: everybody on the machine sees them.
func (n *node) saltTool(ctx context.Context, name string, args ...string) ([]byte, error) {
	path := filepath.Join(filepath.Dir(n.masterProgram()), name)
	argv := append([]string{name, "-c", n.cfg.MasterConf()}, args...)
	if _, err := os.Stat(path); err != nil { // one program by several names
		path = filepath.Join(filepath.Dir(n.masterProgram()), "salt")
	}
	out, err := command.Do(ctx, command.Exec{Path: path, Env: childEnv(), MaxOutput: maxToolOutput}, argv...)
	if errors.Is(err, command.ErrOutput) {
		return nil, fmt.Errorf("%s: it printed more than %d bytes", name, maxToolOutput)
	}
	if err != nil {
		what := name
		for _, a := range args {
			if !strings.HasPrefix(a, "-") && a != "json" {
				what += " " + a
				break
			}
		}
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}
