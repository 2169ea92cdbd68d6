package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
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
	out, errs := &bounded{most: maxToolOutput}, &bounded{most: 64 << 10}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.WaitDelay = argv, childEnv(), "/", 2*time.Second
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		what := name
		for _, a := range args {
			if !strings.HasPrefix(a, "-") && a != "json" {
				what += " " + a
				break
			}
		}
		text := strings.TrimSpace(errs.b.String() + "\n" + out.b.String())
		return nil, fmt.Errorf("%s: %w: %s", what, err, clip(text))
	}
	if out.over {
		return nil, fmt.Errorf("%s: it printed more than %d bytes", name, out.most)
	}
	return out.b.Bytes(), nil
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	b    bytes.Buffer
	most int
	over bool
}

func (w *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), w.most-w.b.Len())
	w.over = w.over || keep < len(p)
	w.b.Write(p[:keep])
	return len(p), nil
}
